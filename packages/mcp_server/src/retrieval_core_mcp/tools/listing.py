"""The tool ``list``: indexes, their documents and fields, and the sections of a document."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, PrivateAttr, computed_field

from retrieval_core.errors import NotFoundError, RetrievalError
from retrieval_core.service.contents import (
    DocumentsRequest,
    DocumentsResponse,
    FieldsResponse,
    IndexRequest,
    IndexSummary,
    describe_index,
    document_ids,
    list_documents,
    list_fields,
)
from retrieval_core.service.outline import OutlineRequest, OutlineResponse, outline
from retrieval_core.service.service_context import Range  # noqa: TC001 - pydantic reads annotations
from retrieval_core.types.documents import format_range
from retrieval_core.types.escapes import escape_name
from retrieval_core_mcp.advice import advice_on
from retrieval_core_mcp.fitting import clean, in_one_line
from retrieval_core_mcp.tools.fit import Shrink
from retrieval_core_mcp.tools.names import LONGEST_NAME, can_be_named, title_if_new
from retrieval_core_mcp.tools.tool import LONGEST_ID, AnswerPart, Sized, ToolAnswer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.service.outline import OutlineSection
    from retrieval_core.service.service_context import ServiceContext
    from retrieval_core_mcp.tools.tool import ToolCall

MOST_INDEXES = 50
MOST_EXAMPLES = 5
MOST_FOLDERS = 40
MOST_LISTED = 500
"""Documents on a page, if they fit."""
OPERATORS = "$eq $ne $in $nin $gt $gte $lt $lte $contains $text $glob $exists $and $or $not"


class ListArguments(Sized, IndexRequest):
    """Arguments of the tool list."""

    path: Annotated[str | None, Field(max_length=LONGEST_ID, description="File, folder or glob")] = None
    cursor: Annotated[str | None, Field(max_length=LONGEST_ID, description="Next page")] = None


@dataclass(frozen=True, slots=True)
class Listing:
    """What was asked for: each is empty unless it was.

    Attributes:
        indexes: The size and state of each index.
        fields: The fields of the only one.
        names: The IDs of its documents.
    """

    indexes: Sequence[IndexSummary] = ()
    fields: FieldsResponse | None = None
    names: Sequence[str] = ()
    documents: DocumentsResponse | None = None
    document: OutlineResponse | None = None


async def list_contents(context: ServiceContext, request: ListArguments) -> Listing:
    """Return the documents below a path, or the sections of one; without a path, an overview of the index.

    If there are several indexes and none is named, the overview is of all of them.

    Raises:
        NotFoundError: There is no index of that name.
        RetrievalError: The index can't be read.
    """
    path = (request.path or "").strip().removeprefix("./")
    if path in {"", ".", "/"} and request.cursor is None:
        if request.index is None and len(context.indexes) > 1:
            return Listing(indexes=[await _summary(context, served.name) for served in context.indexes][:MOST_INDEXES])
        named = IndexRequest(index=request.index)
        fields = await list_fields(context, named)
        return Listing([await describe_index(context, named)], fields, await document_ids(context, request.index))
    if "*" not in path and request.cursor is None:
        try:
            return Listing(document=await outline(context, OutlineRequest(id=path, index=request.index)))
        except NotFoundError:
            pass
    wanted = DocumentsRequest(name=path or "*", cursor=request.cursor, limit=MOST_LISTED, index=request.index)
    return Listing(documents=await list_documents(context, wanted))


async def _summary(context: ServiceContext, name: str) -> IndexSummary:
    try:
        return await describe_index(context, IndexRequest(index=name))
    except RetrievalError as error:
        description = context.index(name).description or None
        return IndexSummary(name=name, description=description, problem=advice_on(error, context))


class ListedIndex(AnswerPart):
    """An index."""

    name: str
    description: str | None = None
    documents: int | None = None
    chunks: int | None = None
    embedded: int | None = Field(default=None, description="Chunks with a vector, while it is being built")
    problem: str | None = Field(default=None, description="Why the index can't be read")


class DescribedField(AnswerPart):
    """A field that filters can name."""

    name: str
    types: list[str]
    chunks: int | None = None
    examples: list[str | float | bool]
    min: float | str | None = None
    max: float | str | None = None


class ListedFile(AnswerPart):
    """A document."""

    id: str
    title: str | None = None


class ListedSection(AnswerPart):
    """A section of a document."""

    title: str
    level: int
    id: str
    lines: Range | None = None
    pages: Range | None = None


class ListAnswer(ToolAnswer):
    """An overview of the indexes, or some documents, or the sections of one."""

    indexes: Annotated[list[ListedIndex] | None, Shrink()] = None
    modes: list[str] | None = None
    indexed: str | None = Field(default=None, description="Days of the first and last indexing")
    folders: Annotated[list[str] | None, Shrink()] = None
    fields: Annotated[list[DescribedField] | None, Shrink()] = None
    sampled: int | None = Field(default=None, description="Chunks that examples and ranges are from")
    id: str | None = Field(default=None, description="The document that the sections are of")
    title: str | None = None
    total: int | None = Field(default=None, description="Documents on all pages")
    documents: Annotated[list[ListedFile] | None, Shrink()] = None
    sections: Annotated[list[ListedSection] | None, Shrink()] = None
    _after: str | None = PrivateAttr(None)
    _counts: tuple[int, int] = PrivateAttr((0, 0))

    @computed_field
    @property
    def next_cursor(self) -> str | None:
        """The cursor of the next part, if there is one."""
        if self.documents and len(self.documents) < self._counts[0]:
            return self.documents[-1].id
        return self._after

    @classmethod
    def of(cls, response: Listing, call: ToolCall) -> Self:
        """Return what was asked for."""
        if (found := response.documents) is not None:
            documents = [
                ListedFile(id=each.id, title=title_if_new(each.title, each.id))
                for each in found.documents
                if can_be_named(each.id, call.limit)
            ]
            answer = cls(total=found.total, documents=documents)
            answer._after, answer._counts = found.next_cursor, (len(documents), 0)
            return answer
        if (one := response.document) is not None:
            answer = cls(
                id=clean(one.id), title=title_if_new(one.title, one.id), sections=[*map(_section, one.sections)]
            )
            answer._counts = len(one.sections), one.chunks
            return answer
        answer = cls(indexes=[*map(_index, response.indexes)])
        if (fields := response.fields) is None:
            return answer
        days = [moment.partition("T")[0] for moment in (fields.indexed_first, fields.indexed_last) if moment]
        update = {
            "modes": [*fields.modes],
            "indexed": " to ".join(dict.fromkeys(days)) or None,
            "folders": _folders(response.names),
            "fields": [_field(field) for field in fields.fields],
            "sampled": fields.sampled,
        }
        return answer.model_copy(update=update)

    def render(self) -> str:
        """Return the answer as lines."""
        if self.documents is not None:
            lines = [f"{escape_name(each.id)}{f' · {each.title}' if each.title else ''}" for each in self.documents]
            if not lines:
                return "There are no such documents. Leave path out for an overview."
            if self.next_cursor is not None:
                lines.append(f"cursor: {escape_name(self.next_cursor)}")
            return "\n".join(lines)
        if self.sections is not None:
            heading = f"{escape_name(self.id or '')}{f' · {self.title}' if self.title else ''}"
            left = self._counts[0] - len(self.sections)
            rest = [f"{left:,} more sections: set max_characters."] if left else []
            return "\n".join([heading, *map(_section_line, self.sections), *rest])
        lines = [_index_line(each) for each in self.indexes or ()]
        if self.modes is not None:
            lines[-1] += f" Modes: {', '.join(self.modes)}." + (f" Indexed: {self.indexed}." if self.indexed else "")
        if self.folders:
            lines.append(f"Folders: {', '.join(self.folders)}")
        if self.fields:
            lines += [
                f"Fields for filters, in a sample of {self.sampled} chunks:",
                *map(_field_line, self.fields),
                f"Operators: {OPERATORS}",
            ]
        return "\n".join(lines)


def _index(entry: IndexSummary) -> ListedIndex:
    return ListedIndex(
        name=entry.name,
        description=entry.description,
        documents=entry.documents,
        chunks=entry.chunks,
        embedded=entry.embedded if entry.status == "yellow" else None,
        problem=None if entry.problem is None else in_one_line(entry.problem, 300),
    )


def _index_line(entry: ListedIndex) -> str:
    counted = ((entry.documents, "document"), (entry.chunks, "chunk"))
    amounts = ", ".join(f"{count:,} {what}{'s' * (count != 1)}" for count, what in counted if count is not None)
    line = ": ".join(filter(None, (entry.name, entry.problem or amounts, entry.description)))
    if entry.embedded is not None:
        line += f"; still being built, {entry.embedded:,} chunks have vectors"
    return line if line.endswith((".", "!", "?")) else f"{line}."


def _folders(names: Sequence[str]) -> list[str]:
    """Return the folders with most documents, each with their number."""
    found = Counter(name.rpartition("/")[0] for name in names)
    kept = sorted(found, key=lambda folder: (-found[folder], folder))[:MOST_FOLDERS]
    return [f"{in_one_line(folder or '.', LONGEST_NAME)}/ {found[folder]:,}" for folder in sorted(kept)]


def _section(entry: OutlineSection) -> ListedSection:
    return ListedSection(
        title=in_one_line(entry.title, LONGEST_NAME),
        level=entry.level,
        id=clean(entry.chunk_id),
        lines=entry.lines,
        pages=entry.pages,
    )


def _section_line(section: ListedSection) -> str:
    if section.lines is not None:
        place = format_range(*section.lines)
    elif section.pages is not None:
        place = f"page {format_range(*section.pages)} (id: {escape_name(section.id)})"
    else:
        place = f"id: {escape_name(section.id)}"
    return f"{'  ' * (section.level - 1)}{section.title or '(beginning)'}: {place}"


def _field(field: Any) -> DescribedField:
    return DescribedField(
        name=in_one_line(field.name, 100),
        types=[*field.types[:5]],
        chunks=field.count,
        examples=[clean(value) if isinstance(value, str) else value for value in field.examples[:MOST_EXAMPLES]],
        min=field.min,
        max=field.max,
    )


def _field_line(field: DescribedField) -> str:
    ends = None if field.min is None or field.max is None else f"{_end(field.min)} to {_end(field.max)}"
    examples = ", ".join(in_one_line(str(value), LONGEST_NAME) for value in field.examples)
    told = ("/".join(field.types), ends, f"such as {examples}" if examples and ends is None else None)
    return f"- {field.name}: {'; '.join(filter(None, told))}"


def _end(value: Any) -> str:
    return in_one_line(value, LONGEST_NAME) if isinstance(value, str) else f"{value:g}"
