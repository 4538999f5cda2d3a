"""The tools ``list_indexes`` and ``describe_index``: what can be searched, and by which fields it can be filtered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from retrieval_core.errors import RetrievalError
from retrieval_core_mcp.explain import explain
from retrieval_core_mcp.fitting import clean, in_one_line, largest
from retrieval_core_mcp.tools.names import LONGEST_NAME
from retrieval_core_mcp.tools.tool import Arguments, DeclaredTool, Sized, StructuredContent, ToolAnswer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core_mcp.contents import Contents, FieldContents
    from retrieval_core_mcp.library import Library
    from retrieval_core_mcp.tools.tool import ToolCall

MOST_INDEXES = 50
MOST_SOURCES = 20
MOST_EXAMPLES = 5
_NOTE = (
    "Operators of filters: $eq $ne $in $nin $gt $gte $lt $lte $contains $text $glob $exists $and $or $not. section is "
    "one heading, page a number. Every passage also has document_id and timestamp (when it was indexed, ISO 8601)."
)


class ListArguments(Arguments):
    """Arguments of the tool list_indexes: none."""


class IndexSummary(StructuredContent):
    """An index."""

    name: str
    description: str | None = None
    documents: int | None = None
    passages: int | None = None
    problem: str | None = Field(default=None, description="Why it cannot be searched")


class ListAnswer(StructuredContent):
    """The indexes that there are."""

    indexes: list[IndexSummary]


class DescribeArguments(Sized):
    """Arguments of the tool describe_index."""


class DescribedField(StructuredContent):
    """A field that filters can name."""

    name: str
    types: list[str]
    passages: int | None = None
    examples: list[str | float | bool]
    min: float | str | None = None
    max: float | str | None = None


class DescribeAnswer(StructuredContent):
    """What an index holds."""

    name: str
    description: str | None = None
    documents: int | None = None
    passages: int | None = None
    modes: list[str]
    indexed_first: str | None = None
    indexed_last: str | None = None
    sources: list[str] = Field(description="Some of them")
    fields: list[DescribedField]
    note: str


async def run_list(call: ToolCall) -> ToolAnswer:
    """List the indexes, with how much each holds."""
    entries = [await _summary(call, name, library) for name, library in list(call.libraries.items())[:MOST_INDEXES]]

    def attempt(count: int) -> ToolAnswer:
        answer = ListAnswer(indexes=entries[:count])
        lines = [_summary_line(entry) for entry in answer.indexes]
        return ToolAnswer(answer.model_dump(exclude_none=True), "\n".join(lines))

    return attempt(largest(lambda count: attempt(count).fits(call.limit), 1, len(entries)) or 1)


async def _summary(call: ToolCall, name: str, library: Library) -> IndexSummary:
    description = library.settings.described or None
    try:
        held = await library.count(call.condition)
    except RetrievalError as error:
        problem = in_one_line(explain(error, library.settings.retrieval), 300)
        return IndexSummary(name=name, description=description, problem=problem)
    return IndexSummary(name=name, description=description, documents=held.documents, passages=held.passages)


def _summary_line(entry: IndexSummary) -> str:
    return ": ".join(filter(None, (entry.name, entry.problem or ", ".join(_amounts(entry)), entry.description)))


def _amounts(entry: IndexSummary | DescribeAnswer) -> list[str]:
    counted = ((entry.documents, "documents"), (entry.passages, "passages"))
    return [f"{count:,} {what}" for count, what in counted if count is not None]


async def run_describe(call: ToolCall) -> ToolAnswer:
    """Describe an index: how much it holds, which fields, with examples."""
    contents = await call.library.describe(call.condition)
    return description_of(contents, call.name, call.settings.described or None, call.limit)


def description_of(contents: Contents, name: str, description: str | None, limit: int) -> ToolAnswer:
    """Return what an index holds: all of its fields as far as they fit, and then as many of its documents.

    Args:
        limit: Both forms stay below this many characters of JSON, at least 1,000.
    """
    fields = [_field(one) for one in contents.fields]
    sources = [in_one_line(source, LONGEST_NAME) for source in contents.sources]

    def attempt(count: int, shown: int) -> ToolAnswer:
        answer = DescribeAnswer(
            name=name,
            description=description,
            documents=contents.documents,
            passages=contents.passages,
            modes=list(contents.modes),
            indexed_first=_day(contents.indexed_first),
            indexed_last=_day(contents.indexed_last),
            sources=sources[:shown],
            fields=fields[:count],
            note=f"{_NOTE} Examples, ranges and dates are of {contents.sampled} passages.",
        )
        return ToolAnswer(answer.model_dump(exclude_none=True), _as_text(answer))

    count = largest(lambda count: attempt(count, 0).fits(limit), 0, len(fields)) or 0
    most = min(len(sources), MOST_SOURCES)
    return attempt(count, largest(lambda shown: attempt(count, shown).fits(limit), 0, most) or 0)


def _field(field: FieldContents) -> DescribedField:
    examples: list[Any] = [
        clean(value) if isinstance(value, str) else value for value in field.examples[:MOST_EXAMPLES]
    ]
    return DescribedField(
        name=in_one_line(field.name, 100),
        types=list(field.types)[:5],
        passages=field.passages,
        examples=examples,
        min=field.least,
        max=field.most,
    )


def _day(moment: Any) -> str | None:
    return None if moment is None else moment.date().isoformat()


def _as_text(answer: DescribeAnswer) -> str:
    lines = [": ".join(filter(None, (answer.name, ", ".join(_amounts(answer)), answer.description)))]
    if answer.indexed_last is not None:
        lines.append(f"Indexed from {answer.indexed_first} to {answer.indexed_last}.")
    lines.append(f"Modes: {', '.join(answer.modes)}. {answer.note}")
    lines += [_field_line(field) for field in answer.fields]
    if answer.sources:
        lines.append(f"Some of the documents: {', '.join(answer.sources)}")
    return "\n".join(lines)


def _field_line(field: DescribedField) -> str:
    told: Sequence[str] = [
        "/".join(field.types),
        f"{field.passages:,} passages" if field.passages is not None else "",
        "" if field.min is None or field.max is None else f"{_end(field.min)} to {_end(field.max)}",
        f"such as {', '.join(str(value) for value in field.examples)}" if field.examples else "",
    ]
    return f"- {field.name}: {'; '.join(filter(None, told))}"


def _end(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


LIST = DeclaredTool(
    "list_indexes",
    "List the indexes",
    "List what can be searched here, and how much each index holds.",
    ListArguments,
    ListAnswer,
    run_list,
)
DESCRIBE = DeclaredTool(
    "describe_index",
    "Describe an index",
    "Describe an index: its documents, and the fields that filters can name, with types, examples and ranges.",
    DescribeArguments,
    DescribeAnswer,
    run_describe,
)
