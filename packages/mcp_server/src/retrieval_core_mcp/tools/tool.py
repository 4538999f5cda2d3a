"""A tool: its arguments, the function of the service behind it, and its answer."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from retrieval_core.service.service_context import WHOLE, ServiceContext, ServiceModel
from retrieval_core_mcp.fitting import LARGEST_ANSWER, SMALLEST_ANSWER
from retrieval_core_mcp.tools.fit import Shrinkable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from retrieval_core.service.served import ServedIndex

LONGEST_ID = 2_000
Form: TypeAlias = Literal["", "structured", "json"]
"""How a result is returned: as text, also as structured content, or as structured content whose text is its JSON."""
Id = Annotated[str, Field(min_length=1, max_length=LONGEST_ID, description="ID of a search result")]


class QueryArguments(ServiceModel):
    """Arguments of a tool that searches."""

    filters: Annotated[dict[str, Any] | None, Field(description='As {"year":{"$gte":2020}}')] = None


class Sized(ServiceModel):
    """Arguments of a tool whose answer can be longer or shorter."""

    max_characters: Annotated[
        Annotated[int, Field(ge=SMALLEST_ANSWER, le=LARGEST_ANSWER), WHOLE] | None,
        Field(description="Longest result"),
    ] = None


class ToolFailure(Exception):  # noqa: N818 - an answer to the caller
    """A tool can't do what it was called for; the message tells the assistant what to change."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool.

    Attributes:
        context: The caller.
        request: The arguments.
        served: The index that it names.
        limit: The text, and structured content if there is any, stay below this many characters of JSON.
        form: How the result is returned.
    """

    context: ServiceContext
    request: Any
    served: ServedIndex
    limit: int
    form: Form = ""

    @property
    def as_json(self) -> bool:
        """Whether the client reads the text as JSON, so that a result has each field that such clients need."""
        return self.form == "json"


class AnswerPart(BaseModel):
    """A part of an answer."""

    model_config = ConfigDict(frozen=True)


class ToolAnswer(Shrinkable):
    """The structured content of an answer. It is frozen, and fields without a value are left out."""

    @classmethod
    @abstractmethod
    def of(cls, response: Any, call: ToolCall) -> Self:
        """Return the answer for the service's response. It runs in a thread."""


@dataclass(frozen=True)
class DeclaredTool:
    """A tool. Each ``…_path`` is ``package.module:name``, and imported with the first use of what it names.

    Attributes:
        request_path: The service's request, or a subclass with arguments that only the tool has.
        arguments: The fields of it that are always listed. Where there are several indexes, ``index`` is one too.
        serve_path: The service's function.
        answer_path: Makes the structured content of its response, and renders it as text. The model of a short response
            can be its own answer; the text then has a line for each field.
        writes: Whether it changes the index.
        more_arguments: Further fields that callers can set. Only complete lists have them.
        needs_index: Whether each call names an index where there are several.
    """

    name: str
    title: str
    description: str
    request_path: str
    arguments: tuple[str, ...]
    serve_path: str
    answer_path: str
    writes: bool = False
    more_arguments: tuple[str, ...] = ()
    needs_index: bool = True

    @cached_property
    def request(self) -> type[ServiceModel]:
        """The model of the arguments."""
        return _imported(self.request_path)

    @cached_property
    def serve(self) -> Callable[[ServiceContext, Any], Awaitable[Any]]:
        """The service's function."""
        return _imported(self.serve_path)

    @cached_property
    def answer(self) -> type[ToolAnswer | ServiceModel]:
        """The model of the structured content."""
        return _imported(self.answer_path)


def _imported(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
