"""Word documents, PowerPoint slides and EPUB books."""

from __future__ import annotations

from posixpath import dirname, join, normpath
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from retrieval_core.ingest.readers.archive import (
    core_properties,
    joined,
    open_archive,
    parse_xml,
    zipped,
)
from retrieval_core.ingest.readers.base import (
    ParsedDocument,
    ParsedPage,
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
