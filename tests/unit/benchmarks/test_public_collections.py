"""The collections that are made of public material: what becomes a passage, and what a question."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest
from benchmarks import __main__ as command
from benchmarks import public_collections as made
from benchmarks.public_collections import Repository, functions, sections

from retrieval_core.evaluate import load_collection

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = '''
class Bird:
    @property
    def song(self):
        """Return what it sings.  In the morning
        alone.

        More.
        """
        if self.asleep:
            return None
        return self.notes

    def short(self):
        """Return nothing of all that."""
        return None

    async def plain(self, a):
        b = a
        c = b
        return c
'''

PAGE = """\
.. _birds:

=====
Birds
=====

.. index::
   single: birds

{long}

Where do *rooks* live?
----------------------

.. XXX say more

{long} Rooks.

::

   ---- no heading
"""


def test_a_function_is_a_passage_without_its_docstring() -> None:
    """Its first sentence is the question; what is too short is left out."""
    (song, asked), (plain, nothing) = functions(SOURCE, "birds.py")
    assert asked == "Return what it sings."
    assert nothing == ""
    assert song.text.startswith("def song(self):\n    if self.asleep:")
    assert "sings" not in song.text
    assert plain.text.startswith("async def plain")
    assert (song.id, song.title) == ("birds.py:4", "birds.py")


def test_a_section_is_a_passage_without_its_heading() -> None:
    """Nor has it labels, comments, and entries of the index."""
    long = "Much is said of birds. " * 5
    (_, above), (title, first), (heading, second) = sections(PAGE.format(long=long))
    assert (above, title, first) == ("", "Birds", long.strip())
    assert heading == "Where do *rooks* live?"
    assert second.startswith("Much")
    assert second.endswith("---- no heading")


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Stand-ins for the repositories, with a bare one among them."""
    place = tmp_path / "sources"
    faq = place / "cpython/Doc/faq"
    faq.mkdir(parents=True)
    (faq / "birds.rst.txt").write_text(PAGE.format(long="Much is said of birds. " * 5), "utf-8")
    (place / "cpython/Doc/index.rst").write_text(PAGE.format(long="Not a page of a folder. " * 5), "utf-8")
    work = tmp_path / "work"
    (work / "data").mkdir(parents=True)
    table = {
        "table_page_title": "Rooks", "table_section_title": "Nests", "table_array": [["Year", "Nests"], ["1999", "3"]],
    }  # fmt: skip
    for part in ("dev", "test"):
        item = {**table, "question": f"How many nests, {part}?"}
        (work / f"data/fetaQA-v1_{part}.jsonl").write_text(json.dumps(item) + "\n", "utf-8")
    git = ("git", "-C", str(work), "-c", "user.name=n", "-c", "user.email=e@example.org")
    for line in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "m")):
        subprocess.run([*git, *line], check=True)
    subprocess.run(["git", "clone", "-q", "--bare", str(work), str(place / "FeTaQA")], check=True)
    return place


def test_collections_can_be_evaluated(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that two questions are about is one passage; a page's title is that of its sections."""
    monkeypatch.setattr(made, "FETAQA", Repository("https://example.org/FeTaQA", "HEAD"))
    monkeypatch.setattr(made, "QUESTIONS", 2)
    names = ["tables", "python_faq"]
    assert command.main(["collections", str(tmp_path), "--sources", str(sources), "--names", *names]) == 0
    tables, faq = (load_collection(tmp_path / name) for name in names)
    (table,) = tables.documents()
    assert (table.title, table.text) == ("Rooks: Nests", "| Year | Nests |\n|---|---|\n| 1999 | 3 |")
    assert {frozenset(grades) for grades in tables.judgements.values()} == {frozenset({table.id})}
    assert sorted(tables.queries.values()) == ["How many nests, dev?", "How many nests, test?"]
    assert [(document.id, document.title) for document in faq.documents()] == [
        ("faq/birds.rst:1", "Birds"),
        ("faq/birds.rst:2", "Birds"),
    ]
    assert faq.judgements == {"q0": {"faq/birds.rst:2": 1}}
    assert "CC BY-SA 4.0" in (tmp_path / "tables/SOURCE.md").read_text("utf-8")
