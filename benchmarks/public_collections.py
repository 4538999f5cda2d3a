"""Makes four BEIR collections of kinds that the usual ones lack, from public material.

``python -m benchmarks collections FOLDER`` makes all of them, in a folder each:

- ``python_code``: code. Functions of Python's standard library; a question is the first sentence of a docstring, which
  the function's passage lacks. Of the Python that runs this (PSF licence).
- ``python_faq``: frequently asked questions. Sections of Python's documentation; a question is a heading of its FAQ,
  and no passage has its own heading (PSF licence).
- ``tables``: tables of Wikipedia in Markdown, and questions that one of them answers (FeTaQA, CC BY-SA 4.0).
- ``languages``: paragraphs in twelve languages, and questions in the paragraph's own one (XQuAD, CC BY-SA 4.0).

The material is looked for in ``--sources``, in folders named as the repositories are: ``FeTaQA`` and ``xquad``, clones
with or without files in them, and ``cpython``, whose ``Doc`` may be a folder alone. What is missing is cloned there.
What is drawn at random is the same in each run. Needs git and the standard library.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import platform
import random
import re
import subprocess
import sys
import sysconfig
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SEED = 21
FUNCTIONS = 5_000
"""Passages of ``python_code``."""
LEAST_LINES = 4
"""Of a function without its docstring."""
LEAST_WORDS = 5
"""Of a question."""
NOT_THE_LIBRARY = {
    "site-packages", "test", "tests", "idle_test", "idlelib", "lib2to3", "turtledemo", "ensurepip", "pydoc_data",
}  # fmt: skip
"""Folders of tests, of programs, and of others' packages."""
QUESTIONS = 400
"""Of each collection, at most."""
LEAST_CHARACTERS = 100
"""Of a section's text."""
LANGUAGES = ("ar", "de", "el", "en", "es", "hi", "ro", "ru", "th", "tr", "vi", "zh")


@dataclass(frozen=True, slots=True)
class Passage:
    """What is found."""

    id: str
    title: str
    text: str


@dataclass(slots=True)
class Made:
    """A collection.

    Attributes:
        source: Where it comes from, with version and licence.
        passages: All of them.
        questions: With the passage that answers each.
    """

    source: str
    passages: list[Passage] = field(default_factory=list[Passage])
    questions: list[tuple[str, Passage]] = field(default_factory=list[tuple[str, Passage]])


@dataclass(frozen=True, slots=True)
class Repository:
    """A public one.

    Attributes:
        url: To clone it from.
        revision: A commit or a tag.
    """

    url: str
    revision: str

    def clone(self, sources: Path) -> Path:
        """Return its folder, cloning it where it is missing."""
        folder = sources / self.url.rpartition("/")[2]
        if not folder.exists():
            print(f"cloning {self.url}", file=sys.stderr, flush=True)
            subprocess.run(["git", "init", "--quiet", folder], check=True)
            fetch = ["git", "-C", folder, "fetch", "--quiet", "--depth", "1", self.url, self.revision]
            subprocess.run(fetch, check=True)
            subprocess.run(["git", "-C", folder, "checkout", "--quiet", "FETCH_HEAD"], check=True)
        return folder

    def read(self, sources: Path, path: str) -> str:
        """Return a file's text."""
        show = ["git", "-C", self.clone(sources), "show", f"{self.revision}:{path}"]
        return subprocess.run(show, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout


CPYTHON = Repository("https://github.com/python/cpython", "v3.11.2")
FETAQA = Repository("https://github.com/Yale-LILY/FeTaQA", "bbc441be807212d736c8c35a18146b530dde11d0")
XQUAD = Repository("https://github.com/google-deepmind/xquad", "7d30520c717524000f0d9d2f9c10a069acd9d285")


def python_code(_: Path) -> Made:
    """Make passages of functions, and questions of the first sentences of docstrings."""
    library = Path(sysconfig.get_path("stdlib"))
    found: list[tuple[Passage, str]] = []
    for file in sorted(library.rglob("*.py")):
        name = file.relative_to(library)
        if not NOT_THE_LIBRARY.intersection(name.parts) and not name.parts[0].startswith("config-"):
            found += functions(file.read_text("utf-8", "replace"), name.as_posix())
    chance = random.Random(SEED)
    found = chance.sample(found, min(FUNCTIONS, len(found)))
    asked = [sentence for _, sentence in found]
    questions = [
        (sentence, passage)
        for passage, sentence in found
        if len(sentence.split()) >= LEAST_WORDS and asked.count(sentence) == 1
    ]
    return Made(
        f"Functions of the standard library of Python {platform.python_version()}, PSF licence",
        [passage for passage, _ in found],
        chance.sample(questions, QUESTIONS),
    )


def functions(source: str, path: str) -> Iterator[tuple[Passage, str]]:
    """Yield each function that is long enough, with the first sentence of its docstring, or ``""``."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            rows = [*range(node.lineno, (node.end_lineno or node.lineno) + 1)]
            docstring = ast.get_docstring(node) or ""
            if docstring:
                told = node.body[0]
                rows = [row for row in rows if not told.lineno <= row <= (told.end_lineno or told.lineno)]
            if len(rows) >= LEAST_LINES and rows[0] == node.lineno:
                code = textwrap.dedent("\n".join(lines[row - 1] for row in rows))
                paragraph = " ".join(docstring.split("\n\n")[0].split())
                sentence = re.split(r"(?<=[.?!])\s", paragraph)[0]
                yield Passage(f"{path}:{node.lineno}", path, code), sentence


def python_faq(sources: Path) -> Made:
    """Make passages of sections, and questions of the headings of the FAQ."""
    documentation = CPYTHON.clone(sources) / "Doc"
    made = Made(f"Documentation of Python {CPYTHON.revision[1:]}, PSF licence, {CPYTHON.url}")
    for file in sorted(documentation.rglob("*.rst*")):
        name = file.relative_to(documentation).as_posix().removesuffix(".txt")
        if "/" not in name or name.startswith("whatsnew/"):
            continue
        title = ""
        for number, (heading, text) in enumerate(sections(file.read_text("utf-8"))):
            title = title or heading
            if len(text) >= LEAST_CHARACTERS:
                passage = Passage(f"{name}:{number}", title, text)
                made.passages.append(passage)
                if name.startswith("faq/") and heading.endswith("?"):
                    made.questions.append((heading, passage))
    return made


def sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield the sections of a file in reStructuredText as their heading and what is below it, without directives."""
    heading, lines = "", list[str]()
    rows = text.splitlines()
    for number, row in enumerate(rows):
        following = rows[number + 1] if number + 1 < len(rows) else ""
        is_heading = row.strip() and re.fullmatch(r"([=\-~*^\"#+.])\1{2,}", following) and len(following) >= len(row)
        if is_heading and not re.match(r"\W*$", row):
            yield heading, prose(lines)
            heading, lines = row.strip().replace("``", ""), []
        elif not re.fullmatch(r"([=\-~*^\"#+.])\1{2,}", row):
            lines.append(row)
    yield heading, prose(lines)


def prose(lines: Sequence[str]) -> str:
    """Return text without what is not shown: labels, comments, and entries of the index."""
    text = "\n".join(lines)
    text = re.sub(
        r"(?m)^\.\. (?:_|index::|only::|sectionauthor::|moduleauthor::|XXX)[^\n]*\n(?:[ \t]+[^\n]+\n)*", "", text
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def tables(sources: Path) -> Made:
    """Make passages of tables, and questions."""
    made = Made(f"FeTaQA, development and test set, CC BY-SA 4.0, {FETAQA.url} at {FETAQA.revision}")
    known: dict[str, Passage] = {}
    for part in ("dev", "test"):
        for line in FETAQA.read(sources, f"data/fetaQA-v1_{part}.jsonl").splitlines():
            item: dict[str, Any] = json.loads(line)
            title = ": ".join(filter(None, (item["table_page_title"], item["table_section_title"])))
            head, *rows = ("| " + " | ".join(row) + " |" for row in item["table_array"])
            text = "\n".join([head, "|---" * len(item["table_array"][0]) + "|", *rows])
            name = hashlib.sha256(f"{title}\n{text}".encode()).hexdigest()[:16]
            passage = known.setdefault(name, Passage(name, title, text))
            made.questions.append((item["question"], passage))
    made.passages = [*known.values()]
    made.questions = random.Random(SEED).sample(made.questions, QUESTIONS)
    return made


def languages(sources: Path) -> Made:
    """Make passages of paragraphs, and as many questions in each language."""
    made = Made(f"XQuAD, CC BY-SA 4.0, {XQUAD.url} at {XQUAD.revision}")
    chance = random.Random(SEED)
    for language in LANGUAGES:
        asked: list[tuple[str, Passage]] = []
        data: list[dict[str, Any]] = json.loads(XQUAD.read(sources, f"xquad.{language}.json"))["data"]
        paragraphs = [paragraph for article in data for paragraph in article["paragraphs"]]
        for number, paragraph in enumerate(paragraphs):
            passage = Passage(f"{language}-{number}", "", paragraph["context"])
            made.passages.append(passage)
            asked += [(item["question"], passage) for item in paragraph["qas"]]
        made.questions += chance.sample(asked, QUESTIONS // len(LANGUAGES))
    return made


COLLECTIONS: dict[str, Callable[[Path], Made]] = {
    "python_code": python_code,
    "python_faq": python_faq,
    "tables": tables,
    "languages": languages,
}


def write(made: Made, folder: Path) -> None:
    """Write a collection as BEIR's files, and SOURCE.md."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    passages = [{"_id": item.id, "title": item.title, "text": item.text} for item in made.passages]
    questions = [{"_id": f"q{number}", "text": text} for number, (text, _) in enumerate(made.questions)]
    for name, items in (("corpus", passages), ("queries", questions)):
        lines = (json.dumps(item, ensure_ascii=False) + "\n" for item in items)
        (folder / f"{name}.jsonl").write_text("".join(lines), "utf-8")
    judged = [f"q{number}\t{passage.id}\t1\n" for number, (_, passage) in enumerate(made.questions)]
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(judged), "utf-8")
    (folder / "SOURCE.md").write_text(f"{made.source}.\nMade by `python -m benchmarks collections`.\n", "utf-8")
    print(f"{folder}: {len(passages):,} passages, {len(questions):,} questions")


def main(argv: Sequence[str]) -> int:
    """Make the collections, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks collections",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="where each gets a folder")
    parser.add_argument("--sources", type=Path, metavar="FOLDER", help="with the material; FOLDER/sources by default")
    parser.add_argument("--names", nargs="+", choices=COLLECTIONS, default=[*COLLECTIONS], metavar="NAME")
    options = parser.parse_args(argv)
    sources: Path = options.sources or options.folder / "sources"
    sources.mkdir(parents=True, exist_ok=True)
    for name in options.names:
        write(COLLECTIONS[name](sources), options.folder / name)
    return 0
