"""Language models and stores that a configuration can name, for commands that answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.errors import ServiceConnectionError, ServiceError
from retrieval_core.ports import Verified
from retrieval_core.testing.fakes import FakeVerifier
from retrieval_core.testing.fakes_llm import FakeLLM

if TYPE_CHECKING:
    from retrieval_core.ports import Candidate, CompletionRequest, SearchRequest


def writer(text: str = "", fails_after: int | None = None, status: int | None = None) -> FakeLLM:
    """Return a model that says one thing; it may fail after some words of it."""
    llm = FakeLLM(lambda _request: text)
    if fails_after is not None:
        llm.failure, llm.failure_after = ServiceError("the model has gone", status=status), fails_after
    return llm


def echo() -> FakeLLM:
    """Return a model that answers with what it is asked."""

    def answer(request: CompletionRequest) -> str:
        return "\n".join(message.content for message in request.messages)

    return FakeLLM(answer)


def verifier(contradicted: str, quote: str) -> FakeVerifier:
    """Return a verifier that holds a passage's quote against one sentence."""
    return FakeVerifier({contradicted: Verified("contradicted", 0, quote, "another figure")})


class DeadStore(MemoryStore):
    """A store that can be described and not searched."""

    async def search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        assert request
        msg = "no way to the store"
        raise ServiceConnectionError(msg)


def dead_store(*, embedder_id: str, dimension: int, **_more: Any) -> DeadStore:
    """Return a store that cannot be searched."""
    return DeadStore(embedder_id=embedder_id, dimension=dimension)
