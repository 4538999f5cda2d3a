"""What the wire tests of the Cohere embedder share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from retrieval_core.adapters.embedders.cohere import CohereEmbedder
from support.cohere_service import KEY

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from support.wire_server import WireServer

MODEL = "embed-multilingual-v3.0"


def embedder_of(server: WireServer, model: str = MODEL, **settings: Any) -> CohereEmbedder:
    defaults: dict[str, Any] = {"api_key": SecretStr(KEY), "base_url": server.url}
    return CohereEmbedder(model=model, **(defaults | settings))


def run(embedder: CohereEmbedder, *work: Coroutine[Any, Any, Any]) -> Any:
    """Run calls at the same time, then close what their loop holds; return the one result, or all."""

    async def main() -> Any:
        try:
            results = await asyncio.gather(*work)
        finally:
            await embedder.aclose()
        return results[0] if len(results) == 1 else results

    return asyncio.run(main())
