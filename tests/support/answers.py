"""Pipelines that answer, over the phones of :mod:`pipelines`; and what every stream of events must be."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from retrieval_core.config import load_config
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.pipeline.answer.answer_writer import AnswerWriter
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import (
    Answer,
    AnswerChunk,
    AnswerDone,
    AnswerFailed,
    Fallback,
    RetrievalDone,
    SentenceCited,
    SentenceVerified,
    content_hash,
)
from support.pipelines import TroubledStore, filled, word_counter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.ports import LLM, Reranker, Verifier
    from retrieval_core.run.clock import Clock
    from retrieval_core.testing.fakes_llm import FakeLLM
    from retrieval_core.types import AnswerEvent, ContextPack


QUESTION = "roll back an application"
ROLLED_BACK = "Roll back an application to an earlier revision with the history command [1]."
ORDER = {"retrieval_done": 1, "answer_chunk": 2, "citation": 2, "verification": 3, "error": 4, "done": 5}


def an_answering_pipeline(
    llm: LLM | None = None,
    store: TroubledStore | None = None,
    *,
    verifier: Verifier | None = None,
    scorer: Reranker | None = None,
    clock: Clock | None = None,
    **settings: Any,
) -> RetrievalPipeline:
    """Return a pipeline over the phones that answers; settings are keys with ``__`` for the dot.

    It never abstains unless told to: the confidence in so small a collection means nothing.
    """
    if store is None:
        store = TroubledStore()
        filled(store)
    overrides: dict[str, Any] = {"answer.abstain_below": 0}
    overrides |= {key.replace("__", "."): value for key, value in settings.items()}
    config = load_config(overrides=overrides)
    return RetrievalPipeline(
        store,
        FakeEmbedder(),
        answer_writer=AnswerWriter(llm, verifier=verifier, scorer=scorer, config=config.answer),
        config=config,
        clock=clock or FakeClock(),
        token_counter=word_counter(),
    )


async def asked(llm: FakeLLM, times: int = 1) -> None:
    """Wait until a model was asked so often; what comes before that is partly done in threads."""
    for _ in range(10_000):
        if len(llm.requests) >= times:
            return
        await asyncio.to_thread(int)
    msg = f"the model was asked {len(llm.requests)} times, and not {times}"
    raise AssertionError(msg)


def events_of(pipeline: RetrievalPipeline, query: str = QUESTION, **options: Any) -> list[AnswerEvent]:
    """Return all events of an answer, and close the pipeline."""

    async def main() -> list[AnswerEvent]:
        async with pipeline:
            return [event async for event in pipeline.aanswer_stream(query, **options)]

    return asyncio.run(main())


def answer_in(events: Sequence[AnswerEvent]) -> Answer:
    """Return the answer that a stream ended with."""
    last = events[-1]
    assert isinstance(last, AnswerDone)
    return last.answer


def check_stream(events: Sequence[AnswerEvent]) -> Answer:
    """Assert everything that holds for every stream of events, and return its answer."""
    order = {
        "fallback": 0,
        "retrieval_done": 1,
        "answer_chunk": 2,
        "citation": 2,
        "verification": 3,
        "error": 4,
        "done": 5,
    }
    places = [order[event.type] for event in events if not isinstance(event, Fallback)]
    assert places == sorted(places), [event.type for event in events]
    answer = answer_in(events)
    assert sum(isinstance(event, AnswerDone) for event in events) == 1
    assert sum(isinstance(event, RetrievalDone) for event in events) == 1
    assert sum(isinstance(event, AnswerFailed) for event in events) == (answer.error is not None)
    assert [event for event in events if isinstance(event, Fallback)] == list(answer.fallbacks)

    chunks = [event.content for event in events if isinstance(event, AnswerChunk)]
    assert all(chunks)
    assert "".join(chunks).rstrip() == answer.text
    cited = [event for event in events if isinstance(event, SentenceCited)]
    assert [event.index for event in cited] == list(range(len(cited)))
    checks = {event.check.sentence: event.check for event in events if isinstance(event, SentenceVerified)}
    assert len(cited) == len(answer.sentences)
    for event, sentence in zip(cited, answer.sentences, strict=True):
        assert sentence.check == checks.get(event.index)
        assert event.sentence.attributions == sentence.attributions

    end = 0
    for sentence in answer.sentences:
        assert not answer.text[end : sentence.span.start].strip()
        assert answer.text[sentence.span.start : sentence.span.end] == sentence.text
        end = sentence.span.end
    assert not answer.text[end:].strip()
    check_sources(answer, answer.pack)
    return answer


def check_sources(answer: Answer, pack: ContextPack | None) -> None:
    """Assert that no sentence is attributed to a passage that does not hold its quote."""
    passages = {} if pack is None else {passage.citation.number: passage.citation for passage in pack.passages}
    for sentence in answer.sentences:
        for attribution in sentence.attributions:
            assert (attribution.citation is None) == (attribution.problem is not None)
            assert (attribution.problem == "unknown") == (attribution.number not in passages)
            if attribution.marker is not None:
                assert str(attribution.number) in answer.text[attribution.marker.start : attribution.marker.end]
            if attribution.citation is None:
                continue
            whole = passages[attribution.number]
            assert attribution.citation.document_id == whole.document_id
            assert attribution.citation.quotes
            for quote in attribution.citation.quotes:
                assert quote.content_hash == content_hash(quote.text)
                assert quote.text.strip()
                assert any(
                    quote.text in original.text
                    and (
                        quote.span is None
                        or original.span is None
                        or original.text[quote.span.start - original.span.start :].startswith(quote.text)
                    )
                    for original in whole.quotes
                ), quote
        if sentence.check is not None and sentence.check.quote is not None:
            assert sentence.check.passage is not None
            quotes = passages[sentence.check.passage].quotes
            assert any(sentence.check.quote.text in original.text for original in quotes)


def kinds(events: Sequence[AnswerEvent]) -> list[str]:
    """Return the types of events, neighbours of one type once."""
    names = [event.type for event in events]
    return [name for place, name in enumerate(names) if not place or names[place - 1] != name]
