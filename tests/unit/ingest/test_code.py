"""Source code and structured text: what is read, how it is cut, and what is skipped."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.errors import UnreadableFileError
from retrieval_core.ingest.definitions import LANGUAGES, find_definitions
from retrieval_core.ingest.readers import is_supported, read_file
from retrieval_core.ingest.readers.base import ParsedDocument
from retrieval_core.ingest.split import ChunkSizes, split_document
from retrieval_core.types import Document

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from retrieval_core.ingest.definitions import Definition
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


PYTHON = """\
import a


# Sends things.
@traced(
    name="client",
)
class Client:
    \'\'\'The client.\'\'\'

    def open(self):
        one(two, three, four)

    async def send(self):
        five(six, seven, eight)

    LIMIT = 3
"""

SAMPLES = {
    "bash": "foo() {\n  a\n}\nfunction bar {\n  b\n}\n",
    "c": "static int *\nfoo(int a)\n{\n}\nstruct s {\n  int a;\n};\ntypedef struct {\n  int b;\n} t;\n",
    "c-sharp": "namespace A.B {\n  [X]\n  public class C : D {\n    public void M() {\n    }\n  }\n}\n",
    "cpp": "namespace n {\ntemplate <typename T>\nclass A {\n  int m() {\n  }\n};\nint A::z() {\n}\n}\n",
    "go": "package a\n\nfunc F() {\n}\n\nfunc (c *Client[T]) Send(x int) {\n}\ntype T struct {\n  a int\n}\n",
    "java": "@X\npublic class A {\n  @Override\n  public void m() {\n  }\n  enum E {\n    B }\n}\n",
    "javascript": "const g = async () => {\n}\nexport class A {\n  m() {\n  }\n}\nA.h = function () {\n}\n",
    "kotlin": "class A(val x: Int) {\n  fun m() {\n  }\n}\nfun String.f() {\n}\n",
    "lua": "local function f()\nend\nfunction M.g()\nend\n",
    "php": "<?php\nclass B {\n  public function m() {\n  }\n}\nfunction f() {\n}\n",
    "python": "@x(\n  1)\ndef f():\n  pass\nif y:\n  class A:\n    async def g(self):\n      pass\n",
    "ruby": "module A\n  class B < C\n    def self.n(x)\n    end\n  end\nend\n",
    "rust": "#[derive(X)]\npub struct A {\n  x: u8\n}\nimpl<T> Tr for A<T> {\n  fn m(&self) {\n  }\n}\n",
    "scala": "class A {\n  def m() = {\n  }\n}\nobject O {\n  def n = {\n  }\n}\n",
    "swift": "struct A {\n  func m() {\n  }\n}\nextension A: P {\n  func z() {\n  }\n}\n",
    "tsx": "export const App: FC = () => {\n  return <div>\n</div>\n}\n",
    "typescript": "export interface I {\n  a: string\n}\n@Dec()\nexport class A<T> {\n  private m(): void {\n  }\n}\n",
}
DEFINITIONS = {
    "bash": "foo 1-3, bar 4-6",
    "c": "foo 1-4, s 5-7, t 8-10",
    "c-sharp": "A.B 1-7 (C 2-6 (M 4-5))",
    "cpp": "n 1-9 (A 2-6 (m 4-5), A::z 7-8)",
    "go": "F 3-4, Client.Send 6-7, T 8-10",
    "java": "A 1-8 (m 3-5, E 6-7)",
    "javascript": "g 1-2, A 3-6 (m 4-5), A.h 7-8",
    "kotlin": "A 1-4 (m 2-3), f 5-6",
    "lua": "f 1-2, M.g 3-4",
    "php": "B 2-5 (m 3-4), f 6-7",
    "python": "f 1-4, A 6-8 (g 7-8)",
    "ruby": "A 1-6 (B 2-5 (n 3-4))",
    "rust": "A 2-4, A<T> 5-8 (m 6-7)",
    "scala": "A 1-4 (m 2-3), O 5-8 (n 6-7)",
    "swift": "A 1-4 (m 2-3), A 5-8 (z 6-7)",
    "tsx": "App 1-4",
    "typescript": "I 1-3, A 4-8 (m 6-7)",
}


def shown(found: Sequence[Definition]) -> str:
    inner = (f" ({shown(each.inner)})" if each.inner else "" for each in found)
    return ", ".join(f"{each.name} {each.first + 1}-{each.last}{more}" for each, more in zip(found, inner, strict=True))


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_definitions_are_found_by_one_rule_in_all_languages(language: str) -> None:
    """With decorators, owners and what is in them."""
    pytest.importorskip("tree_sitter", reason="needs the extra 'code'")
    assert shown(find_definitions(SAMPLES[language], language)) == DEFINITIONS[language]


def test_symbols_are_sections() -> None:
    """A class that does not fit is cut between its methods; what is between definitions has the path around it."""
    pytest.importorskip("tree_sitter", reason="needs the extra 'code'")
    assert [chunk.section_path for chunk in split(PYTHON, 200, "python")] == [(), ("Client",)]
    assert [(chunk.section_path, chunk.text.split("\n")[0].strip()) for chunk in split(PYTHON, 16, "python")] == [
        ((), "import a"),
        (("Client",), "# Sends things."),
        (("Client", "open"), "def open(self):"),
        (("Client", "send"), "async def send(self):"),
        (("Client",), "LIMIT = 3"),
    ]


def test_broken_code_is_cut_like_any_other() -> None:
    """Nothing of it is lost."""
    chunks = split("def f(:\n  ((\nclass {{\n" + PYTHON, 16, "python")
    assert "".join("".join(chunk.text.split()) for chunk in chunks) == "".join(("def f(:((class {{" + PYTHON).split())


def test_comments_and_closing_brackets_are_not_cut_off() -> None:
    """A long comment is cut between its paragraphs; the line that opens a class goes with the first thing in it."""
    body = "\n".join(f"    call{number}(a);" for number in range(20))
    comment = f"  /**\n   * {'one ' * 9}\n   *\n   * {'two ' * 9}\n   */"
    code = f"""class A {{
{comment}
  void first() {{
{body}
    // Explains the
    /* next
       statement. */
    last();
  }}
  X field = new X() {{
    void inner() {{
{body}
    }}
  }};

  void second() {{
{body}
  }}
}}
"""
    chunks = [chunk.text.strip() for chunk in split(code, 18)]
    assert chunks[0] == f"class A {{\n  /**\n   * {'one ' * 9}".strip()
    assert chunks[1].split("\n")[0] == "*"
    assert "void first()" in chunks[1]
    assert not any(chunk.startswith(("}", "*/", "last")) or chunk.endswith("*/") for chunk in chunks)


CODE_LINES = [
    "def f():",
    "class A {",
    "}",
    "};",
    "x = 1",
    "# a",
    "// b",
    "/*",
    " * c",
    "*",
    "*/",
    "@d",
    '"""',
    "end",
    "",
]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(CODE_LINES)), max_size=30),
    st.sampled_from(["python", "java", "c", "unknown"]),
    st.integers(16, 40),
)
def test_no_line_of_code_is_lost(lines: list[tuple[int, str]], language: str, most: int) -> None:
    """Every character that is no white space is in exactly one chunk, however broken the code is."""
    text = "\n".join("  " * depth + line for depth, line in lines)
    chunks = split(text, most, language) if text.strip() else ()
    assert "".join("".join(chunk.text.split()) for chunk in chunks) == "".join(text.split())
