"""The tools ``list_indexes`` and ``describe_index``: what can be searched, and the fields that filters can name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field

from retrieval_core.errors import RetrievalError
from retrieval_core.service.contents import FieldsResponse, IndexesRequest, IndexRequest, IndexSummary, describe_index
from retrieval_core_mcp.advice import advice_on
from retrieval_core_mcp.fitting import clean, in_one_line
from retrieval_core_mcp.tools.fit import Shrink
from retrieval_core_mcp.tools.names import LONGEST_NAME
from retrieval_core_mcp.tools.tool import AnswerPart, Sized, ToolAnswer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.service.service_context import ServiceContext
    from retrieval_core_mcp.tools.tool import ToolCall

MOST_INDEXES = 50
MOST_EXAMPLES = 5
_NOTE = (
    "Operators of filters: $eq $ne $in $nin $gt $gte $lt $lte $contains $text $glob $exists $and $or $not. section is "
    "one heading, page a number. Every chunk also has document_id and timestamp (when it was indexed, ISO 8601)."
)


async def list_indexes(context: ServiceContext, _request: IndexesRequest) -> Sequence[IndexSummary]:
    """Return how much each index contains; one that can't be read has advice in ``problem``."""
    summaries: list[IndexSummary] = []
    for served in [*context.indexes][:MOST_INDEXES]:
        try:
            summaries.append(await describe_index(context, IndexRequest(index=served.name)))
        except RetrievalError as error:
            description, problem = served.description or None, advice_on(error, context)
            summaries.append(IndexSummary(name=served.name, description=description, problem=problem))
    return summaries


class ListedIndex(AnswerPart):
    """An index."""

    name: str
    description: str | None = None
    documents: int | None = None
    passages: int | None = None
    problem: str | None = Field(default=None, description="Why the index can't be read")


class ListAnswer(ToolAnswer):
    """The indexes that there are."""

    indexes: Annotated[list[ListedIndex], Shrink(least=1)]

    @classmethod
    def of(cls, response: Sequence[IndexSummary], call: ToolCall) -> Self:
        """Return the indexes with their sizes."""
        del call
        indexes = [
            ListedIndex(
                name=each.name,
                description=each.description,
                documents=each.documents,
                passages=each.chunks,
                problem=None if each.problem is None else in_one_line(each.problem, 300),
            )
            for each in response
        ]
        return cls(indexes=indexes)

    def render(self) -> str:
        """Return a line for each index."""
        return "\n".join(_heading(each, each.problem) for each in self.indexes)


class DescribeArguments(Sized, IndexRequest):
    """Arguments of the tool describe_index."""


class DescribedField(AnswerPart):
    """A field that filters can name."""

    name: str
    types: list[str]
    passages: int | None = None
    examples: list[str | float | bool]
    min: float | str | None = None
    max: float | str | None = None


class DescribeAnswer(ToolAnswer):
    """The contents of an index."""

    name: str
    description: str | None = None
    documents: int | None = None
    passages: int | None = None
    modes: list[str]
    indexed_first: str | None = None
    indexed_last: str | None = None
    fields: Annotated[list[DescribedField], Shrink()]
    sources: Annotated[list[str], Shrink(), Field(description="Some of the documents")]
    note: str

    @classmethod
    def of(cls, response: FieldsResponse, call: ToolCall) -> Self:
        """Return the fields with examples, and some of the documents."""
        del call
        first, last = response.indexed_first, response.indexed_last
        return cls(
            name=response.name,
            description=response.description,
            documents=response.documents,
            passages=response.chunks,
            modes=[*response.modes],
            indexed_first=first and first.partition("T")[0],
            indexed_last=last and last.partition("T")[0],
            fields=[
                DescribedField(
                    name=in_one_line(field.name, 100),
                    types=[*field.types[:5]],
                    passages=field.count,
                    examples=[_written(value) for value in field.examples[:MOST_EXAMPLES]],
                    min=field.min,
                    max=field.max,
                )
                for field in response.fields
            ],
            sources=[in_one_line(source, LONGEST_NAME) for source in response.sources],
            note=f"{_NOTE} Examples, ranges and dates come from a sample of {response.sampled} chunks.",
        )

    def render(self) -> str:
        """Return a line for each field."""
        lines = [_heading(self)]
        if self.indexed_last is not None:
            lines.append(f"Indexed from {self.indexed_first} to {self.indexed_last}.")
        lines.append(f"Modes: {', '.join(self.modes)}. {self.note}")
        lines += [_field_line(field) for field in self.fields]
        if self.sources:
            lines.append(f"Some of the documents: {', '.join(self.sources)}")
        return "\n".join(lines)


def _heading(entry: ListedIndex | DescribeAnswer, problem: str | None = None) -> str:
    counted = ((entry.documents, "documents"), (entry.passages, "chunks"))
    amounts = ", ".join(f"{count:,} {what}" for count, what in counted if count is not None)
    return ": ".join(filter(None, (entry.name, problem or amounts, entry.description)))


def _field_line(field: DescribedField) -> str:
    told: Sequence[str] = [
        "/".join(field.types),
        f"{field.passages:,} chunks" if field.passages is not None else "",
        "" if field.min is None or field.max is None else f"{_end(field.min)} to {_end(field.max)}",
        f"such as {', '.join(str(value) for value in field.examples)}" if field.examples else "",
    ]
    return f"- {field.name}: {'; '.join(filter(None, told))}"


def _written(value: Any) -> Any:
    return clean(value) if isinstance(value, str) else value


def _end(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"
