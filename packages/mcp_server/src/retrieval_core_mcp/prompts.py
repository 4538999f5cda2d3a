"""Prompts: ready questions to an assistant that make it use the tools well, and completions of their arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    Completion,
    GetPromptResult,
    ListPromptsResult,
    Prompt,
    PromptArgument,
    PromptMessage,
    PromptReference,
    TextContent,
)

from retrieval_core_mcp.explain import explain
from retrieval_core_mcp.fitting import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mcp.types import CompleteRequestParams, GetPromptRequestParams

    from retrieval_core.types.filters import Filter
    from retrieval_core_mcp.contents import Contents
    from retrieval_core_mcp.library import Library

MOST_VALUES = 100
"""Of a completion, by the protocol."""
LONGEST_ARGUMENT = 10_000


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A prompt.

    Attributes:
        asks_for: Its own arguments, with what they are.
        text: Holds them in braces.
    """

    title: str
    description: str
    asks_for: Mapping[str, str]
    text: str


_PROMPTS = {
    "answer_with_citations": _Prompt(
        "Answer with citations",
        "Answer a question from the documents, with a citation behind each statement.",
        {"question": "What is asked"},
        "Answer this question from the indexed documents alone: {question}\n\n"
        "Search with the tool search{where}; fetch what you need whole. Put behind each statement the source that it "
        "is from, as the results name it. Quote the decisive words. Check each quote with verify_citation. Where the "
        "documents do not tell, say so, and do not fill the gap from elsewhere.",
    ),
    "compare": _Prompt(
        "Compare",
        "Compare what the documents say of two things.",
        {"first": "One thing", "second": "The other"},
        "Compare what the indexed documents say of these two:\n1. {first}\n2. {second}\n\n"
        "Search with the tool search{where} for each of them alone, and for both together. Answer with a table: one "
        "row for each aspect, with the source in each cell. Say which aspects the documents tell of one alone.",
    ),
    "find_contradictions": _Prompt(
        "Find contradictions",
        "Find statements of the documents that contradict each other.",
        {"topic": "What they are about"},
        "Find statements in the indexed documents that contradict each other on: {topic}\n\n"
        "Search with the tool search{where}, in several wordings, and read the text around a passage with "
        "get_neighbors. List each contradiction with both quotes, word for word, their sources and the days of their "
        "indexing. Say what is only a difference in time or scope. If there is none, say so.",
    ),
}
_WHERE = {
    "index": "An index, if there are several",
    "field": "A field to filter by",
    "value": "The value of that field",
}


class Prompts:
    """The prompts of a server.

    Args:
        libraries: The indexes by name.
    """

    def __init__(self, libraries: Mapping[str, Library]) -> None:
        self._libraries = libraries

    def list(self) -> ListPromptsResult:
        """Return the prompts as clients see them."""
        return ListPromptsResult(prompts=[self._listed(name, prompt) for name, prompt in _PROMPTS.items()])

    def get(self, params: GetPromptRequestParams) -> GetPromptResult:
        """Return a prompt with its arguments put in.

        Raises:
            MCPError: There is no such prompt, or an argument is missing, unknown or too long.
        """
        given = {name: clean(value) for name, value in (params.arguments or {}).items()}
        if (prompt := _PROMPTS.get(params.name)) is None:
            raise MCPError(INVALID_PARAMS, f"There is no prompt {params.name[:80]!r}; there are {', '.join(_PROMPTS)}.")
        known = {**prompt.asks_for, **self._optional()}
        there_are = ", ".join(known)
        problems = [f"the argument {name} is missing" for name in prompt.asks_for if not given.get(name, "").strip()]
        problems += [f"there is no argument {name[:80]!r}; there are {there_are}" for name in given.keys() - known]
        problems += [
            f"the argument {name} has more than {LONGEST_ARGUMENT:,} characters"
            for name, value in given.items()
            if len(value) > LONGEST_ARGUMENT
        ]
        if problems:
            raise MCPError(INVALID_PARAMS, f"prompts/get: {'; '.join(problems[:5])}.")
        text = prompt.text.format(where=self._where(given), **{name: given[name] for name in prompt.asks_for})
        message = PromptMessage(role="user", content=TextContent(type="text", text=text))
        return GetPromptResult(description=prompt.description, messages=[message])

    async def complete(self, params: CompleteRequestParams, condition: Filter | None) -> Completion:
        """Return values that an argument of a prompt, or a part of a resource's address, may have."""
        name, begin = params.argument.name, params.argument.value
        if name == "index":
            return _completion(self._libraries, begin)
        given = (params.context.arguments if params.context is not None else None) or {}
        library = self._libraries.get(given.get("index", "")) or next(iter(self._libraries.values()))
        try:
            if isinstance(params.ref, PromptReference):
                return _completion(_values(name, given.get("field"), await library.describe(condition)), begin)
            if name == "id":
                return _completion(await library.documents(condition), begin)
        except Exception as error:  # noqa: BLE001 - what cannot be completed can still be written out
            explain(error, library.settings.retrieval)
        return Completion(values=[])

    def _listed(self, name: str, prompt: _Prompt) -> Prompt:
        arguments = [
            *(PromptArgument(name=each, description=told, required=True) for each, told in prompt.asks_for.items()),
            *(PromptArgument(name=each, description=told, required=False) for each, told in self._optional().items()),
        ]
        return Prompt(name=name, title=prompt.title, description=prompt.description, arguments=arguments)

    def _optional(self) -> dict[str, str]:
        return {name: told for name, told in _WHERE.items() if name != "index" or len(self._libraries) > 1}

    @staticmethod
    def _where(given: Mapping[str, str]) -> str:
        """Return where a search is to look, as a part of a sentence."""
        index = f", index {given['index']}" if given.get("index") else ""
        both = given.get("field") and given.get("value")
        return index + (f", with a filter on {given['field']} for the value {given['value']}" if both else "")


def _values(name: str, field: str | None, contents: Contents) -> Iterable[str]:
    if name == "field":
        return [each.name for each in contents.fields]
    if name == "value":
        fields = [each for each in contents.fields if field in (None, "", each.name)]
        return [str(value) for each in fields for value in each.examples]
    return ()


def _completion(values: Iterable[str], begin: str) -> Completion:
    """Return those values that begin with some text, in whatever case, without half characters."""
    folded = begin.casefold()
    found = list(dict.fromkeys(clean(value) for value in values if value.casefold().startswith(folded)))
    return Completion(values=found[:MOST_VALUES], total=len(found), has_more=len(found) > MOST_VALUES)
