"""Read several chunks, documents and lines at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from retrieval_core.errors import NotFoundError
from retrieval_core.service.contents import document_ids
from retrieval_core.service.reading import MOST_LINES_AROUND, MOST_PASSAGES, Id, ReadRequest, read
from retrieval_core.service.service_context import SEVERAL, WHOLE, IndexName, Range, ServiceModel
from retrieval_core.types.filters import Glob

if TYPE_CHECKING:
    from retrieval_core.service.reading import ReadResponse
    from retrieval_core.service.service_context import ServiceContext


class PassagesRequest(ServiceModel):
    """A request for several texts."""

    ids: Annotated[
        tuple[Id, ...],
        Field(
            min_length=1,
            max_length=MOST_PASSAGES,
            description="IDs of search results or documents, paths, paths with lines (path:120-160) or pages "
            "(path:p2-3), or globs (docs/**/*.md)",
        ),
        SEVERAL,
    ]
    index: IndexName = None
    lines_around: Annotated[
        int, Field(ge=0, le=MOST_LINES_AROUND, description="Lines to add before and after chunks and lines"), WHOLE
    ] = 0


class Passage(ServiceModel):
    """The text of a chunk, of some lines or of a document; an error if there is none."""

    id: Annotated[str, Field(description="ID of the chunk or document; the name as it was given if there is none")]
    location: Annotated[str | None, Field(description="Path with lines, such as guide.md:120-160")] = None
    title: str | None = None
    source: str | None = None
    lines: Annotated[Range | None, Field(description="First and last line, from 1")] = None
    text: str = ""
    file_changed: Annotated[bool, Field(description="Whether the file was changed after it was indexed")] = False
    error: Annotated[str | None, Field(description="Why there is no text")] = None


class PassagesResponse(ServiceModel):
    """Several texts, in the order of their names."""

    passages: tuple[Passage, ...]
    omitted: Annotated[int, Field(description="Number of further documents that match the globs")] = 0


async def read_passages(context: ServiceContext, request: PassagesRequest) -> PassagesResponse:
    """Return the texts of several chunks, documents and lines. A name without a text has an error in its place.

    Raises:
        NotFoundError: There is no index of that name.
        StoreError: The index can't be read.
    """
    names: dict[str, None] = {}
    for name in request.ids:
        names |= dict.fromkeys(await _expand(context, request.index, name))
    found: list[ReadResponse | Passage] = []
    for name in list(names)[:MOST_PASSAGES]:
        asked = ReadRequest(id=name, index=request.index, lines_around=request.lines_around)
        try:
            found.append(await read(context, asked))
        except NotFoundError as error:
            found.append(Passage(id=name, error=context.message_of(error)))
    chunks = [each.of_document for each in found if not isinstance(each, Passage) and each.of_document is not None]
    changed = await context.changed_since(request.index, chunks)
    return PassagesResponse(
        passages=tuple(each if isinstance(each, Passage) else _passage(each, changed) for each in found),
        omitted=max(0, len(names) - MOST_PASSAGES),
    )


def _passage(found: ReadResponse, changed: frozenset[str]) -> Passage:
    return Passage(
        id=found.id,
        location=found.location,
        title=found.title,
        source=found.source,
        lines=found.lines,
        text=found.text,
        file_changed=found.of_document is not None and found.of_document.id in changed,
    )


async def _expand(context: ServiceContext, index: str | None, name: str) -> list[str]:
    """Return the documents that match a glob, in order; any other name as it is."""
    if "*" not in name and "?" not in name:
        return [name]
    ids = await document_ids(context, index)
    if name in ids:
        return [name]
    path = name.replace("\\", "/").removeprefix("./").replace("**/", "*").lstrip("/")
    globs = Glob("source", path), Glob("source", f"*/{path}")  # it may begin at any folder
    return [each for each in ids if any(glob.test(each) for glob in globs)] or [name]
