"""Long files of every shape: what reading and splitting one costs, and one twice as long.

``python benchmarks/long_files.py [TIMES]`` makes texts that a parser or splitter could take quadratic time for, and
prints CPU seconds at each of both lengths, and their ratio: 2 is linear. With TIMES, texts are so many times as long.
What is called writing is one change of a SQLite store. The last line is a Word document. Needs the extra ``documents``.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import TYPE_CHECKING
from zipfile import ZIP_DEFLATED, ZipFile

from retrieval_core.adapters.stores.sqlite import SqliteStore
from retrieval_core.ingest.readers import read_file
from retrieval_core.ingest.readers.base import ParsedDocument
from retrieval_core.ingest.split import ChunkSizes, split_document
from retrieval_core.ports import Change
from retrieval_core.types import Document

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrieval_core.types import Chunk, Section

MIB = 1 << 20
SHAPES: dict[str, Callable[[int], str]] = {
    "5,000 headings with text": lambda n: "".join(f"# Heading {at}\n\nsome text\n\n" for at in range(5_000 * n)),
    "5,000 headings alone": lambda n: "# Heading\n" * (5_000 * n),
    "800 headings six deep": lambda n: "# a\n## b\n### c\n#### d\n##### e\n###### f\n\nx\n\n" * (800 * n),
    "1 MiB in one line": lambda n: "some words " * (n * MIB // 11),
    "1 MiB in one paragraph of lines": lambda n: "some words in a line\n" * (n * MIB // 21),
    "1 MiB without white space": lambda n: "x" * (n * MIB),
    "1 MiB of one list": lambda n: "- an item of a list\n" * (n * MIB // 20),
    "one table of 8,000 rows": lambda n: "|a|b|\n|-|-|\n" + "|some|cells|\n" * (8_000 * n),
    "2,000 tables": lambda n: "|a|b|\n|-|-|\n|c|d|\n\n" * (2_000 * n),
    "8,000 lines of code": lambda n: "```\n" + "a line of code\n" * (8_000 * n) + "```\n",
    "8,000 paragraphs": lambda n: "some words\n\n" * (8_000 * n),
    "5,000 quotations": lambda n: "> some words\n\n" * (5_000 * n),
    "5,000 definitions of links": lambda n: "[a]: b\n" * (5_000 * n),
    "200,000 blank lines": lambda n: ("\n" * 50 + "1") * (4_000 * n),
    "1 MiB of `": lambda n: "`" * (n * MIB) + "a",
    "1 MiB of [ in a heading": lambda n: "# " + "[" * (n * MIB),
    "1 MiB of *a_ in a heading": lambda n: "# " + "*a_" * (n * MIB // 3),
    "1 MiB of accents": lambda n: "a" + "\u0301" * (n * MIB),
}
SIZES = ChunkSizes(450, 64, window=512)
PAGES = 250
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_LOOK = (
    '<w:rPr><w:rFonts w:ascii="Arial" w:hAnsi="Arial" w:cs="Arial"/><w:sz w:val="22"/><w:lang w:val="en-US"/></w:rPr>'
)


def count(text: str) -> int:
    """Return about how many tokens a text has."""
    return (len(text) + 3) // 4


def split(text: str, sizes: ChunkSizes = SIZES) -> tuple[Document, tuple[Chunk, ...], tuple[Section, ...]]:
    """Split a Markdown document."""
    document = Document(id="d", text=text, source="d", content_hash="x")
    return document, *split_document(ParsedDocument(text, "markdown"), document, sizes, count)


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds that something takes."""
    start = process_time()
    work()
    return process_time() - start


async def write(text: str, place: Path) -> float:
    """Return the CPU seconds of writing a document with a chunk for each heading."""
    document, chunks, sections = split(text, ChunkSizes(450, 0))
    store = SqliteStore(place)
    start = process_time()
    await store.upsert(Change(chunks, documents=(document,), sections=sections))
    await store.aclose()
    return process_time() - start


def write_word(path: Path, pages: int) -> None:
    """Write a document of 3,000 characters a page, in runs as Word makes them."""
    words = "Some words of a sentence that is as long as sentences are, with a comma. "

    def paragraph(properties: str, text: str) -> str:
        runs = f'<w:r w:rsidRPr="00A12B3C">{_LOOK}<w:t xml:space="preserve">{text}</w:t></w:r>' * 3
        return f'<w:p w:rsidR="00A12B3C" w:rsidP="00F00BA4"><w:pPr>{properties}</w:pPr>{runs}</w:p>'

    page = paragraph('<w:pStyle w:val="Heading1"/>', "A chapter ") + paragraph('<w:jc w:val="both"/>', 2 * words) * 7
    with ZipFile(path, "w", ZIP_DEFLATED) as archive, archive.open("word/document.xml", "w") as part:
        part.write(f'<w:document xmlns:w="{_WORD}"><w:body>'.encode())
        for _ in range(pages):
            part.write(page.encode())
        part.write(b"</w:body></w:document>")


def show(name: str, once: float, twice: float) -> None:
    """Print a line of the table."""
    print(f"| {name} | {once:.2f} | {twice:.2f} | {twice / once:.1f} |", flush=True)


def main() -> None:
    """Print the table."""
    print("| a text of | CPU seconds | twice as long | ratio |\n| --- | ---: | ---: | ---: |", flush=True)
    split("# load what is loaded once\n")
    factor = int(sys.argv[1]) if sys.argv[1:] else 1
    for name, make in SHAPES.items():
        show(name, *(seconds(partial(split, make(n * factor))) for n in (1, 2)))
    with TemporaryDirectory() as folder:
        headings = SHAPES["5,000 headings with text"]
        once, twice = (asyncio.run(write(headings(n), Path(folder, f"{n}.db"))) for n in (1, 2))
        show("5,000 chunks of one document, written", once, twice)
        word = Path(folder, "long.docx")
        taken: list[float] = []
        for pages in (PAGES, 2 * PAGES):
            write_word(word, pages)
            taken.append(seconds(lambda: list(read_file(word))))
        show(f"{PAGES} pages of Word, read", *taken)


if __name__ == "__main__":
    main()
