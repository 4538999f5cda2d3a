"""The reader of EPUB: the chapters of a book, in reading order."""

from __future__ import annotations

from posixpath import dirname, join, normpath
from typing import TYPE_CHECKING
from urllib.parse import unquote

from retrieval_core.ingest.parsed import ParsedDocument
from retrieval_core.ingest.readers.archive import joined, open_archive, parse_xml
from retrieval_core.ingest.readers.base import author_metadata, one_line, vendor
from retrieval_core.ingest.readers.encoding import decode_markup
from retrieval_core.ingest.readers.html import to_markdown
from retrieval_core.text.markdown import first_heading

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from xml.etree.ElementTree import Element

    from retrieval_core.ingest.readers.archive import Archive
    from retrieval_core.ingest.readers.base import ReadOptions

_CONTAINER = "{urn:oasis:names:tc:opendocument:xmlns:container}"
_OPF = "{http://www.idpf.org/2007/opf}"
_DC = "{http://purl.org/dc/elements/1.1/}"
_PAGES = ("application/xhtml+xml", "text/html")


def read_epub(path: Path, options: ReadOptions) -> Iterator[ParsedDocument]:
    """Read a book as one document, without page numbers."""
    with vendor(path, "Reading EPUB files", "it is no EPUB, or is damaged"), open_archive(path) as archive:
        names, title, author = _package(archive)
        chapters = joined(to_markdown(decode_markup(archive.read(name), path, options)) for name in names)
    yield ParsedDocument(
        text="\n\n".join(chapters),
        markup="markdown",
        title=title or next(filter(None, map(first_heading, chapters)), None),
        metadata=author_metadata(author),
    )


def _package(archive: Archive) -> tuple[list[str], str, str | None]:
    """Return the names of the pages in reading order, each once, the title and the author."""
    container = parse_xml(archive.read("META-INF/container.xml"))
    root = container.find(f".//{_CONTAINER}rootfile")
    name = unquote("" if root is None else root.get("full-path", ""))
    package = parse_xml(archive.read(name))
    title = one_line(package.findtext(f".//{_DC}title"))
    return list(dict.fromkeys(_spine(name, package))), title, package.findtext(f".//{_DC}creator")


def _spine(package_name: str, package: Element) -> Iterator[str]:
    """Yield the names of the pages in reading order, without the table of contents."""
    manifest = {item.get("id"): item for item in package.iterfind(f"{_OPF}manifest/{_OPF}item")}
    for reference in package.iterfind(f"{_OPF}spine/{_OPF}itemref"):
        item = manifest[reference.get("idref")]
        is_contents = "nav" in item.get("properties", "").split()
        if item.get("media-type") in _PAGES and not is_contents:
            yield normpath(join(dirname(package_name), unquote(item.get("href", ""))))
