"""The rows of the specification on answers, on files that were indexed; see docs/dev/spec-map.md."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import load_config, open_index
from retrieval_core.adapters.stores.sqlite import SqliteStore
from retrieval_core.errors import ServiceConnectionError
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.testing.fakes_llm import FakeLLM
from retrieval_core.types import content_hash
from support.answers import check_stream, kinds
from support.building import event_to_json
from support.pipelines import word_counter

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from retrieval_core import Index
    from retrieval_core.ports import Candidate, CompletionRequest, SearchRequest

    Opened = Callable[..., Index]

MOON = "The moon is 384,400 km away."
QUESTION = "How far away is the moon?"
NOT_FOUND = "I could not find that information in the provided documents."
UNAVAILABLE = "Document search unavailable. Providing general response:\n\n"
FILES = {
    "moon.md": f"# The moon\n\n## Distance\n\n{MOON} It moves on by 38 mm each year.\n",
    "old.md": "# An old atlas\n\n## Distance of the moon\n\nThe moon is 350,000 km away from the earth.\n",
    "bread.md": "# Bread\n\nBread is baked for forty minutes.\n",
}


class TroubledStore(SqliteStore):
    """A store whose first searches fail."""

    failing = 0

    async def search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        if self.failing:
            self.failing -= 1
            msg = "the store is down"
            raise ServiceConnectionError(msg)
        return await super().search(request)


@pytest.fixture
def opened(tmp_path: Path) -> Generator[Opened]:
    """Return what opens an index of three files; each is closed in the end."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    indexes: list[Index] = []

    def make(llm: FakeLLM | None = None, *, failing: int = 0, **settings: Any) -> Index:
        embedder = FakeEmbedder()
        store = TroubledStore(tmp_path / "index.db", embedder_id=embedder.id, dimension=embedder.dimension)
        overrides = {"answer.abstain_below": 0, "retry.max_retries": 0}
        config = load_config(overrides=overrides | {key.replace("__", "."): value for key, value in settings.items()})
        index = open_index(config=config, embedder=embedder, store=store, llm=llm, token_counter=word_counter())
        indexes.append(index)
        index.ingest([tmp_path / name for name in FILES])
        store.failing = failing
        return index

    yield make
    for index in indexes:
        index.close()


def test_answer_stream_full_pipeline(opened: Opened) -> None:
    """``answer_stream(query)`` is an iterator: the passages, the text piece by piece, its sources, the whole."""
    llm = FakeLLM([f"{MOON} [1]"])
    events = list(opened(llm).answer_stream(QUESTION))
    answer = check_stream(events)
    assert kinds(events)[0] == "retrieval_done"
    assert kinds(events)[-1] == "done"
    assert sum(event.type == "answer_chunk" for event in events) > 3
    assert (answer.text, answer.kind, answer.error) == (f"{MOON} [1]", "written", None)


def test_event_answer_chunk(opened: Opened) -> None:
    """A piece of the text is ``{"type": "answer_chunk", "content": chunk}``, and nothing else."""
    chunks = [event for event in opened(FakeLLM([MOON])).answer_stream(QUESTION) if event.type == "answer_chunk"]
    for chunk in chunks:
        told = event_to_json(chunk)
        assert told == {"type": "answer_chunk", "content": chunk.content}
        assert json.loads(json.dumps(told)) == told
    assert "".join(chunk.content for chunk in chunks) == MOON


def test_synthesize_final_answer_prompt(opened: Opened) -> None:
    """Every rule of the specification is in the instructions; facts and question are data beside them."""
    llm = FakeLLM([MOON])
    opened(llm).answer(QUESTION)
    [request] = llm.requests
    system, user = request.messages
    rules = {
        "1 evaluate each": r"each passage whether it bears on the question",
        "2 only relevant": r"use those that do, and nothing else",
        "3 contradiction": r"contradict each other, say so",
        "4 insufficient": re.escape(NOT_FOUND),
        "5 thorough": r"thoroughly and well ordered.* with the numbers, names",
        "6 no external knowledge": r"no knowledge of your own",
    }
    for rule, pattern in rules.items():
        assert re.search(pattern, system.content), rule
    assert f"question: {json.dumps(QUESTION)}" in user.content
    assert all(json.dumps(MOON)[1:-1] not in message.content for message in request.messages[:1])
    assert MOON in user.content


def test_contradicting_snippets_are_shown_side_by_side(opened: Opened) -> None:
    """Both passages are in the request with where they are from, so that a contradiction can be named and cited."""
    answer = (
        "The moon is 384,400 km away [1], and the old atlas says that the moon is 350,000 km away from the earth [2]."
    )
    llm = FakeLLM(
        lambda request: answer if "moon.md" in request.messages[1].content.split("old.md")[0] else _turned(answer)
    )
    told = opened(llm).answer(QUESTION)
    assert {source.document_id.rpartition("/")[2] for source in told.sources} == {"moon.md", "old.md"}


def _turned(answer: str) -> str:
    return answer.replace("[1]", "[x]").replace("[2]", "[1]").replace("[x]", "[2]")


def test_source_attribution(opened: Opened, tmp_path: Path) -> None:
    """Each ``[n]`` becomes a citation with quote, span and hash that stand in the file; an invented one is marked."""
    index = opened(FakeLLM([f"{MOON} [1] It is made of cheese. [12]"]), search__top_k=1)
    answer = index.answer(QUESTION)
    [source] = answer.sources
    text = (tmp_path / source.document_id.rpartition("/")[2]).read_text()
    for quote in source.quotes:
        assert quote.span is not None
        assert text[quote.span.start : quote.span.end] == quote.text
        assert quote.content_hash == content_hash(quote.text)
    assert any(MOON in quote.text for quote in source.quotes)
    assert all(check.matches for check in index.verify(answer.sources))
    assert [item.problem for item in answer.sentences[1].attributions] == ["unknown"]
    assert answer.unsupported == answer.sentences[1:]


def test_confidence_scoring(opened: Opened) -> None:
    """A question that the passages hold is answered with more confidence than one that they do not, and it says why."""
    index = opened()
    near, far = index.answer(QUESTION), index.answer("Which moon has the deepest volcanic crater lake?")
    assert near.confidence is not None
    assert far.confidence is not None
    assert 0 <= far.confidence.value < near.confidence.value <= 1
    assert near.confidence.explanation


def test_verify_flag(opened: Opened) -> None:
    """Without the flag only what its source contradicts has a verdict; with it each sentence has one, and its words."""
    wrong = "The moon is 12 km away from the earth."
    llm = FakeLLM(lambda _request: f"{MOON} [1] {wrong} [1]")
    index = opened(llm, answer__verifier="retrieval_core.testing.fakes:FakeVerifier")
    checks = [sentence.check for sentence in index.answer(QUESTION).sentences]
    assert [check and check.verdict for check in checks] == [None, "contradicted"]
    events = list(index.answer_stream(QUESTION, verify=True))
    answer = check_stream(events)
    verdicts = [sentence.check.verdict for sentence in answer.sentences if sentence.check is not None]
    assert verdicts == ["supported", "contradicted"]
    assert kinds(events)[-2:] == ["verification", "done"]
    assert answer.confidence is not None
    assert answer.confidence.support == 0.5


def test_insufficient_information(opened: Opened) -> None:
    """Where nothing was found, the answer is the specification's sentence, and the model is not asked."""
    llm = FakeLLM([])
    answer = opened(llm).answer("zebra", mode="lexical")
    assert (answer.text, answer.kind) == (NOT_FOUND, "abstained")
    assert llm.requests == []


def test_prompt_override(opened: Opened) -> None:
    """Instructions of one's own take the place of the built-in ones, for one question or by configuration."""
    llm = FakeLLM(lambda _request: MOON)
    index = opened(llm, answer__prompt="Answer like an almanac.")
    index.answer(QUESTION)
    index.answer(QUESTION, prompt_override="Answer like a pirate.")
    configured, given = (request.messages[0].content for request in llm.requests)
    assert configured.startswith("Answer like an almanac.")
    assert given.startswith("Answer like a pirate.")
    assert NOT_FOUND not in given
    assert "square brackets" in given


def test_answer_with_history(opened: Opened) -> None:
    """A stream like any other; the last turns tell what the question means, to the search and to the model."""
    history = [
        {"role": "user", "content": "Tell me about the moon."},
        {"role": "assistant", "content": "The moon goes round the earth."},
    ]
    llm = FakeLLM(lambda _request: f"{MOON} [1]")
    events = list(opened(llm).answer_with_history("How far away is it?", history))
    answer = check_stream(events)
    assert answer.query == "How far away is it?"
    assert "Tell me about the moon." in llm.requests[-1].messages[1].content
    assert any(MOON in quote.text for source in answer.sources for quote in source.quotes)


def test_answer_stream_fallback(opened: Opened) -> None:
    """Where the full pipeline fails, meaning alone is searched; that is an event, and the answer is a whole one."""
    events = list(opened(FakeLLM([f"{MOON} [1]"]), failing=2).answer_stream(QUESTION))
    answer = check_stream(events)
    assert kinds(events)[:2] == ["fallback", "retrieval_done"]
    assert [(item.step, "the store is down" in item.reason) for item in answer.fallbacks] == [("dense", True)]
    assert (answer.kind, answer.error) == ("written", None)


def test_direct_llm_answer(opened: Opened) -> None:
    """Where nothing can be searched, the model helps in general, and the first words say so."""

    def general(request: CompletionRequest) -> str:
        assert "unavailable" in request.messages[0].content
        assert MOON not in request.messages[1].content
        return "In general, far."

    events = list(opened(FakeLLM(general), failing=99).answer_stream(QUESTION))
    answer = check_stream(events)
    assert [item.step for item in answer.fallbacks] == ["dense", "without_documents"]
    assert answer.text == f"{UNAVAILABLE}In general, far."
    assert (answer.kind, answer.sources, answer.pack) == ("without_documents", (), None)


def test_answer_is_there_for_asynchronous_programs_too(opened: Opened) -> None:
    """Every method has a twin with an ``a`` before its name, with the same answer."""
    index = opened(FakeLLM(lambda _request: f"{MOON} [1]"))

    async def main() -> tuple[str, str, str]:
        whole = await index.aanswer(QUESTION)
        streamed = [event async for event in index.aanswer_stream(QUESTION)]
        talked = [event async for event in index.aanswer_with_history(QUESTION, [])]
        return whole.text, check_stream(streamed).text, check_stream(talked).text

    assert set(asyncio.run(main())) == {f"{MOON} [1]"}
