"""Prompts: ready questions to an assistant that make it use the tools well, and completions of their arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    CompleteResult,
    Completion,
    GetPromptResult,
    ListPromptsResult,
    Prompt,
    PromptArgument,
    PromptMessage,
    PromptReference,
    TextContent,
)

from retrieval_core.service.service_context import ServiceContext
from retrieval_core_mcp.advice import advice_on
from retrieval_core_mcp.fitting import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mcp.types import CompleteRequestParams, GetPromptRequestParams

    from retrieval_core.service.served import ServedIndexes
    from retrieval_core.types.filters import Filter

MOST_VALUES = 100
"""Of a completion, by the protocol."""
LONGEST_ARGUMENT = 10_000


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A prompt; ``text`` contains the required arguments in braces."""

    title: str
    description: str
    required: Mapping[str, str]
    text: str


_PROMPTS = {
    "answer_with_citations": _Prompt(
        "Answer with citations",
        "Answer a question from the documents, with a citation for each statement.",
        {"question": "The question"},
        "Answer this question only from the indexed documents: {question}\n\n"
        "Search with the tool search{where}; fetch what you need whole. After each statement, cite its source as "
        "the results name it. Quote the decisive words. Check each quote with verify_citation. If the documents do "
        "not contain the answer, say so, and do not fill the gap from elsewhere.",
    ),
    "compare": _Prompt(
        "Compare",
        "Compare what the documents say about two things.",
        {"first": "One thing", "second": "The other"},
        "Compare what the indexed documents say about these two:\n1. {first}\n2. {second}\n\n"
        "Search with the tool search{where} for each of them separately, and for both together. Answer with a table: "
        "one row for each aspect, with the source in each cell. Say which aspects the documents cover for only one.",
    ),
    "find_contradictions": _Prompt(
        "Find contradictions",
        "Find statements in the documents that contradict each other.",
        {"topic": "Subject of the statements"},
        "Find statements in the indexed documents that contradict each other on: {topic}\n\n"
        "Search with the tool search{where}, in several wordings, and read the text around a chunk with "
        "fetch. List each contradiction with both quotes, word for word, their sources and the days of their "
        "indexing. Say what is only a difference in time or scope. If there is none, say so.",
    ),
}
_WHERE = {
    "index": "An index, if there are several",
    "field": "A field to filter by",
    "value": "The value of that field",
}


class Prompts:
    """The prompts of a server."""

    def __init__(self, indexes: ServedIndexes) -> None:
        self._indexes = indexes
        self._names = [served.name for served in indexes]
        self._optional = {name: told for name, told in _WHERE.items() if name != "index" or len(indexes) > 1}

    async def list(self) -> ListPromptsResult:
        """Return the prompts as clients see them."""
        return ListPromptsResult(
            prompts=[
                Prompt(
                    name=name,
                    title=prompt.title,
                    description=prompt.description,
                    arguments=[
                        PromptArgument(name=each, description=told, required=each in prompt.required)
                        for each, told in {**prompt.required, **self._optional}.items()
                    ],
                )
                for name, prompt in _PROMPTS.items()
            ]
        )

    async def get(self, params: GetPromptRequestParams) -> GetPromptResult:
        """Return a prompt with its arguments filled in.

        Raises:
            MCPError: There is no such prompt, or an argument is missing, unknown or too long.
        """
        given = {name: clean(value) for name, value in (params.arguments or {}).items()}
        if (prompt := _PROMPTS.get(params.name)) is None:
            raise MCPError(INVALID_PARAMS, f"There is no prompt {params.name[:80]!r}; there are {', '.join(_PROMPTS)}.")
        known = {**prompt.required, **self._optional}
        problems = [f"the argument {name} is missing" for name in prompt.required if not given.get(name, "").strip()]
        for name, value in given.items():
            if name not in known:
                problems.append(f"there is no argument {name[:80]!r}; there are {', '.join(known)}")
            elif len(value) > LONGEST_ARGUMENT:
                problems.append(f"the argument {name} has more than {LONGEST_ARGUMENT:,} characters")
        if problems:
            raise MCPError(INVALID_PARAMS, f"prompts/get: {'; '.join(problems[:5])}.")
        where = f", index {given['index']}" if given.get("index") else ""
        if given.get("field") and given.get("value"):
            where += f", with a filter on {given['field']} for the value {given['value']}"
        text = prompt.text.format(where=where, **{name: given[name] for name in prompt.required})
        message = PromptMessage(role="user", content=TextContent(type="text", text=text))
        return GetPromptResult(description=prompt.description, messages=[message])

    async def complete(self, params: CompleteRequestParams, tenant: Filter | None) -> CompleteResult:
        """Return values for an argument of a prompt, or for a part of a resource's address."""
        name, begin = params.argument.name, params.argument.value.casefold()
        values = [clean(value) for value in await self._values(params, name, tenant)]
        found = list(dict.fromkeys(value for value in values if value.casefold().startswith(begin)))
        return CompleteResult(
            completion=Completion(values=found[:MOST_VALUES], total=len(found), has_more=len(found) > MOST_VALUES)
        )

    async def _values(self, params: CompleteRequestParams, name: str, tenant: Filter | None) -> Iterable[str]:
        if name == "index":
            return self._names
        from retrieval_core.service import contents  # noqa: PLC0415 - the handshake does not wait for it

        given = (params.context.arguments if params.context is not None else None) or {}
        index = given.get("index") if given.get("index") in self._names else None
        context = ServiceContext(self._indexes, tenant)
        try:
            if name == "id" and not isinstance(params.ref, PromptReference):
                return await contents.document_ids(context, index)
            if name in {"field", "value"} and isinstance(params.ref, PromptReference):
                fields = (await contents.list_fields(context, contents.IndexRequest(index=index))).fields
                if name == "field":
                    return [each.name for each in fields]
                wanted = given.get("field")
                return [str(value) for each in fields if wanted in (None, "", each.name) for value in each.examples]
        except Exception as error:  # noqa: BLE001 - a value can still be typed
            advice_on(error, context)
        return ()
