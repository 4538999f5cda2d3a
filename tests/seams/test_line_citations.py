"""Citations as ``path:lines``: from search, context and answers, and back to the text with fetch and verify."""

from __future__ import annotations

import asyncio
import os
import random
import re
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import RetrievalConfig, format_citation, open_index
from retrieval_core.errors import NotFoundError
from retrieval_core.service.checking import QuoteRequest, verify_quote
from retrieval_core.service.passages import PassagesRequest, read_passages
from retrieval_core.service.reading import ReadRequest, read
from retrieval_core.service.served import OpenedIndex, ServedIndexes
from retrieval_core.service.service_context import ServiceContext
from retrieval_core.types.filters import Eq
from support.extras import needs_tokenizer
from support.pdf_files import make_chapters

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from retrieval_core import Index
    from retrieval_core.types import Quote

WORDS = ("boiler", "valve", "pump", "motor", "wheel", "clutch", "piston", "gasket", "rotor", "nozzle", "bearing")
CITATION = re.compile(r"Doc: (.+):(\d+)(?:-(\d+))?(?: \| .*)?")
LATER = 4_000_000_000.0


def made_text(rng: random.Random, suffix: str) -> str:
    """Return a text of sections, lists, code and blank lines."""
    lines = rng.choice(([], ["---", "title: A part", "---"], ["", ""])) if suffix == ".md" else []
    for number in range(rng.randint(3, 12)):
        words = " ".join(rng.choices(WORDS, k=rng.randint(3, 20)))
        lines += rng.choice(
            (
                [f"# Part {number}", "", f"The {words}."],
                [f"The {words}.", f"It has a {words}.", ""],
                ["```", f"run {words}", "", "    end", "```"],
                [f"- {words}", f"- the {words}", "", ""],
            )
        )
    return rng.choice(("\n", "\r\n")).join([*lines, "The end of it."])


def served(folder: Path, work: Callable[[Index, ServiceContext], Coroutine[Any, Any, Any]], **caller: Any) -> Any:
    """Return what some work on the index of a folder returns."""
    settings = {"index": str(folder / "index.db"), "embedder": {"kind": "none"}, "search": {"mode": "lexical"}}
    settings |= {"chunking": {"max_tokens": 64, "min_tokens": 16}}
    config = RetrievalConfig.model_validate(settings)

    async def run() -> Any:
        async with open_index(config=config) as index:
            return await work(index, ServiceContext(ServedIndexes(OpenedIndex(index)), **caller))

    return asyncio.run(run())


async def read_text(context: ServiceContext, name: str, **options: Any) -> str:
    return (await read(context, ReadRequest(id=name, **options))).text


async def cited(index: Index, query: str) -> list[tuple[str, list[tuple[str, tuple[int, int] | None]]]]:
    """Return the citations of a query, in all forms, with what each one cites and its own lines."""

    def of(quotes: tuple[Quote, ...]) -> list[tuple[str, tuple[int, int] | None]]:
        return [(quote.text, quote.lines) for quote in quotes]

    found = [(format_citation(hit.chunk), [(hit.chunk.text, hit.lines)]) for hit in (await index.aretrieve(query)).hits]
    pack, answer = await index.acontext(query), await index.aanswer(query)
    citations = (*(passage.citation for passage in pack.passages), *answer.sources)
    return [*found, *((format_citation(citation), of(citation.quotes)) for citation in citations)]


@needs_tokenizer
@pytest.mark.parametrize("seed", range(3))
def test_citations_are_right_before_and_after_edits(tmp_path: Path, seed: int) -> None:
    """Lines are those of the indexed text. After an edit verify says that the file changed."""
    rng = random.Random(seed)
    folder = tmp_path / "docs"
    folder.mkdir()
    paths = [folder / f"{number}{rng.choice(('.md', '.txt'))}" for number in range(8)]
    for path in paths:
        path.write_bytes(made_text(rng, path.suffix).encode(rng.choice(("utf-8", "utf-8-sig"))))

    def lines_now() -> dict[str, list[str]]:
        return {f"docs/{path.name}": path.read_text("utf-8-sig").split("\n") for path in paths}

    async def check(index: Index, context: ServiceContext, files: dict[str, list[str]], changed: set[str]) -> int:
        checked = 0
        for query in ("boiler valve", "the clutch of a pump", "end", "piston gasket rotor"):
            for line, texts in await cited(index, query):
                found = CITATION.fullmatch(line)
                assert found is not None, line
                name, first, last = found[1], int(found[2]), int(found[3] or found[2])
                place = f"{name}:{first}-{last}"
                assert (await read_text(context, place)).split("\n") == files[name][first - 1 : last]
                for text, own in texts:
                    assert own is not None
                    assert first <= own[0] <= own[1] <= last
                    assert text.strip() in "\n".join(files[name][own[0] - 1 : own[1]])
                    assert own[1] - own[0] == text.strip().count("\n")
                    response = await verify_quote(context, QuoteRequest(id=place, quote=text))
                    assert (response.is_cited, response.verdict, response.where) == (True, "exact", "passage")
                    assert response.file_changed is (name in changed)
                    checked += 1
        return checked

    async def work(index: Index, context: ServiceContext) -> int:
        await index.aingest(folder)
        files = lines_now()
        checked = await check(index, context, files, set())
        changed = {f"docs/{path.name}" for path in paths[::2]}
        for path in paths[::2]:
            lines = path.read_text("utf-8-sig").split("\n")
            place = rng.randint(0, len(lines))
            lines[place : place + rng.randint(0, 2)] = ["A new line."] * rng.randint(1, 4)
            path.write_text("\n".join(lines))
            os.utime(path, (LATER, LATER))
        checked += await check(index, context, files, changed)
        for path in paths:
            os.utime(path, (0, 0))
        await index.aingest(folder)
        return checked + await check(index, context, lines_now(), set())

    assert served(tmp_path, work) > 100


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "docs/sub").mkdir(parents=True)
    (tmp_path / "docs/moon.md").write_text(
        "---\ntitle: Moon\n---\n# Moon\n\nIt is far.\nIt has no air.\n\nIt is round.\n"
    )
    (tmp_path / "docs/sub/sun.md").write_text("# Sun\n\nIt is hot.\n")
    (tmp_path / "docs/sub/moon.md").write_text("# Another moon\n\nIt is near.\n")
    (tmp_path / "docs/rows.csv").write_text("text\nA lamp.\n")
    served(tmp_path, lambda index, _: index.aingest(tmp_path / "docs"))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "options", "location", "text"),
    [
        ("docs/moon.md:6", {}, "docs/moon.md:6", "It is far."),
        ("docs/moon.md:6-7", {}, "docs/moon.md:6-7", "It is far.\nIt has no air."),
        ("docs/moon.md:6", {"lines_around": 1}, "docs/moon.md:5-7", "\nIt is far.\nIt has no air."),
        ("docs/moon.md:9-400", {}, "docs/moon.md:9", "It is round."),
        ("docs/moon.md:7-", {}, "docs/moon.md:7-9", "It has no air.\n\nIt is round."),
        ("sun.md:1-", {}, "docs/sub/sun.md:1-3", "# Sun\n\nIt is hot."),
        ("./docs/moon.md:4", {}, "docs/moon.md:4", "# Moon"),
        ("docs\\sub\\sun.md:3", {}, "docs/sub/sun.md:3", "It is hot."),
        ("sun.md:3", {}, "docs/sub/sun.md:3", "It is hot."),
        ("sun.md", {}, "docs/sub/sun.md:1-3", "# Sun\n\nIt is hot.\n"),
        ("docs/sub/sun.md#0:3", {}, "docs/sub/sun.md:3", "It is hot."),
        ("docs/sub/sun.md#0", {"lines_around": 9}, "docs/sub/sun.md:1-3", "# Sun\n\nIt is hot."),
        ("docs/rows.csv#1", {}, "docs/rows.csv#1", "A lamp."),
    ],
)
def test_names_that_are_understood(folder: Path, name: str, options: Any, location: str, text: str) -> None:
    found = served(folder, lambda _, context: read(context, ReadRequest(id=name, **options)))
    assert (found.location, found.text) == (location, text)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("moon.md", "2 documents end with it: docs/moon.md, docs/sub/moon.md. Pass one of them"),
        ("docs/moon.md:70", "it has lines 4 to 9; lines 1 to 3 are in its metadata"),
        ("docs/moon.md:2", "it has lines 4 to 9; lines 1 to 3 are in its metadata"),
        ("docs/moon.md:70-", "it has lines 4 to 9"),
        ("docs/moon.md:7-6", "it has lines 4 to 9"),
        ("docs/rows.csv#1:2", "table rows have none"),
        ("other/sun.md:3", "there is docs/sub/sun.md"),
        ("docs/moon.md#99", "Search again, or read docs/moon.md"),
        ("nowhere.md", "not found"),
    ],
)
def test_names_that_are_not_understood(folder: Path, name: str, told: str) -> None:
    with pytest.raises(NotFoundError, match=re.escape(told)):
        served(folder, lambda _, context: read(context, ReadRequest(id=name)))


def test_several_texts_at_once(folder: Path) -> None:
    request = PassagesRequest(ids=("docs/**/*.md", "docs/moon.md:6", "docs/none.md"))
    found = served(folder, lambda _, context: read_passages(context, request)).passages
    assert [each.location for each in found] == [
        "docs/moon.md:4-9",
        "docs/sub/moon.md:1-3",
        "docs/sub/sun.md:1-3",
        "docs/moon.md:6",
        None,
    ]
    assert [each.error is None for each in found] == [True] * 4 + [False]


def test_a_quote_elsewhere_is_located(folder: Path) -> None:
    """Wrong lines are no failure of the quote: the response says where it is."""
    request = QuoteRequest(id="docs/moon.md:4-5", quote="It has no air.")
    found = served(folder, lambda _, context: verify_quote(context, request))
    assert (found.is_cited, found.verdict, found.where, found.location) == (
        False,
        "exact",
        "document",
        "docs/moon.md:7",
    )


def test_lines_of_another_tenant_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for name, tenant in (("a.md", "acme"), ("b.md", "globex")):
        (tmp_path / "docs" / name).write_text(f"---\ntenant: {tenant}\n---\nA secret of {tenant}.\n")
    served(tmp_path, lambda index, _: index.aingest(tmp_path / "docs"))
    tenant = {"tenant": Eq("tenant", "acme")}
    assert served(tmp_path, lambda _, context: read_text(context, "a.md:4"), **tenant) == "A secret of acme."
    for name in ("docs/b.md:4", "b.md", "docs/b.md", "other/b.md"):
        with pytest.raises(NotFoundError) as raised:
            served(tmp_path, lambda _, context, name=name: read(context, ReadRequest(id=name)), **tenant)
        assert raised.value.reason is None
    request = PassagesRequest(ids=("docs/*.md",))
    found = served(tmp_path, lambda _, context: read_passages(context, request), **tenant)
    assert [each.location for each in found.passages] == ["docs/a.md:4"]


def test_pages_are_read_and_cited_by_their_numbers(tmp_path: Path) -> None:
    """A page has the text of its chunks, with their lines."""
    (tmp_path / "docs").mkdir()
    make_chapters(tmp_path / "docs/guide.pdf", 3)
    (tmp_path / "docs/moon.md").write_text("# Moon\n\nIt is far.\n")

    async def check(index: Index, context: ServiceContext) -> None:
        await index.aingest(tmp_path / "docs")
        found = await read(context, ReadRequest(id="guide.pdf:p2"))
        assert found.text.startswith("# Chapter 2\n\nRow 0 of page 2")
        assert found.text.endswith("has the valve number 27.")
        assert await read_text(context, found.location) == found.text
        assert "page 3" in await read_text(context, "docs/guide.pdf:p2-3")
        assert await read_text(context, "guide.pdf:p2-") == await read_text(context, "guide.pdf:p2-3")
        for quote, where in (("Row 7 of page 2", "passage"), ("Row 7 of page 3", "document")):
            response = await verify_quote(context, QuoteRequest(id="guide.pdf:p2", quote=quote))
            assert (response.verdict, response.where) == ("exact", where)
        for name, reason in (("guide.pdf:p4", "last page with text is 3"), ("moon.md:p1", "no pages")):
            with pytest.raises(NotFoundError, match=reason):
                await read(context, ReadRequest(id=name))

    served(tmp_path, check)
