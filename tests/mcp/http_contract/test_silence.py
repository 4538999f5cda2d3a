"""What was silent before: parameters that nobody reads, and an embedder that always fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from retrieval_core.testing.fakes import FakeEmbedder

if TYPE_CHECKING:
    from support.http_service import Served, Service


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/v1/documents?limt=2", "unknown parameter limt; did you mean limit?"),
        ("/v1/indexes?zzz=1", "unknown parameter zzz; the parameters are none"),
    ],
)
def test_an_unknown_parameter_is_refused(served: Served, path: str, message: str) -> None:
    async def check(service: Service) -> None:
        answer = await service.ask("GET", path)
        assert (answer.status_code, answer.json()["errors"]) == (400, [message])

    served(check)


def test_an_embedder_that_always_fails_is_not_ready(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keyword search would still find something."""

    async def fail(*_: Any) -> Any:
        msg = "out of order"
        raise RuntimeError(msg)

    async def check(service: Service) -> None:
        monkeypatch.setattr(FakeEmbedder, "_embed_query", fail)
        answer = await service.ask("GET", "/readyz")
        assert (answer.status_code, answer.json()["status"]) == (503, "waiting")

    served(check)
