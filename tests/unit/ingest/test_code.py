"""Source code and structured text: what is read, how it is cut, and what is skipped."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from retrieval_core.errors import UnreadableFileError
from retrieval_core.ingest.readers import is_supported, read_file
from retrieval_core.ingest.readers.base import ParsedDocument
from retrieval_core.ingest.split import ChunkSizes, split_document
from retrieval_core.types import Document

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.types import Chunk

UNKNOWN = """\
import a

LIMIT = 3

// Sends things.
@traced
class Client {
    // Opens it.
    fn open(self) {
        one two three four
    }

    fn close(self) {
        five six seven eight
    }
}

fn last() {
    nine
}
"""


def split(text: str, max_tokens: int, language: str = "unknown", min_tokens: int = 0) -> tuple[Chunk, ...]:
    parsed = ParsedDocument(text=text, markup="code", language=language)
    document = Document(id="d", text=text, source="d", content_hash="")
    return split_document(parsed, document, ChunkSizes(max_tokens, min_tokens), lambda each: len(each.split()))[0]


def test_code_of_any_language_is_cut_by_indentation_and_blank_lines() -> None:
    """Comments and decorators stay with what they are about; a long item is cut between the items in it."""
    chunks = split(UNKNOWN, 24)
    assert [(chunk.section_path, chunk.text.split("\n")[0].strip()) for chunk in chunks] == [
        ((), "import a"),
        (("class Client",), "// Sends things."),
        (("class Client",), "fn close(self) {"),
        (("fn last()",), "fn last() {"),
    ]


def test_small_items_are_joined() -> None:
    """A name alone says little."""
    assert len(split(UNKNOWN, 200, min_tokens=64)) == 1


def test_keys_of_structured_text_are_sections() -> None:
    """YAML without a blank line is cut between keys."""
    values = "\n".join(f"  key{number}:\n    value: {number}" for number in range(12))
    chunks = split(f"kind: App\nspec:\n{values}\nstatus:\n  ready: 1\n", 16 + 12)
    assert {chunk.section_path for chunk in chunks} == {(), ("spec",), ("status",)}
    assert all(not chunk.text.lstrip().startswith("value") for chunk in chunks)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.PY", True),
        ("Dockerfile", True),
        ("Dockerfile.dev", True),
        ("Makefile", True),
        ("README", True),
        ("a", False),
    ],
)
def test_files_are_known_by_their_names(tmp_path: Path, name: str, expected: bool) -> None:
    """Some have no suffix."""
    assert is_supported(tmp_path / name) is expected


def test_a_notebook_has_cells_and_no_outputs(tmp_path: Path) -> None:
    """Prose as it is, code in a fence that it cannot close."""
    cells: list[dict[str, object]] = [
        {"cell_type": "markdown", "source": ["# Title\n", "Prose."]},
        {"cell_type": "code", "source": "print('```')", "outputs": [{"text": "secret output"}]},
        {"cell_type": "code", "source": []},
    ]
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"cells": cells, "metadata": {"language_info": {"name": "python"}}}))
    (document,) = read_file(path)
    assert document.text == "# Title\nProse.\n\n````python\nprint('```')\n````"
    for broken in ("[]", "{", '{"cells": [1]}', '{"cells": 3}'):
        path.write_text(broken)
        with pytest.raises(UnreadableFileError, match="not a Jupyter notebook"):
            list(read_file(path))
