"""What a tool is: its arguments, its answer, and a call of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from retrieval_core.config.model import named_mode
from retrieval_core_mcp.explain import scrub
from retrieval_core_mcp.fitting import json_length
from retrieval_core_mcp.settings import LARGEST_ANSWER, SMALLEST_ANSWER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from retrieval_core.types.filters import Filter
    from retrieval_core_mcp.library import Library
    from retrieval_core_mcp.settings import ServerSettings

LONGEST_QUERY = 10_000
LONGEST_ID = 2_000
LONGEST_QUOTE = 10_000


def whole(value: object) -> object:
    """JSON knows one kind of number: 5.0 is as whole as 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(whole)
"""Goes behind the bounds of a number, or its schema would not tell them."""
Mode: TypeAlias = Annotated[Literal["hybrid", "dense", "lexical"], BeforeValidator(named_mode)]


class Arguments(BaseModel):
    """Arguments of a tool: no other names, and no other types, are taken."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class PassageArguments(Arguments):
    """Arguments of a tool that is given the id of a passage."""

    id: Annotated[str, Field(min_length=1, max_length=LONGEST_ID, description="The id of a search result")]


class QuestionArguments(Arguments):
    """Arguments of a tool that is given a question."""

    query: Annotated[str, Field(min_length=1, max_length=LONGEST_QUERY, description="In plain language")]
    filters: Annotated[
        dict[str, Any] | None,
        Field(description='As {"year": {"$gte": 2020}}; see describe_index'),
    ] = None


class Sized(Arguments):
    """Arguments of a tool whose answer may be made longer or shorter."""

    max_characters: Annotated[int, Field(ge=SMALLEST_ANSWER, le=LARGEST_ANSWER), WHOLE] | None = None


class StructuredContent(BaseModel):
    """The structured content of a tool's answer."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """An answer as structured content and as text."""

    structured: dict[str, Any]
    text: str

    @property
    def size(self) -> int:
        """The characters of JSON of the longer form."""
        return max(json_length(self.structured), json_length([{"type": "text", "text": self.text}]))

    def fits(self, limit: int) -> bool:
        """Whether the JSON of each form is shorter than the limit."""
        return self.size < limit


class ToolFailure(Exception):  # noqa: N818 - what a tool cannot do is an answer to its caller
    """Something that a tool cannot do; its message tells the assistant what to change."""


def _nobody_listens(_step: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool.

    Attributes:
        given: The arguments, read and checked.
        library: The index that is asked.
        libraries: All that the server has, by name.
        name: The index's.
        condition: What every passage must pass, whatever the arguments say; ``None`` for a caller who may see all.
        as_json: Whether the client reads the text as JSON, so that a result has each field that such clients need.
        step: Is told what has ended of the work, from any thread.
        may_write: Whether the caller is allowed to, where the server may.
    """

    given: Any
    library: Library
    libraries: Mapping[str, Library]
    name: str
    condition: Filter | None = None
    as_json: bool = False
    step: Callable[[str], None] = _nobody_listens
    may_write: bool = True

    @property
    def settings(self) -> ServerSettings:
        """The server's settings, with those of the index."""
        return self.library.settings

    @property
    def limit(self) -> int:
        """Both forms of the answer stay below this many characters of JSON."""
        asked: int | None = getattr(self.given, "max_characters", None)
        return asked or self.settings.max_characters

    def scrub(self, text: str) -> str:
        """Return a text of the library without paths of this machine."""
        return scrub(text, self.settings.retrieval)


@dataclass(frozen=True, slots=True)
class DeclaredTool:
    """A tool as it is declared.

    Attributes:
        arguments: The model of its arguments.
        answer: The model of its structured content.
        run: Answers a call, or raises :class:`ToolFailure` or an error of the library.
        writes: Whether it changes the index.
    """

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    answer: type[StructuredContent]
    run: Callable[[ToolCall], Awaitable[ToolAnswer]]
    writes: bool = False
