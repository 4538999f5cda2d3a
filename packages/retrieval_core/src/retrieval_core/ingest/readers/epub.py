"""EPUB: the chapters of a book, in reading order."""

from __future__ import annotations

from posixpath import dirname, join, normpath
from typing import TYPE_CHECKING
from urllib.parse import unquote

from retrieval_core.ingest.markdown import first_heading
from retrieval_core.ingest.parsed import ParsedDocument
from retrieval_core.ingest.readers.archive import open_archive, parse_xml
from retrieval_core.ingest.readers.base import author_metadata, clean, vendor
from retrieval_core.ingest.readers.encoding import decode_markup
from retrieval_core.ingest.readers.html import to_markdown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from xml.etree.ElementTree import Element
    from zipfile import ZipFile

    from retrieval_core.ingest.readers.base import ReadOptions

_CONTAINER = "{urn:oasis:names:tc:opendocument:xmlns:container}"
_OPF = "{http://www.idpf.org/2007/opf}"
_DC = "{http://purl.org/dc/elements/1.1/}"
_PAGES = ("application/xhtml+xml", "text/html")


def read_epub(path: Path, _options: ReadOptions) -> Iterator[ParsedDocument]:
    """Read a book as one document; an EPUB has no pages."""
    with vendor(path, "Reading EPUB files", "it is no EPUB, or is damaged"), open_archive(path) as archive:
        package_name, package = _package(archive)
        chapters = [to_markdown(decode_markup(archive.read(name), path)) for name in _spine(package_name, package)]
        title = " ".join((package.findtext(f".//{_DC}title") or "").split())
        author = package.findtext(f".//{_DC}creator")
    text = "\n\n".join(filter(None, chapters))
    yield ParsedDocument(
        text=text,
        markup="markdown",
        title=clean(title) or first_heading(text),
        metadata=author_metadata(author),
    )


def _package(archive: ZipFile) -> tuple[str, Element]:
    """Return the name and the content of the file that lists all others."""
    container = parse_xml(archive.read("META-INF/container.xml"))
    root = container.find(f".//{_CONTAINER}rootfile")
    name = unquote("" if root is None else root.get("full-path", ""))
    return name, parse_xml(archive.read(name))


def _spine(package_name: str, package: Element) -> Iterator[str]:
    """Yield the names of the pages in reading order; the table of contents is none of them."""
    manifest = {item.get("id"): item for item in package.iterfind(f"{_OPF}manifest/{_OPF}item")}
    for reference in package.iterfind(f"{_OPF}spine/{_OPF}itemref"):
        item = manifest[reference.get("idref")]
        is_contents = "nav" in item.get("properties", "").split()
        if item.get("media-type") in _PAGES and not is_contents:
            yield normpath(join(dirname(package_name), unquote(item.get("href", ""))))
