"""The reader of PPTX; each slide is a page under its title."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from retrieval_core.ingest.parsed import ParsedDocument, ParsedPage
from retrieval_core.ingest.readers.archive import core_properties, open_archive, zipped
from retrieval_core.ingest.readers.base import author_metadata, clean, one_line, unreadable, vendor
from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from io import BytesIO
    from pathlib import Path

    from retrieval_core.ingest.readers.base import ReadOptions

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
