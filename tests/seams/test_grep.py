"""Searching for patterns, as Python, the command line, the MCP server and the HTTP service do it."""

from __future__ import annotations

import os
import re
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("re2", reason="the extra grep")

from retrieval_core import Chunk, Document, load_config, open_index
from retrieval_core.adapters.stores.sqlite import trigrams
from retrieval_core.errors import FilterError, InvalidParameterError, UnsupportedError
from retrieval_core.ports import Capability
from support.redos_patterns import REDOS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retrieval_core import Index, RetrievalConfig
    from retrieval_core.types import GrepResult

PATTERNS = int(os.environ.get("GREP_PATTERNS", "300"))
"""Random patterns; 10,000 before a release."""
EVERY_CHECK = [HealthCheck(check) for check in HealthCheck]

GUIDE = "# Setup\n\nInstall the tool.\nSet `max_body_size` to 10.\n\n# Errors\n\nError: max_body_size exceeded\n"
NOTES = "max_body_size again\nMAX_BODY_SIZE\nunmax_body_sized\nÜber Größe\n"


def found(result: GrepResult) -> list[tuple[str, list[int]]]:
    """Return the numbers of the matching lines of each document."""
    return [(each.id, [line.number for line in each.lines if line.is_match]) for each in result.documents]


def lines_of(index: Index, pattern: str, **arguments: Any) -> list[tuple[str, int]]:
    """Return the document and number of each matching line, of all pages: a busy machine may need several."""
    lines: list[tuple[str, int]] = []
    cursor = None
    while True:
        page = index.grep(pattern, cursor=cursor, **arguments)
        lines += [(name, number) for name, numbers in found(page) for number in numbers]
        if (cursor := page.next_cursor) is None:
            return lines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with files."""
    place = tmp_path / "files"
    (place / "docs").mkdir(parents=True)
    (place / "docs" / "guide.md").write_text(GUIDE)
    (place / "notes.txt").write_text(NOTES)
    return place


@pytest.fixture
def index(folder: Path) -> Iterator[Index]:
    """Index the folder."""
    with open_index(folder / "index.db", config=_config()) as opened:
        opened.ingest(folder)
        yield opened


def _config(store: str = "sqlite") -> RetrievalConfig:
    return load_config(overrides={"embedder.kind": "none", "store.kind": store})


@pytest.mark.parametrize(
    ("pattern", "arguments", "expected"),
    [
        ("max_body_size", {}, [("docs/guide.md", [4, 8]), ("notes.txt", [1, 2, 3])]),
        ("MAX_body_size", {"ignore_case": True}, [("docs/guide.md", [4, 8]), ("notes.txt", [1, 2, 3])]),
        ("MAX_BODY_SIZE", {}, [("notes.txt", [2])]),
        ("max_body_size", {"ignore_case": False, "path": "notes"}, [("notes.txt", [1, 3])]),
        ("max_body_size", {"word": True, "path": "*.txt"}, [("notes.txt", [1, 2])]),
        ("größe", {}, [("notes.txt", [4])]),
        ("größ", {"word": True}, []),
        (r"^Error: \w+ exceeded$", {}, [("docs/guide.md", [8])]),
        (r"\AError|^max\w+ again\Z", {}, [("docs/guide.md", [8]), ("notes.txt", [1])]),
        ("`max_body_size` to 10.", {"literal": True}, [("docs/guide.md", [4])]),
        ("[.*", {"literal": True}, []),
        ("max_body_size", {"path": "docs/*.md"}, [("docs/guide.md", [4, 8])]),
        ("max_body_size", {"filters": {"source": "notes.txt"}}, [("notes.txt", [1, 2, 3])]),
        ("^$", {"path": "guide.md"}, [("docs/guide.md", [2, 5, 7])]),
    ],
)
def test_lines_are_those_of_the_file(
    index: Index, pattern: str, arguments: dict[str, Any], expected: list[tuple[str, list[int]]]
) -> None:
    assert lines_of(index, pattern, **arguments) == [(name, number) for name, numbers in expected for number in numbers]


def test_context_files_counts_and_pages(index: Index) -> None:
    lines = index.grep("Install|Set", context=1, path="guide.md").documents[0].lines
    assert [(line.number, line.text, line.is_match) for line in lines] == [
        (1, "# Setup", True),
        (2, "", False),
        (3, "Install the tool.", True),
        (4, "Set `max_body_size` to 10.", True),
        (5, "", False),
    ]
    assert [each.id for each in index.grep("max", output="files").documents] == ["docs/guide.md", "notes.txt"]
    assert [(each.id, each.count) for each in index.grep("max", output="counts").documents] == [
        ("docs/guide.md", 2),
        ("notes.txt", 3),
    ]
    assert lines_of(index, "max", limit=2) == [
        ("docs/guide.md", 4),
        ("docs/guide.md", 8),
        *(("notes.txt", number) for number in (1, 2, 3)),
    ]


def test_a_long_line_is_cut_around_its_match(index: Index) -> None:
    index.add_documents([Document("long.txt", "a" * 5000 + "needle" + "b" * 5000)])
    line = index.grep("needle").documents[0].lines[0].text
    assert len(line) < 400
    assert re.fullmatch("…a+needleb+…", line)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("a(?=b)", "no lookaround, backreferences"),
        (r"(a)\1", "no lookaround, backreferences"),
        ("a++", "possessive quantifiers"),
        ("a{2000}", "at most 1,000 times"),
        ("a(", "set literal"),
        ("a\nb", "match within lines"),
        (r"a\nb", "match within lines"),
        ("", "1 to 1000 characters"),
        ("a\ud800", "lone surrogate"),
        ("a" * 1001, "1 to 1000 characters"),
    ],
)
def test_what_the_engine_lacks_is_a_clear_error(index: Index, pattern: str, said: str) -> None:
    with pytest.raises(InvalidParameterError, match=re.escape(said)):
        index.grep(pattern)


@pytest.mark.parametrize(
    "arguments",
    [
        {"context": -1},
        {"context": 21},
        {"limit": 0},
        {"limit": 1001},
        {"output": "all"},
        {"cursor": "x"},
        {"cursor": "é.1"},
    ],
)
def test_arguments_out_of_range_are_refused(index: Index, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError):
        index.grep("max", **arguments)
    with pytest.raises(FilterError):
        index.grep("max", filters={"year": {"$near": 1}})


ALPHABET = "abcABC12_ -.,xyz"
LINES = [
    "".join(
        ALPHABET[(seed * 7919 + place * (seed % 13 + 3) + place * place) % len(ALPHABET)]
        for place in range(seed % 12 + 1)
    )
    for seed in range(240)
]


def _patterns() -> st.SearchStrategy[str]:
    def piece(line: str, at: int, size: int) -> str:
        return re.escape(line[at : at + size])

    def group(head: str, body: str, times: str) -> str:
        return f"{head}{body}){'?' if re.search('[*+{]', body) and times else times}"

    literals = st.sampled_from(ALPHABET).map(re.escape)
    pieces = st.builds(
        piece,
        st.sampled_from(LINES),
        st.integers(0, 9),
        st.integers(1, 5),
    ).filter(bool)
    atoms = st.one_of(
        literals,
        pieces,
        st.sampled_from(
            [".", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", "[a-c]", "[^a-c]", "[A-C1_]", r"[\w.]", r"[^\s-]", "[]a]"]
        ),
    )
    anchors = st.sampled_from(["^", "$", r"\b", r"\B", r"\A", ""])
    quantifiers = st.sampled_from(["", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,3}", "{0,2}?", "{2,}"])

    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        groups = st.builds(
            group,
            st.sampled_from(["(", "(?:", "(?P<name>", "(?i:"]),
            st.lists(inner, min_size=1, max_size=3).map("|".join),
            quantifiers,
        )
        return st.lists(st.one_of(inner, groups), min_size=1, max_size=3).map("".join)

    repeated = st.builds(str.__add__, atoms, quantifiers)
    return st.builds("{}{}{}".format, anchors, st.recursive(repeated, larger, max_leaves=6), anchors)


@pytest.fixture(scope="module")
def lines_index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    """Index lines, six to a document."""
    with open_index(tmp_path_factory.mktemp("lines") / "index.db", config=_config()) as opened:
        opened.add_documents([Document(f"{at:04}", "\n".join(LINES[at : at + 6])) for at in range(0, len(LINES), 6)])
        yield opened


@settings(max_examples=PATTERNS, deadline=None, suppress_health_check=EVERY_CHECK)
@given(_patterns(), st.booleans())
def test_random_patterns_match_what_python_matches(lines_index: Index, pattern: str, ignore_case: bool) -> None:
    try:
        expected = re.compile(pattern, re.ASCII | (re.IGNORECASE if ignore_case else 0))
    except re.error:
        return
    try:
        lines = lines_of(lines_index, pattern, ignore_case=ignore_case, limit=1000)
    except InvalidParameterError:
        assert "(?P<name>" in pattern  # twice, in alternatives that Python takes for one
        return
    wanted = [(at - at % 6, at % 6 + 1) for at, line in enumerate(LINES) if expected.search(line)]
    assert [(int(name), number) for name, number in lines] == wanted


def test_patterns_that_explode_elsewhere_are_answered() -> None:
    refused: list[str] = []
    with open_index(config=_config("memory")) as index:
        index.add([Chunk(f"{at}#0", str(at), text) for at, (_, text) in enumerate(REDOS)])
        for at, (pattern, text) in enumerate(REDOS):
            try:
                lines = lines_of(index, pattern, filters={"document_id": str(at)})
            except InvalidParameterError:
                refused.append(pattern)
            else:
                assert not lines or not text.isalpha(), pattern
    assert all("{" in pattern for pattern in refused), refused


def test_an_index_of_an_older_version_has_its_lines_found(index: Index, folder: Path) -> None:
    expected = found(index.grep("max_body_size"))
    path = folder / "index.db"
    with sqlite3.connect(path) as file:
        file.execute("DROP TABLE trigrams")
        file.execute("DELETE FROM manifest WHERE key = 'trigrams'")
    assert found(index.grep("max_body_size")) == expected
    index.add_documents([Document("new", "no max_body_size here")])
    assert found(index.grep("max_body_size")) == [*expected[:1], ("new", [1]), *expected[1:]]
    with sqlite3.connect(path) as file:
        assert trigrams.is_current(file)


ODD = "abK\u212a\u017fsSß\0\"' é"


@settings(max_examples=60, deadline=None, suppress_health_check=EVERY_CHECK)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.text("abK\u212a\u017fsSß\0\"' é", max_size=12)), min_size=1, max_size=6
    ),
    st.text("abKk\u017fs\"' é", min_size=1, max_size=5),
)
def test_no_document_with_the_text_is_left_out(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[str, str]], wanted: str
) -> None:
    with open_index(tmp_path_factory.mktemp("writes") / "index.db", config=_config()) as index:
        for name, text in writes:
            index.add_documents([Document(name, text)])
        for is_deleted in (False, True):
            texts = dict(writes)
            if is_deleted:
                index.delete(writes[0][0])
                del texts[writes[0][0]]
            result = index.grep(wanted, literal=True, ignore_case=False, output="files")
            assert [each.id for each in result.documents] == sorted(name for name in texts if wanted in texts[name])
            insensitive = index.grep(wanted, literal=True, ignore_case=True, output="files")
            folded = {each.id for each in insensitive.documents}
            assert folded >= {name for name in texts if wanted.lower() in texts[name].lower()}


def test_with_a_filter_only_the_text_of_its_chunks_is_searched(tmp_path: Path) -> None:
    with open_index(tmp_path / "index.db", config=_config()) as index:
        index.add_documents([Document("both", "alpha secret\nbeta public", metadata={"team": "x"})])
        index.add(
            [
                Chunk("own#0", "own", "a secret line", metadata={"team": "red"}),
                Chunk("own#1", "own", "a public line", metadata={"team": "blue"}),
            ]
        )
        assert found(index.grep("secret")) == [("both", [1]), ("own", [1])]
        assert found(index.grep("line", filters={"team": "blue"})) == [("own", [1])]
        assert found(index.grep("secret", filters={"team": "blue"})) == []
        assert found(index.grep("secret|public", filters={"team": "x"})) == [("both", [1, 2])]


def test_a_store_that_cannot_list_its_documents_says_so(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(index.store), "capabilities", frozenset[Capability]())
    with pytest.raises(UnsupportedError, match="can't list"):
        index.grep("max")
