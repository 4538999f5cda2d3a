"""Two tenants in one index, asked through the functions of the service: nothing of one ever reaches the other."""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import fields, is_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest
from pydantic import BaseModel

pytest.importorskip("httpx2", reason="tests/support/tenants.py needs it")
pytest.importorskip("retrieval_core_mcp", reason="likewise")

from retrieval_core.errors import RetrievalError
from retrieval_core.pipeline.grep import cursor_after
from retrieval_core.service import checking, contents, explaining, grep, managing, reading, searching, writing
from retrieval_core.service.served import ServedIndex, ServedIndexes
from retrieval_core.service.service_context import ServiceContext
from retrieval_core.types.filters import Eq
from support.tenants import BUDGETS, PASSAGES, RUN_NUMBERS, TENANTS, WORDS, Questions, filled, ids_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from retrieval_core import Index

pytestmark = pytest.mark.slow

CALLS = int(os.environ.get("CALLS", "10000"))
"""As many each night as the variable says."""
PARTS = 4


class Calls:
    """Random calls of the service, each function as often as any other."""

    def __init__(self, seed: int, ids: dict[str, list[str]]) -> None:
        self.questions = Questions(seed, ids)
        self.random = self.questions.random
        self.ways: tuple[Callable[[], tuple[Any, Any]], ...] = (
            self.search,
            self.search,
            lambda: (searching.pack_context, searching.ContextRequest(**self.query(), max_tokens=self.one(BUDGETS))),
            lambda: (searching.answer, searching.AnswerRequest(**self.query(), max_tokens=self.one(BUDGETS))),
            lambda: (explaining.explain, explaining.ExplainRequest(**self.query(), id=self.one((None, self.id())))),
            lambda: (reading.read, reading.ReadRequest(id=self.name(), around=self.one((0, 1, 20)))),
            self.grep,
            lambda: (reading.read_chunk, reading.ChunkRequest(id=self.id())),
            lambda: (reading.read_neighbors, reading.NeighborsRequest(id=self.id(), before=20, after=20)),
            lambda: (reading.read_document, reading.DocumentRequest(id=self.name(), limit=self.one((100, 50_000)))),
            lambda: (reading.read_page, self.place()),
            lambda: (contents.list_indexes, contents.IndexesRequest()),
            lambda: (contents.describe_index, contents.IndexRequest()),
            lambda: (contents.list_fields, contents.IndexRequest()),
            self.documents,
            lambda: (checking.verify_quote, checking.QuoteRequest(id=self.name(), quote=self.one(WORDS))),
            lambda: (checking.validate_chunk, reading.ChunkRequest(id=self.id())),
            lambda: (checking.check_integrity, checking.IntegrityRequest(sample=1, repair=self.one((False, True)))),
            lambda: (searching.check_sources, searching.SourcesRequest(sources=())),
            lambda: (managing.find_documents, managing.FindRequest()),
            lambda: (managing.describe_details, contents.IndexRequest()),
            lambda: (managing.remove_named, managing.RemoveNamedRequest(names=(self.name(),))),
            lambda: (writing.remove, writing.RemoveRequest(ids=(self.name(),))),
            lambda: (writing.ingest, writing.IngestRequest(path="files")),
            lambda: (
                writing.write_documents,
                writing.WriteRequest(documents=(writing.NewDocument(id="a", text="a", metadata={}),)),
            ),
        )

    def next(self) -> tuple[Any, Any]:
        """Return a function and its request."""
        return self.random.choice(self.ways)()

    def one(self, values: Sequence[Any]) -> Any:
        return self.random.choice(values)

    def id(self) -> str:
        return self.questions.an_id()

    def name(self) -> str:
        """Return the ID of a chunk or document."""
        return self.one((self.id(), self.id().rpartition("#")[0]))

    def query(self) -> dict[str, Any]:
        mode = self.one((None, None, "hybrid", "dense", "lexical"))
        top_k = self.one((1, 3, 3, 20, 20, 1000))
        return {"query": self.questions.question(), "filters": self.questions.filters(), "top_k": top_k, "mode": mode}

    def search(self) -> tuple[Any, Any]:
        more = {name: self.one((True, False)) for name in ("with_trace", "with_fallback", "use_cache")}
        return searching.search, searching.SearchIndexRequest(
            **self.query(), **more, score_threshold=self.one((None, 0.2))
        )

    def grep(self) -> tuple[Any, Any]:
        """Return a search for a pattern, whose pages may begin at a document of either tenant."""
        asked: dict[str, Any] = {
            "pattern": self.one((*WORDS, r"\w+secret", ".", "is mended", "^The")),
            "path": self.one((None, "*.md", *TENANTS)),
            "filters": self.questions.filters(),
            "output": self.one(("lines", "files", "counts")),
            "context": self.one((0, 0, 2)),
            "limit": self.one((1, 5, 1000)),
            "cursor": self.one((None, None, cursor_after(self.name(), self.one((None, 2))))),
        }
        return grep.grep, grep.GrepRequest(**asked)

    def place(self) -> reading.PlaceRequest:
        page, start, end = (
            self.one((None, 1, 1_000_000)),
            self.one((None, 0, 1_000_000)),
            self.one((None, 1, 1_000_000)),
        )
        return reading.PlaceRequest(id=self.id(), page=page, start=start, end=end)

    def documents(self) -> tuple[Any, Any]:
        part = self.one((None, "", ".md", *TENANTS, *(f"{each.upper()}/1" for each in TENANTS)))
        cursor, limit = self.one((None, self.name())), self.one((1, 10, 1000))
        return contents.list_documents, contents.DocumentsRequest(name=part, cursor=cursor, limit=limit)


@pytest.mark.parametrize("seed", range(PARTS))
def test_random_calls_of_two_tenants_never_meet(tmp_path: Path, seed: int) -> None:
    """Whatever is called, with a cache that both and an operator fill: no word, ID or count of the other.

    Once with a graph and a retriever that know no tenants, then with a language model that tells all that it is asked.
    """

    async def run() -> None:
        index = await filled(tmp_path, PASSAGES, graph=not seed, writes=bool(seed))
        everything, ids = (await index.adescribe()).chunks, await ids_of(index)
        counts = {PASSAGES["globex"], everything - len(ids["acme"]), everything}
        indexes = ServedIndexes(ServedIndex("index", index.config, open_index=partial(_given, index)))
        callers = {
            None: ServiceContext(indexes),
            **{each: ServiceContext(indexes, Eq("tenant", each), may_write=True) for each in TENANTS},
        }
        calls = Calls(seed, ids)
        recent: list[tuple[Any, Any]] = []
        found = dict.fromkeys(TENANTS, 0)
        for _ in range(CALLS // PARTS):
            if not recent or calls.random.random() < 0.3:
                recent = [*recent[-4:], calls.next()]
            tenant = calls.one((*TENANTS, *TENANTS, None))
            function, request = calls.one(recent)
            try:
                response = await function(callers[tenant], request)
            except RetrievalError as error:
                response = str(error)
            if tenant is not None:
                other = next(each for each in TENANTS if each != tenant)
                check(response, request, other, counts if tenant == "acme" else set())
                found[tenant] += f"{tenant}secret" in repr(response)
        await indexes.aclose()
        assert all(count > CALLS // PARTS / 20 for count in found.values())

    asyncio.run(run())


def _given(index: Index, **_options: object) -> Index:
    return index


def check(response: object, request: object, other: str, counts: set[int]) -> None:
    """No secret word of the other tenant is in a response, no ID but one that was asked for, and no count."""
    told, asked = repr(response), repr(request)
    shown = f"{asked}\n{told}"
    assert f"{other}secret" not in told, shown
    assert all(named in asked for named in re.findall(rf"{other}/\w+", told)), shown
    assert counts.isdisjoint(numbers_of(response)), shown


def numbers_of(value: Any, key: str = "") -> Iterator[int]:
    """Yield all whole numbers of a response, also those in its texts, but for how long things took."""
    if isinstance(value, BaseModel):
        value = value.model_dump()
    elif is_dataclass(value):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
    match value:
        case str():
            for number in re.findall(r"(?<![\d.])\d[\d,]*\b(?!\.\d)", value):
                yield int(number.replace(",", ""))
        case int() if key not in RUN_NUMBERS:
            yield value
        case dict():
            for name, inner in cast("Mapping[str, Any]", value).items():
                yield from numbers_of(inner, name)
        case list() | tuple():
            for inner in cast("Sequence[Any]", value):
                yield from numbers_of(inner, key)
        case _:
            pass
