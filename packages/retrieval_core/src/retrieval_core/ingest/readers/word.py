"""DOCX, by way of HTML: headings, lists, tables, footnotes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from retrieval_core.ingest.markdown import first_heading
from retrieval_core.ingest.parsed import ParsedDocument
from retrieval_core.ingest.readers.archive import core_properties, open_archive, refuse_document_types
from retrieval_core.ingest.readers.base import author_metadata, clean, vendor
from retrieval_core.ingest.readers.html import to_markdown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from retrieval_core.ingest.readers.base import ReadOptions

_STYLES = "p[style-name='Title'] => h1:fresh\np[style-name='Subtitle'] => h2:fresh"


def read_docx(path: Path, _options: ReadOptions) -> Iterator[ParsedDocument]:
    """Read a Word document; pictures are left out, and pages are not known, since only a layout makes them."""
    with vendor(path, "Reading DOCX files", "it is no Word document, or is damaged"), open_archive(path) as archive:
        refuse_document_types(archive, path)
        text = to_markdown(_to_html(path))
        title, author = core_properties(archive)
    yield ParsedDocument(
        text=text,
        markup="markdown",
        title=clean(title) if title else first_heading(text),
        metadata=author_metadata(author),
    )


def _to_html(path: Path) -> str:
    import mammoth  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs] - an extra

    convert = cast("Callable[..., Any]", mammoth.convert_to_html)  # pyright: ignore[reportUnknownMemberType]
    with path.open("rb") as file:
        return cast("str", convert(file, style_map=_STYLES, convert_image=_no_image).value)


def _no_image(_image: object) -> list[object]:
    return []
