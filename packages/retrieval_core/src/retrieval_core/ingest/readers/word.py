"""The reader of DOCX, by way of HTML: headings, lists, tables, footnotes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from xml.parsers import expat

from retrieval_core.ingest.parsed import ParsedDocument
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
from retrieval_core.ingest.readers.base import RefusedError, author_metadata, vendor
from retrieval_core.ingest.readers.html import to_markdown
from retrieval_core.text.markdown import first_heading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

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
