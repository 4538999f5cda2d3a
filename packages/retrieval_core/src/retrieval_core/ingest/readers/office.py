"""Word documents, PowerPoint slides and EPUB books."""

from __future__ import annotations

from posixpath import dirname, join, normpath
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote
from xml.parsers import expat

from retrieval_core.ingest.readers.archive import (
    DECLARES_ENTITIES,
    MOST_PART_BYTES,
    MOST_PART_NODES,
    core_properties,
    count_nodes,
    joined,
    open_archive,
    parse_xml,
    refuse_encoding,
    too_long,
    too_many_nodes,
    zipped,
)
from retrieval_core.ingest.readers.base import (
    ParsedDocument,
    ParsedPage,
    RefusedError,
    author_metadata,
    clean,
    one_line,
    unreadable,
    vendor,
)
from retrieval_core.ingest.readers.encoding import decode_markup
from retrieval_core.ingest.readers.markup import to_markdown
from retrieval_core.text.markdown import first_heading
from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from io import BytesIO
    from pathlib import Path
    from xml.etree.ElementTree import Element

    from retrieval_core.ingest.readers.archive import Archive
    from retrieval_core.ingest.readers.base import ReadOptions

_STYLES = "p[style-name='Title'] => h1:fresh\np[style-name='Subtitle'] => h2:fresh"
_MAIN = "word/document.xml"
_MAIN_TYPE = "/relationships/officeDocument"
_STRETCH_NODES = 40_000
"""Elements and attributes after which a document is cut: some hundred pages, for which mammoth takes 35 MB."""
_MOST_HEAD = 1 << 16


def read_docx(path: Path, _options: ReadOptions) -> Iterator[ParsedDocument]:
    """Read a Word document, without pictures and page numbers.

    A long one is converted a stretch at a time, each with its own footnotes at its end: the library takes a kilobyte
    for each element.
    """
    with vendor(path, "Reading DOCX files", "it is no Word document, or is damaged"), open_archive(path) as archive:
        main = _main_part(archive)
        parts = archive.office_parts(MOST_PART_NODES, without=main)
        once = _notes_once()
        shared = sum(map(count_nodes, parts.values()))
        stretches = joined(
            to_markdown(_to_html({**parts, main: stretch}, once)) for stretch in _stretches(archive, main, shared)
        )
        title, author = core_properties(parts)
    yield ParsedDocument(
        text="\n\n".join(stretches),
        markup="markdown",
        title=title or next(filter(None, map(first_heading, stretches)), None),
        metadata=author_metadata(author),
    )


def _main_part(archive: Archive) -> str:
    """Return the name of the part that holds the text, as the relationships give it."""
    try:
        relationships = parse_xml(archive.read("_rels/.rels"))
    except KeyError:
        return _MAIN
    targets = (each.get("Target", "") for each in relationships if each.get("Type", "").endswith(_MAIN_TYPE))
    return next(targets, _MAIN).lstrip("/")


def _stretches(archive: Archive, name: str, shared: int) -> Iterator[bytes]:
    """Yield the main part in stretches, each a whole document with some of the paragraphs and tables, in order."""
    splitter = _Splitter(name, shared, archive.count)
    for piece in archive.pieces(name):
        yield from splitter.feed(piece)
    yield splitter.rest()


class _Splitter:
    """Cuts the XML of a Word document between the children of its body, without building a tree.

    Args:
        name: The part's, for errors.
        shared: Elements and attributes of the other parts, which are parsed again with each stretch.
        on_nodes: Called with the number of elements and attributes that each stretch makes the library parse.
    """

    def __init__(self, name: str, shared: int, on_nodes: Callable[[int], None]) -> None:
        self._name = name
        self._shared = shared
        self._on_nodes = on_nodes
        self._most_nodes = min(_STRETCH_NODES + shared, MOST_PART_NODES // 2)
        self._parser = parser = expat.ParserCreate()
        parser.ordered_attributes = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.XmlDeclHandler = self._declaration
        parser.StartDoctypeDeclHandler = self._refuse_type
        self._open: list[str] = []
        self._in_body = False
        self._buffer = bytearray()
        self._buffer_start = 0
        self._body_start: int | None = None
        self._cuts: list[int] = []
        self._head = self._end_tags = b""
        self._head_nodes = self._nodes = 0
        self._is_item = self._is_joined = False

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Take more of the part; yield the stretches that are complete."""
        self._buffer += piece
        self._parser.Parse(piece, False)
        if not self._head and self._body_start is not None:
            self._head = self._taken(self._body_start)
            encoding = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}.get(self._head[:2], "utf-8")
            self._end_tags = "".join(f"</{name}>" for name in reversed(self._open[:2])).encode(encoding)
        for cut in self._cuts:
            yield self._head + self._taken(cut) + self._end_tags
        self._cuts.clear()
        if len(self._buffer) > MOST_PART_BYTES:
            raise RefusedError(too_long(self._name))

    def rest(self) -> bytes:
        """Return the last stretch."""
        self._parser.Parse(b"", True)
        self._on_nodes(self._nodes + self._shared)
        return self._head + self._buffer

    def _taken(self, end: int) -> bytes:
        length = end - self._buffer_start
        taken = bytes(self._buffer[:length])
        del self._buffer[:length]
        self._buffer_start = end
        return taken

    def _start(self, name: str, attributes: list[str]) -> None:
        local = name.rpartition(":")[2]
        depth = len(self._open)
        if depth == 1 and local == "body":
            self._in_body = self._body_start is None
        elif depth == 2 and self._in_body:
            self._child()
        elif local == "numPr":
            self._is_item = True
        elif local == "del":
            self._is_joined = True
        self._open.append(name)
        self._nodes += 1 + len(attributes) // 2
        if self._nodes > MOST_PART_NODES:
            raise RefusedError(too_many_nodes(self._name))

    def _child(self) -> None:
        """Cut the document before the paragraph or table that begins here, if allowed."""
        at = self._parser.CurrentByteIndex
        if self._body_start is None:
            self._body_start, self._head_nodes = at, self._nodes
        elif self._can_end():
            self._on_nodes(self._nodes + self._shared)
            self._cuts.append(at)
            self._nodes = self._head_nodes
        self._is_item = self._is_joined = False

    def _can_end(self) -> bool:
        """Whether the stretch is long enough to end before the child that begins here.

        It does not end behind a paragraph whose end was deleted, which belongs to the next one, and inside a list,
        whose numbers would begin again, only at twice the length. The head before the body goes with each stretch.
        """
        most = 2 * self._most_nodes if self._is_item else self._most_nodes
        is_long = self._nodes - self._head_nodes > most
        return is_long and not self._is_joined and (self._body_start or 0) <= _MOST_HEAD

    def _end(self, _name: str) -> None:
        self._open.pop()
        self._in_body = self._in_body and len(self._open) > 1

    def _declaration(self, _version: str, encoding: str | None, _standalone: int) -> None:
        refuse_encoding(encoding or "utf-8")

    def _refuse_type(self, *_: object) -> None:
        raise RefusedError(DECLARES_ENTITIES)


def _to_html(parts: Mapping[str, bytes], transform: Callable[[Any], Any]) -> str:
    import mammoth  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs] - an extra

    convert = cast("Callable[..., Any]", mammoth.convert_to_html)  # pyright: ignore[reportUnknownMemberType]
    html = convert(zipped(parts), style_map=_STYLES, convert_image=_no_image, transform_document=transform)
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
