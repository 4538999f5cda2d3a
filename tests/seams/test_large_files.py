"""One large file without headings, whose only section is the whole file: queries never read all of it."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from retrieval_core import load_config, open_index

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core import Index

SENTENCE = "The valve number {} is opened by hand and closed by the pump. "
BUDGET = 500


class CountingCounter:
    """Counts words as tokens, and how much text it was given, and where.

    Attributes:
        characters: Of all texts together.
        threads: Those that it was called in.
    """

    def __init__(self) -> None:
        self.characters = 0
        self.threads: set[int] = set()

    def __call__(self, text: str, /) -> int:
        self.characters += len(text)
        self.threads.add(threading.get_ident())
        return len(text.split())


@pytest.fixture(scope="module")
def large_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Return an index of one large file without headings, and the file's length."""
    folder = tmp_path_factory.mktemp("large")
    (folder / "docs").mkdir()
    text = "".join(map(SENTENCE.format, range(40_000)))
    (folder / "docs/valves.txt").write_text(text, encoding="utf-8")
    with opened(folder, CountingCounter()) as index:
        index.ingest(folder / "docs")
    return folder, len(text)


def opened(folder: Path, counter: CountingCounter) -> Index:
    """Return the index, which is searched by keywords and has a small budget."""
    settings = {"embedder.kind": "none", "search.mode": "lexical", "context.max_tokens": BUDGET}
    return open_index(folder / "index.db", config=load_config(overrides=settings), token_counter=counter)


def test_a_context_does_not_count_the_whole_file(large_file: tuple[Path, int]) -> None:
    """The section around the hits is dropped as soon as it is known not to fit, and the hits are shown."""
    folder, length = large_file
    counter = CountingCounter()
    with opened(folder, counter) as index:
        pack = index.context("valve number 31234")
    parents = [entry for entry in pack.ledger if entry.role == "parent"]
    assert "31234" in pack.context_pack
    assert pack.token_count <= BUDGET
    assert [entry.outcome for entry in parents] == ["dropped"]
    assert "longer than the whole budget" in parents[0].reason
    assert counter.characters < length / 4


def test_an_answer_does_not_either(large_file: tuple[Path, int]) -> None:
    """It is made of the passages of such a context."""
    folder, length = large_file
    counter = CountingCounter()
    with opened(folder, counter) as index:
        answer = index.answer("Which valve has the number 31234?")
    assert answer.pack is not None
    assert answer.pack.passages
    assert counter.characters < length / 4


def test_counting_does_not_hold_up_the_event_loop(large_file: tuple[Path, int]) -> None:
    """Tokens are counted in other threads, so a health check of the same loop is answered meanwhile."""
    folder, _ = large_file
    counter = CountingCounter()

    async def test() -> None:
        async with opened(folder, counter) as index:
            await index.acontext("valve number 31234")

    asyncio.run(test())
    assert counter.threads
    assert threading.get_ident() not in counter.threads
