"""Extracted facts keep in step with an index, through failures and crashes."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("rustworkx", reason="needs the extra graph: pip install 'retrieval-core[graph]'")

from retrieval_core.adapters.graph import GraphFiles, ledger
from retrieval_core.adapters.graph.builder import GraphBuilder, GraphReport
from retrieval_core.adapters.graph.extract import TripleExtractor
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.errors import InvalidParameterError, ServiceConnectionError, ServiceError
from retrieval_core.ports import Change, SourceState
from retrieval_core.run.retry import RetryPolicy
from retrieval_core.run.runner import Guard
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes_llm import FakeLLM
from retrieval_core.types import Chunk, Document, content_hash

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.ports import CompletionRequest


def passages(request: CompletionRequest) -> dict[str, str]:
    lines = (line.partition(": ") for line in request.messages[1].content.split("\n"))
    return {label.removeprefix("passage "): json.loads(value) for label, _, value in lines}


def model(request: CompletionRequest) -> dict[str, Any]:
    """Take the first word for the subject and the last for the object."""
    return {
        number: [{"subject": text.split()[0], "relation": "goes with", "object": text.split()[-1]}]
        for number, text in passages(request).items()
    }


def change(**documents: list[str]) -> Change:
    """Return a write that replaces documents by chunks with these texts."""
    return Change(
        chunks=tuple(
            Chunk(f"{name}#{number}", name, text, number, len(texts))
            for name, texts in documents.items()
            for number, text in enumerate(texts)
        ),
        documents=tuple(
            Document(name, "\n".join(texts), f"{name}.md", content_hash("\n".join(texts)))
            for name, texts in documents.items()
        ),
        sources=tuple(SourceState(f"{name}.md", "hash", "recipe", 1) for name in documents),
    )


def facts(path: Path) -> list[tuple[str, str | None]]:
    return [(str(triple), triple.chunk_id) for triple in GraphFiles(path).get().triples]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index.db.graph.jsonl"


def builder(path: Path, llm: FakeLLM, **settings: Any) -> GraphBuilder:
    return GraphBuilder(path, TripleExtractor(llm), **settings)


def run(made: GraphBuilder, *changes: Change) -> list[GraphReport]:
    async def all_of_them() -> list[GraphReport]:
        return [await made.update(one) for one in changes]

    return asyncio.run(all_of_them())


def test_new_chunks_are_read(path: Path) -> None:
    """Each chunk's facts are in the file, and the report counts them."""
    (report,) = run(builder(path, FakeLLM(model)), change(a=["Ann likes Bob", "Bob likes Cid"], b=["Dan knows Eve"]))
    assert report == GraphReport(chunks=3, triples=3)
    assert facts(path) == [
        ("Ann -goes with-> Bob", "a#0"),
        ("Bob -goes with-> Cid", "a#1"),
        ("Dan -goes with-> Eve", "b#0"),
    ]


def test_only_what_changed_is_read(path: Path) -> None:
    """A chunk with the same text is not read again, also where its number changed, and after a restart."""
    run(builder(path, FakeLLM(model)), change(a=["Ann likes Bob", "Bob likes Cid"]))
    llm = FakeLLM(model)
    (report,) = run(builder(path, llm), change(a=["Zoe likes Ann", "Ann likes Bob"]))
    assert report == GraphReport(chunks=1, reused=1, triples=2)
    assert [passages(request) for request in llm.requests] == [{"1": "Zoe likes Ann"}]
    assert facts(path) == [("Zoe -goes with-> Ann", "a#0"), ("Ann -goes with-> Bob", "a#1")]


def test_what_is_gone_is_forgotten(path: Path) -> None:
    """Facts go with their documents, and with the chunks that a document no longer has."""
    made = builder(path, FakeLLM(model))
    run(made, change(a=["Ann likes Bob", "Bob likes Cid"], b=["Dan knows Eve"]))
    run(made, Change(removed_documents=("b", "unknown")), change(a=["Ann likes Bob"]))
    assert facts(path) == [("Ann -goes with-> Bob", "a#0")]


def test_chunks_without_a_document(path: Path) -> None:
    """A chunk that was added by itself replaces the one with its id alone."""
    made = builder(path, FakeLLM(model))
    run(made, Change(chunks=(Chunk("x#0", "x", "Ann likes Bob"), Chunk("x#1", "x", "Bob likes Cid"))))
    run(made, Change(chunks=(Chunk("x#1", "x", "Dan knows Eve"),)))
    assert facts(path) == [("Ann -goes with-> Bob", "x#0"), ("Dan -goes with-> Eve", "x#1")]


def test_another_writers_facts_stay(path: Path) -> None:
    """Two builders may follow one file in turn: neither writes back what it read before the other wrote."""
    one, other = builder(path, FakeLLM(model)), builder(path, FakeLLM(model))
    run(one, change(a=["Ann likes Bob"]))
    run(other, change(b=["Dan knows Eve"]))
    run(one, change(c=["Fay met Gus"]))
    run(other, Change(removed_documents=("a",)))
    assert [chunk_id for _, chunk_id in facts(path)] == ["b#0", "c#0"]


def failing_for(word: str, error: Exception) -> FakeLLM:
    def answer(request: CompletionRequest) -> dict[str, Any]:
        if word in request.messages[1].content:
            raise error
        return model(request)

    return FakeLLM(answer)


def test_a_failed_batch_is_tried_again_at_the_next_run(path: Path) -> None:
    """The other batches are kept, the failure is told, and catching up reads what is missing and nothing else."""

    async def index() -> tuple[GraphReport, GraphReport, GraphReport, int]:
        store = MemoryStore(embedder_id=None, dimension=None)
        written = change(a=["Ann likes Bob", "Bob likes Cid"], b=["Dan knows Eve"])
        await store.upsert(written)
        flaky = builder(path, failing_for("Cid", ServiceConnectionError("gone", "fake-llm")), batch_size=1)
        first = await flaky.update(written)
        llm = FakeLLM(model)
        mended = builder(path, llm, batch_size=1)
        second, third = await mended.catch_up(store), await mended.catch_up(store)
        return first, second, third, len(llm.requests)

    first, second, third, requests = asyncio.run(index())
    assert first == GraphReport(chunks=2, triples=2, failed=("gone",))
    assert second == GraphReport(chunks=1, reused=1, triples=2)
    assert third == GraphReport()
    assert requests == 1
    assert sorted(chunk_id or "" for _, chunk_id in facts(path)) == ["a#0", "a#1", "b#0"]


def test_a_changed_chunk_that_fails_loses_its_old_facts(path: Path) -> None:
    """What a text said before it changed is no fact of the new text."""
    run(builder(path, FakeLLM(model)), change(a=["Ann likes Bob"]))
    flaky = builder(path, failing_for("Zoe", ServiceConnectionError("gone", "fake-llm")))
    run(flaky, change(a=["Zoe likes Bob"]))
    assert facts(path) == []


def test_an_index_older_than_its_graph(path: Path) -> None:
    """Catching up reads every indexed document, and forgets those that went while nobody looked."""

    async def index() -> tuple[list[tuple[str, str | None]], list[tuple[str, str | None]]]:
        store = MemoryStore(embedder_id=None, dimension=None)
        await store.upsert(change(**{f"d{number}": [f"Ann{number} likes Bob"] for number in range(40)}))
        made = builder(path, FakeLLM(model))
        await made.update(Change(chunks=(Chunk("x#0", "x", "Dan knows Eve"),)))
        report = await made.catch_up(store)
        assert report == GraphReport(chunks=40, triples=40)
        before = await asyncio.to_thread(facts, path)
        await store.delete([f"d{number}" for number in range(39)])
        await made.catch_up(store)
        return before, await asyncio.to_thread(facts, path)

    before, after = asyncio.run(index())
    assert len(before) == 40  # the chunk x#0 is in no store, and its facts go
    assert after == [("Ann39 -goes with-> Bob", "d39#0")]


def test_documents_without_a_file_stay(path: Path) -> None:
    """What was added by a program is in no catalogue of files, and is kept as long as it is in the index."""

    async def index() -> None:
        store = MemoryStore(embedder_id=None, dimension=None)
        added = Change(chunks=(Chunk("x#7", "x", "Ann likes Bob", 7, 8),))
        await store.upsert(added)
        made = builder(path, FakeLLM(model))
        await made.update(added)
        assert await made.catch_up(store) == GraphReport()

    asyncio.run(index())
    assert facts(path) == [("Ann -goes with-> Bob", "x#7")]


def test_a_wrong_key_stops_asking(path: Path) -> None:
    """A failure that no other request can do better with is met once, not for each batch."""
    llm = failing_for("likes", ServiceError("wrong key", "fake-llm", status=401))
    made = builder(path, llm, batch_size=1, concurrency=1)
    (report,) = run(made, change(a=[f"Ann likes {number}" for number in range(20)]))
    assert report == GraphReport(failed=("wrong key",))
    assert len(llm.requests) == 1


def test_retries_are_the_guards(path: Path) -> None:
    """A request that fails in a way that may pass is made again, as often as the policy says, on the clock given."""
    answers = [ServiceConnectionError("gone", "fake-llm"), ServiceConnectionError("gone", "fake-llm"), model]
    guard = Guard(RetryPolicy(max_retries=2, base_delay=1))
    (report,) = run(builder(path, FakeLLM(answers), guard=guard, clock=FakeClock()), change(a=["Ann likes Bob"]))
    assert report == GraphReport(chunks=1, triples=1)


def test_concurrency_is_bounded(path: Path) -> None:
    """No more requests are under way than were allowed."""

    class Counting(FakeLLM):
        now = most = 0

        async def complete(self, request: CompletionRequest) -> Any:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0)
            self.now -= 1
            return await super().complete(request)

    llm = Counting(model)
    run(builder(path, llm, batch_size=1, concurrency=3), change(a=[f"Ann likes {number}" for number in range(12)]))
    assert llm.most == 3
    assert len(llm.requests) == 12


def no_space(_: int) -> None:
    raise OSError(28, "No space left on device")


def test_a_crash_while_writing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old file stays whole, the failure is told, and the next change is written with all there is."""
    made = builder(path, FakeLLM(model))
    run(made, change(a=["Ann likes Bob"]))
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", no_space)
        (report,) = run(made, change(b=["Dan knows Eve"]))
    assert report.failed == ("[Errno 28] No space left on device",)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    run(made, change(b=["Dan knows Eve"]))
    assert len(facts(path)) == 2


@pytest.mark.parametrize("line", ["no json", '{"subject": "a", "relation": "b", "object": "c"}'])
def test_a_file_of_someone_else(path: Path, line: str) -> None:
    """A file that holds something else is neither overwritten nor in the way of the indexing."""
    path.write_text(line)
    made = builder(path, FakeLLM(model))
    (report,) = run(made, change(a=["Ann likes Bob"]))
    assert len(report.failed) == 1
    assert str(path) in report.failed[0]
    assert path.read_text() == line
    assert asyncio.run(made.catch_up(MemoryStore(embedder_id=None, dimension=None))).failed == report.failed
    assert made.report.failed == report.failed * 2


def test_a_full_graph(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing more is read where there is no room, and what is gone still goes."""
    monkeypatch.setattr(ledger, "MOST_TRIPLES", 2)
    made = builder(path, FakeLLM(model))
    run(made, change(a=["Ann likes Bob"], b=["Dan knows Eve"]))
    (report,) = run(made, change(a=["Zoe likes Bob"]))
    assert report.chunks == 0
    assert "as many triples as a graph may have" in report.failed[0]
    assert facts(path) == [("Dan -goes with-> Eve", "b#0")]


def test_closing(path: Path) -> None:
    """Closing twice is fine."""
    made = builder(path, FakeLLM(model))
    run(made, change(a=["Ann likes Bob"]))
    asyncio.run(made.aclose())
    made.close()


@pytest.mark.parametrize("settings", [{"batch_size": 0}, {"concurrency": 0}, {"seconds": 0}])
def test_settings(path: Path, settings: dict[str, Any]) -> None:
    """Numbers have their ranges."""
    with pytest.raises(InvalidParameterError, match=next(iter(settings))):
        builder(path, FakeLLM(model), **settings)
