from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

from retrieval_core.errors import (
    EmbeddingError,
    MalformedAnswerError,
    ServiceConnectionError,
    ServiceError,
    ServiceTimeoutError,
    as_embedding_error,
)
from retrieval_core.pipeline.stages.embed import QueryEmbedder
from retrieval_core.pipeline.stages.search import Sources, search
from retrieval_core.pipeline.stages.state import Plan
from retrieval_core.ports import Candidate, Embedder, as_plugin
from retrieval_core.run.outcomes import is_callers_fault
from retrieval_core.run.runner import Run
from retrieval_core.run.threads import ThreadPool
from retrieval_core.types import Query
from retrieval_core.types.filters import Eq

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retrieval_core.pipeline.stages.state import SearchResults
    from retrieval_core.ports import SearchRequest, Store
    from retrieval_core.types import SearchMode

QUERY = Query(original="  What?", text="What?")


@dataclass
class Sides:
    """A store that answers every search with one candidate and remembers the requests."""

    requests: list[SearchRequest] = field(default_factory=list["SearchRequest"])
    lexical_asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        self.requests.append(request)
        if request.text is not None:
            self.lexical_asked.set()
        return (Candidate("dense" if request.vector is not None else "lexical", 0.5),)


class Embeds:
    """An embedder that gives what it was told to, or raises it."""

    def __init__(self, outcome: object = (1.0, 0.0)) -> None:
        self.id, self.dimension, self.outcome = "embeds", 2, outcome

    async def embed_query(self, text: str) -> Any:
        assert text == "What?"
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    embed_texts = embed_query


@pytest.fixture
def pool() -> Iterator[ThreadPool]:
    pool = ThreadPool("test", threads=1)
    yield pool
    pool.close()


def plan(mode: SearchMode = "hybrid", score_threshold: float | None = None) -> Plan:
    return Plan(
        mode=mode,
        has_words=True,
        top_k=5,
        candidates=50,
        condition=Eq("brand", "Acme"),
        fusion="zscore",
        dense_weight=0.6,
        score_threshold=score_threshold,
        on_unscored="drop",
        fetch_k=None,
        lambda_mult=0.7,
    )


def find(pool: ThreadPool, store: Sides, embedder: object, settings: Plan) -> tuple[SearchResults, Run]:
    run = Run(pool)
    questions = None if embedder is None else QueryEmbedder(as_plugin(embedder, Embedder))
    return asyncio.run(search(run, Sources(cast("Store", store), questions), QUERY, settings)), run


def test_both_sides_are_asked_alike(pool: ThreadPool) -> None:
    """Each side gets the limit and the filter, one the text and the other the vector, in one call each."""
    store = Sides()
    found, run = find(pool, store, Embeds(), plan())
    assert found.dense == (Candidate("dense", 0.5),)
    assert found.lexical == (Candidate("lexical", 0.5),)
    assert found.failures == ()
    assert found.query.embedding is not None
    assert sorted(request.text or "" for request in store.requests) == ["", "What?"]
    assert {(request.limit, request.filter, request.with_vectors) for request in store.requests} == {
        (50, Eq("brand", "Acme"), False)
    }
    assert sorted(record.stage for record in run.records) == ["dense", "embed", "lexical"]


def test_a_threshold_in_lexical_mode_needs_the_embedding(pool: ThreadPool) -> None:
    """Cosines to hold against the threshold are reckoned from the question's vector, so it is made there too."""
    found, run = find(pool, Sides(), Embeds(), plan("lexical", 0.5))
    assert sorted(record.stage for record in run.records) == ["embed", "lexical"]
    assert found.query.embedding is not None
    assert found.dense is None
    found, _ = find(pool, Sides(), None, plan("lexical", 0.5))
    assert found.query.embedding is None


def test_words_do_not_wait_for_the_embedding(pool: ThreadPool) -> None:
    """The lexical search is made while the embedder is still at work."""
    store = Sides()

    class Waits(Embeds):
        async def embed_query(self, text: str) -> Any:
            await store.lexical_asked.wait()
            return await super().embed_query(text)

    found, _ = find(pool, store, Waits(), plan())
    assert found.dense
    assert found.lexical


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), KeyError(), EmbeddingError("too long")])
def test_failures_to_embed_carry_the_query(pool: ThreadPool, error: Exception) -> None:
    """Whatever an embedder raises becomes an error of embedding that holds the question as it was asked."""
    found, _ = find(pool, Sides(), Embeds(error), plan())
    assert found.dense is None
    assert found.lexical
    (failure,) = found.failures
    assert failure.stage == "embed"
    assert isinstance(failure.error, EmbeddingError)
    assert failure.error.query == QUERY.original
    assert failure.error.__cause__ is error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ServiceError("refused", "openai", status=401), "authentication"),
        (ServiceError("not yours", "openai", status=403), "authentication"),
        (ServiceError("slower", "openai", status=429), "rate limit"),
        (ServiceError("broken", "openai", status=500), "service"),
        (ServiceConnectionError("unreachable", "openai"), "connection"),
        (ServiceTimeoutError("slow", "openai"), "timeout"),
        (MalformedAnswerError("no JSON", "openai"), "malformed answer"),
        (ConnectionResetError("gone"), "connection"),
        (RuntimeError("out of memory"), "embedder"),
    ],
)
def test_failures_to_embed_say_what_kind_they_are(pool: ThreadPool, error: Exception, kind: str) -> None:
    """One error is caught for whatever went wrong, with the query, a word for the kind, and the cause behind it."""
    found, _ = find(pool, Sides(), Embeds(error), plan())
    failed = found.failures[0].error
    assert isinstance(failed, EmbeddingError)
    assert (failed.query, failed.kind, failed.__cause__) == (QUERY.original, kind, error)
    assert str(error) in str(failed)
    assert is_callers_fault(failed) == is_callers_fault(error)


def test_a_query_that_an_error_holds_already_is_kept(pool: ThreadPool) -> None:
    """An error of embedding is not wrapped in another."""
    known = EmbeddingError("no", "another query")
    found, _ = find(pool, Sides(), Embeds(known), plan())
    assert found.failures[0].error is known
    assert (known.query, known.kind) == ("another query", "embedder")


def test_an_error_that_is_raised_again_does_not_keep_the_first_query(pool: ThreadPool) -> None:
    """An embedder may raise the same object for every question, and none is told what another one was."""
    stored = EmbeddingError("out of order")
    for query in ("the first", "the second"):
        error = as_embedding_error(stored, "the query", query)
        assert isinstance(error, EmbeddingError)
        assert (error.query, str(error), error.__cause__, stored.query) == (query, "out of order", stored, None)
    assert as_embedding_error(stored, "the text") is stored
