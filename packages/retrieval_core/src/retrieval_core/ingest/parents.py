"""The larger units around chunks: sections and pages."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from retrieval_core.ingest.pages import page_span
from retrieval_core.types import Section, Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.ingest.packing import SectionNode
    from retrieval_core.ingest.parsed import ParsedPage


def sections_of(
    document_id: str, tree: SectionNode, pages: Sequence[ParsedPage], chunks: Sequence[Span]
) -> tuple[Section, ...]:
    """Return a document's sections: by its headings, otherwise by its pages.

    The whole document is a section too where several chunks need it: if one of them lies in no other section.
    """
    if tree.children:
        nodes = list(tree.walk())[1:]
        sections = [
            Section(
                id=f"{document_id}#section-{number}",
                document_id=document_id,
                kind="section",
                path=node.path,
                span=node.span,
                page_span=page_span(node.span, pages),
            )
            for number, node in enumerate(nodes, start=1)
        ]
    else:
        sections = [
            Section(
                id=f"{document_id}#page-{page.number}",
                document_id=document_id,
                kind="page",
                path=(),
                span=page.span,
                page_span=page_span(page.span, pages),
            )
            for page in pages
            if page.span.start < page.span.end
        ]
    if len(chunks) > 1 and None in parents_of(chunks, sections):
        whole = Span(chunks[0].start, chunks[-1].end)
        root = Section(
            id=f"{document_id}#section-0",
            document_id=document_id,
            kind="section",
            path=(),
            span=whole,
            page_span=page_span(whole, pages),
        )
        sections.insert(0, root)
    return tuple(sections)


def parents_of(chunks: Sequence[Span], sections: Sequence[Section]) -> list[str | None]:
    """Return for each chunk the id of the innermost section that holds all of it.

    Args:
        chunks: Ranges of the text.
        sections: In the order of the text, outer before inner ones, each wholly inside or outside of every other.
    """
    outer = _outer_sections(sections)
    starts = [section.span.start for section in sections]
    parents: list[str | None] = []
    for chunk in chunks:
        found: int | None = bisect_right(starts, chunk.start) - 1
        while found is not None and (found < 0 or sections[found].span.end < chunk.end):
            found = outer[found] if found >= 0 else None
        parents.append(None if found is None else sections[found].id)
    return parents


def _outer_sections(sections: Sequence[Section]) -> list[int | None]:
    """Return for each section the position of the one around it."""
    outer: list[int | None] = []
    open_sections: list[int] = []
    for position, section in enumerate(sections):
        while open_sections and sections[open_sections[-1]].span.end < section.span.end:
            open_sections.pop()
        outer.append(open_sections[-1] if open_sections else None)
        open_sections.append(position)
    return outer
