"""Word documents, PowerPoint slides and EPUB books: ZIP archives of XML, unpacked within bounds.

The sizes that an archive declares are not trusted: bytes are counted as they are unpacked, and the libraries that parse
office files get a copy of what was unpacked.
"""

from __future__ import annotations

import re
import zlib
from contextlib import contextmanager
from io import BufferedReader, BytesIO, FileIO
from posixpath import dirname, join, normpath
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote
from xml.etree import ElementTree as ET
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from retrieval_core.ingest.readers.base import (
    MOST_CHARACTERS,
    ParsedDocument,
    ParsedPage,
    RefusedError,
    author_metadata,
    clean,
    decode_markup,
    one_line,
    unreadable,
    vendor,
)
from retrieval_core.ingest.readers.markup import to_markdown
from retrieval_core.text.markdown import first_heading
from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from xml.etree.ElementTree import Element

    from retrieval_core.ingest.readers.base import ReadOptions

MOST_PART_BYTES = 24 << 20
"""Bytes of markup in a page of a book, or in all parts of an office file. The Bible's text is 5 MiB."""
MOST_PART_NODES = 160_000
"""Elements and attributes in the markup of one part: parsers make up to a kilobyte of each. A page has some 400."""
MOST_BYTES = 256 << 20
"""Bytes of markup that are unpacked of one archive."""
MOST_NODES = 2_000_000
"""Elements and attributes in the markup of one archive, some 5,000 pages: half a minute's work."""

_DECLARES_ENTITIES = "its XML declares entities, which office files never do"

_ADVICE = "; split it, or save it as HTML, Markdown or PDF"
_MOST_DIRECTORY_BYTES = 4 << 20
_MOST_MEMBERS = 10_000
_TOO_MANY_MEMBERS = f"it has more than {_MOST_MEMBERS:,} parts"
# Apache POI refuses a part that is more than a hundred times its packed size; real ones stay below 50.
_MOST_RATIO = 100
_FREE_BYTES = 1 << 20
_PIECE = 1 << 16
_HEAD = 256
_MARKUP_START = re.compile(rb"(?:\xef\xbb\xbf|\xff\xfe|\xfe\xff)?[\s\0]*<")
_ENCODING = re.compile(rb"\A[^<]*<\?xml[^>]*?encoding\s*=\s*[\"']([^\"']*)")
_ENCODINGS = frozenset({"utf-8", "utf-16", "us-ascii"})
_OLE_HEAD = b"\xd0\xcf\x11\xe0"
_ENCRYPTED = 0x1


class Archive:
    """The members of an open ZIP archive; made by :func:`open_archive`.

    Args:
        most_bytes: How much may be unpacked, repetitions included.
    """

    def __init__(self, archive: ZipFile, most_bytes: int) -> None:
        self._archive = archive
        self._bytes_left = most_bytes
        self._nodes_left = MOST_NODES

    def read(self, name: str) -> bytes:
        """Unpack a member that is markup.

        Raises:
            KeyError: There is no member of this name.
            RefusedError: It is too large, or too much was unpacked of the archive.
        """
        data = b"".join(self._within(name, self._pieces(name)))
        nodes = count_nodes(data)
        if nodes > MOST_PART_NODES:
            raise RefusedError(_too_many_nodes(name))
        self._count(nodes)
        return data

    def _pieces(self, name: str) -> Iterator[bytes]:
        with self._archive.open(name) as member:
            while piece := member.read(_PIECE):
                self._bytes_left -= len(piece)
                if self._bytes_left < 0:
                    msg = (
                        f"it unpacks to more than {MOST_BYTES >> 20} MiB of markup, or to {_MOST_RATIO} times its size"
                    )
                    raise RefusedError(msg)
                yield piece

    def _count(self, nodes: int) -> None:
        self._nodes_left -= nodes
        if self._nodes_left < 0:
            msg = f"it has more than {MOST_NODES:,} elements and attributes{_ADVICE}"
            raise RefusedError(msg)

    def office_parts(self, most_nodes: int) -> dict[str, bytes]:
        """Return the members by name, with the content of those that are XML; the others, such as pictures, are empty.

        XML is recognised by its first characters, since relationships can give any name any part to play.

        Args:
            most_nodes: Elements and attributes that all of them may have together.

        Raises:
            RefusedError: Too much was unpacked, XML declares entities, which a parser would expand, or it is in an
                encoding that the format does not allow.
        """
        parts: dict[str, bytes] = {}
        size = 0
        for name in dict.fromkeys(self._archive.namelist()):
            with self._archive.open(name) as member:
                is_markup = _MARKUP_START.match(member.read(_HEAD))
            data = b"".join(self._within(name, self._pieces(name), size)) if is_markup else b""
            if declares_type(data):
                raise RefusedError(_DECLARES_ENTITIES)
            if encoding := _ENCODING.match(data):
                _refuse_encoding(encoding[1].decode("ascii", "replace"))
            nodes = count_nodes(data)
            most_nodes -= nodes
            if most_nodes < 0:
                raise RefusedError(_too_many_nodes(name))
            self._count(nodes)
            size += len(data)
            parts[name] = data
        return parts

    @staticmethod
    def _within(name: str, pieces: Iterator[bytes], size: int = 0) -> Iterator[bytes]:
        for piece in pieces:
            size += len(piece)
            if size > MOST_PART_BYTES:
                raise RefusedError(_too_long(name))
            yield piece


def zipped(parts: Mapping[str, bytes]) -> BytesIO:
    """Return a ZIP archive of parts, for the libraries that parse office files."""
    archive = BytesIO()
    with ZipFile(archive, "w", ZIP_STORED) as file:
        for name, data in parts.items():
            file.writestr(name, data)
    archive.seek(0)
    return archive


def _refuse_encoding(name: str) -> None:
    """Raise :class:`RefusedError` for an encoding that office files do not have."""
    if name.lower() not in _ENCODINGS:
        msg = "its XML is neither in UTF-8 nor in UTF-16, as that of office files is"
        raise RefusedError(msg)


def joined(texts: Iterable[str]) -> list[str]:
    """Return the texts that are not empty.

    Raises:
        RefusedError: They have more than :data:`MOST_CHARACTERS` together.
    """
    kept: list[str] = []
    left = MOST_CHARACTERS
    for text in filter(None, texts):
        left -= len(text)
        if left < 0:
            msg = f"its text has more than {MOST_CHARACTERS:,} characters{_ADVICE}"
            raise RefusedError(msg)
        kept.append(text)
    return kept


def _too_many_nodes(name: str) -> str:
    """Return the reason for refusing a part."""
    return f"{_shown(name)} has more elements and attributes than are parsed at once{_ADVICE}"


def _too_long(name: str) -> str:
    """Return the reason for refusing a part."""
    return f"{_shown(name)} has more than {MOST_PART_BYTES >> 20} MiB of markup{_ADVICE}"


def _shown(name: str) -> str:
    return one_line(name)[:100] or "a part"


@contextmanager
def open_archive(path: Path) -> Generator[Archive]:
    """Open a ZIP archive to read from within bounds.

    Raises:
        UnreadableFileError: The file is no archive, is damaged or encrypted, or has too many members.
    """
    try:
        with _PiecewiseFile(FileIO(path)) as file, ZipFile(file) as archive:
            members = archive.infolist()
            if len(members) > _MOST_MEMBERS:
                raise unreadable(path, _TOO_MANY_MEMBERS)
            if any(member.flag_bits & _ENCRYPTED for member in members):
                raise unreadable(path, "it is encrypted")
            if any(member.compress_type not in {ZIP_STORED, ZIP_DEFLATED} for member in members):
                raise unreadable(path, "it is compressed by a method that its format does not allow")
            most_bytes = min(MOST_BYTES, _FREE_BYTES + _MOST_RATIO * path.stat().st_size)
            yield Archive(archive, most_bytes)
    except (BadZipFile, EOFError, zlib.error) as exc:
        with path.open("rb") as file:
            is_ole = file.read(len(_OLE_HEAD)) == _OLE_HEAD
        reason = "it is protected by a password, or of an older format" if is_ole else "it is damaged or incomplete"
        raise unreadable(path, reason) from exc


class _PiecewiseFile(BufferedReader):
    """A file that refuses a read of more bytes than the directory of an archive may have."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _MOST_DIRECTORY_BYTES:
            raise RefusedError(_TOO_MANY_MEMBERS)
        return super().read(size)


def count_nodes(data: bytes | bytearray) -> int:
    """Return an upper bound of the elements and attributes in markup."""
    return data.count(b"<") - data.count(b"</") + data.count(b"=")


def parse_xml(data: bytes) -> ET.Element:
    """Parse XML without entities, so that its size in memory is bounded and nothing is fetched.

    Raises:
        ValueError: It has a document type declaration.
        ParseError: It is not well formed.
    """
    if declares_type(data):
        msg = "XML with a document type declaration is not read"
        raise ValueError(msg)
    return ET.fromstring(data)  # noqa: S314 - what the safe parsers forbid was just refused


def declares_type(data: bytes) -> bool:
    """Whether XML, in UTF-8 or UTF-16, has a document type declaration; office formats forbid them."""
    return b"<!DOCTYPE" in data.replace(b"\0", b"")


def core_properties(parts: Mapping[str, bytes]) -> tuple[str | None, str | None]:
    """Return the title and the author that an office file names."""
    if "docProps/core.xml" not in parts:
        return None, None
    properties = parse_xml(parts["docProps/core.xml"])
    title = properties.findtext("{http://purl.org/dc/elements/1.1/}title")
    author = properties.findtext("{http://purl.org/dc/elements/1.1/}creator")
    return one_line(title) or None, author


_STYLES = "p[style-name='Title'] => h1:fresh\np[style-name='Subtitle'] => h2:fresh"
_MOST_WORD_NODES = 320_000
"""The most elements and attributes of a Word document, some 800 pages: mammoth takes a kilobyte for each."""


def read_docx(path: Path, _options: ReadOptions) -> Iterator[ParsedDocument]:
    """Read a Word document, without pictures and page numbers; its notes stand at its end."""
    with vendor(path, "Reading DOCX files", "it is no Word document, or is damaged"):
        with open_archive(path) as archive:
            parts = archive.office_parts(_MOST_WORD_NODES)
        title, author = core_properties(parts)
        html = _to_html(parts)
        del parts
        text = "".join(joined([to_markdown(html)]))
    yield ParsedDocument(
        text=text,
        markup="markdown",
        title=title or first_heading(text),
        metadata=author_metadata(author),
    )


def _to_html(parts: Mapping[str, bytes]) -> str:
    import mammoth  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs] - an extra

    convert = cast("Callable[..., Any]", mammoth.convert_to_html)  # pyright: ignore[reportUnknownMemberType]
    html = convert(zipped(parts), style_map=_STYLES, convert_image=_no_image, transform_document=_notes_once())
    return cast("str", html.value)


def _no_image(_image: object) -> list[object]:
    return []


def _notes_once() -> Callable[[Any], Any]:
    """Return a transform that drops all but the first reference to each note: mammoth copies the note for each."""
    from mammoth import documents, transforms  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs] - an extra

    seen: set[tuple[str, str]] = set()

    def once(reference: Any) -> Any:
        key = (reference.note_type, reference.note_id)
        if key in seen:
            return cast("Any", documents).text("")
        seen.add(key)
        return reference

    return cast("Any", transforms).element_of_type(documents.NoteReference, once)


_GAP = "\n\n"
_MOST_NODES = 600_000
"""The most elements and attributes of a presentation: it is parsed as a whole, at 200 bytes for each."""
_PLACEHOLDER_TITLES = frozenset({"", "powerpoint presentation"})


def read_pptx(path: Path, _options: ReadOptions) -> Iterator[ParsedDocument]:
    """Read titles, text, tables and notes of the slides, hidden ones too, without pictures."""
    with vendor(path, "Reading PPTX files", "it is no PowerPoint presentation, or is damaged"):
        with open_archive(path) as archive:
            parts = archive.office_parts(_MOST_NODES)
        title, author = core_properties(parts)
        package = zipped(parts)
        del parts
        slides = _slides(package)
    if not any(slides):
        raise unreadable(path, "its slides contain no text")
    if (title or "").lower() in _PLACEHOLDER_TITLES:
        title = next((slide.removeprefix("# ").partition("\n")[0] for slide in slides if slide.startswith("# ")), None)
    yield ParsedDocument(
        text=_GAP.join(filter(None, slides)),
        markup="markdown",
        title=one_line(title) or None,
        pages=tuple(_pages(slides)),
        metadata=author_metadata(author),
    )


def _pages(slides: Sequence[str]) -> Iterator[ParsedPage]:
    start = 0
    for number, slide in enumerate(slides, start=1):
        if slide:
            yield ParsedPage(number, Span(start, start + len(slide)))
            start += len(slide) + len(_GAP)


def _slides(package: BytesIO) -> list[str]:
    """Return each slide as Markdown; empty for one without text, and for a slide that occurs again."""
    from pptx import Presentation  # noqa: PLC0415 - an extra

    seen: set[str] = set()
    slides: list[str] = []
    for slide in cast("Any", Presentation(package)).slides:
        slides.append("" if slide.part.partname in seen else clean(_GAP.join(_slide(slide))).strip())
        seen.add(slide.part.partname)
    return slides


def _slide(slide: Any) -> Iterator[str]:
    title = slide.shapes.title
    heading = " ".join(title.text_frame.text.split()) if title is not None else ""
    if heading:
        yield f"# {heading}"
    for shape in slide.shapes:
        if title is None or shape.shape_id != title.shape_id:
            yield from _shape(shape)
    notes = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
    if notes is not None and notes.text.strip():
        yield f"Notes: {notes.text.strip()}"


def _shape(shape: Any) -> Iterator[str]:
    if hasattr(shape, "shapes"):  # a group
        for part in shape.shapes:
            yield from _shape(part)
    elif getattr(shape, "has_table", False):
        yield _table(shape.table)
    elif getattr(shape, "has_chart", False) and shape.chart.has_title:
        yield shape.chart.chart_title.text_frame.text
    elif shape.has_text_frame:
        yield "\n".join(_paragraphs(shape.text_frame))


def _paragraphs(frame: Any) -> Iterator[str]:
    """Yield the paragraphs of a text frame, as items of a list where there are several."""
    paragraphs = [(paragraph.level, " ".join(paragraph.text.split())) for paragraph in frame.paragraphs]
    written = [(level, text) for level, text in paragraphs if text]
    is_list = len(written) > 1
    for level, text in written:
        yield f"{'  ' * level}- {text}" if is_list else text


def _table(table: Any) -> str:
    rows = [
        "| " + " | ".join(" ".join(cell.text.split()).replace("|", "\\|") for cell in row.cells) + " |"
        for row in table.rows
    ]
    return "\n".join([*rows[:1], "|" + " --- |" * len(table.columns), *rows[1:]])


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
