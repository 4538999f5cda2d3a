"""What the wire tests of the OpenAI adapters share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from retrieval_core.adapters.embedders.openai import OpenAIEmbedder
from retrieval_core.adapters.llms.openai import OpenAILLM
from retrieval_core.testing.fakes import FakeEmbedder
from support.openai_service import KEY

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from retrieval_core.types import Vector
    from support.wire_server import WireServer

MODEL = "text-embedding-3-small"


def embedder_of(server: WireServer, model: str = MODEL, **settings: Any) -> OpenAIEmbedder:
    defaults: dict[str, Any] = {"api_key": SecretStr(KEY), "base_url": f"{server.url}/v1"}
    return OpenAIEmbedder(model, **(defaults | settings))


def llm_of(server: WireServer, model: str = "gpt-4.1-mini", **settings: Any) -> OpenAILLM:
    defaults: dict[str, Any] = {"api_key": SecretStr(KEY), "base_url": f"{server.url}/v1"}
    return OpenAILLM(model, **(defaults | settings))


def run(adapter: OpenAIEmbedder | OpenAILLM, *work: Coroutine[Any, Any, Any]) -> Any:
    """Run calls at the same time, then close what their loop holds; return the one result, or all."""

    async def main() -> Any:
        try:
            results = await asyncio.gather(*work)
        finally:
            await adapter.aclose()
        return results[0] if len(results) == 1 else results

    return asyncio.run(main())


def expected(text: str, dimension: int = 1536) -> Vector:
    """Return the vector that the service gives a text."""
    return FakeEmbedder(dimension).vector(text)
