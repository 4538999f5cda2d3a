"""The query syntax: the stage that reads it from the query, and the one that checks phrases in what was found."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from retrieval_core.pipeline.stages.search import read
from retrieval_core.pipeline.stages.state import Phrases, Stage
from retrieval_core.ports import FetchRequest, Variant
from retrieval_core.run.outcomes import Failed
from retrieval_core.run.sync import to_a_loop
from retrieval_core.text.query_syntax import PATH, contains_phrase, folded, parse_query
from retrieval_core.types import Query
from retrieval_core.types.filters import (
    Eq,
    Exists,
    Glob,
    Gte,
    Not,
    Or,
    Text,
    all_of,
    chunk_fields,
    matches,
    operators_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from retrieval_core.pipeline.stages.state import Plan, SearchState
    from retrieval_core.ports import Store
    from retrieval_core.run.runner import Run
    from retrieval_core.text.query_syntax import FieldValue, ParsedQuery
    from retrieval_core.types import Chunk
    from retrieval_core.types.filters import Filter

CHECKED = 1000
"""Candidates of each search that are checked for phrases."""
FIELDS_SHARE = 0.1
"""The part of the deadline for looking up whether the index has a field."""

_Tests = dict[tuple[str, str], "Filter"]
"""The filter of each condition, by name and value."""


class ReadSyntax(Stage):
    """Takes the query apart: what is searched for, what filters, and phrases that must or must not occur.

    Args:
        stores: The stores that are searched, by the name of the index; of one index, the name is empty.
    """

    name = "syntax"
    deadline_share = 0

    def __init__(self, stores: Mapping[str, Store]) -> None:
        self._stores = stores

    def fingerprint(self) -> str:
        """Return nothing: whether the syntax is read is in the plan."""
        return ""

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        """Return the state with the text to search for, and with a plan that has the conditions."""
        plan, text = state.plan, state.asked.text
        if not plan.reads_syntax or not (parsed := parse_query(text)):
            return state
        await to_a_loop()
        started = run.elapsed_ms
        tests: _Tests = {}
        if wanted := {(each.name, each.value) for each in parsed.conditions if each.name != PATH}:
            stores = [self._stores[name] for name in plan.indexes or self._stores]
            can_look_up = [store for store in stores if "count_chunks" in store.capabilities]
            tests = await self._tests(run, plan, can_look_up, wanted)
            if len(tests) < len(wanted):
                fields = tuple(str(each) for each in parsed.conditions if each.name != PATH)
                parsed = parse_query(text, tests)
                if not can_look_up:
                    parsed = replace(parsed, unread=fields)
                if not parsed:
                    return state
        run.note(self.name, started, None, None, parsed.summary())
        query = state.asked
        if parsed.text != text:
            query = Query(query.original, parsed.text, truncated=query.truncated)
        plans = {name: _narrowed(own, self._stores[name], parsed, tests) for name, own in plan.indexes.items()}
        plan = replace(plan, indexes=plans) if plans else _narrowed(plan, self._stores[""], parsed, tests)
        return state.but(asked=query, question=query, query=query, plan=plan, syntax=parsed)

    async def _tests(self, run: Run, plan: Plan, stores: Sequence[Store], wanted: Iterable[tuple[str, str]]) -> _Tests:
        """Return the filters of those conditions whose field some chunk that the caller sees has."""
        run = run.within(FIELDS_SHARE).without_retries()
        tests: _Tests = {}
        for name, value in wanted:
            for store in stores:
                if (test := await _test_of(run, store, plan, name, value)) is not None:
                    tests[name, value] = test
                    break
        return tests


async def _test_of(run: Run, store: Store, plan: Plan, name: str, value: str) -> Filter | None:
    """Return the filter of a condition; ``None`` if the value can't be one of the field, or there is no such field."""
    condition = plan.condition or next((own.condition for own in plan.indexes.values()), None)

    async def has(test: Filter) -> bool:
        both = all_of(condition, test)
        if both is None or not operators_of(both) <= store.filter_operators:
            return False
        outcome = await run.call("fields", store.count_chunks, both)
        return not isinstance(outcome, Failed) and outcome.value > 0

    if not await has(Exists(name)):
        return None
    tests: list[Filter] = [Glob(name, value)]
    if value.casefold() in {"true", "false"}:
        tests.append(Eq(name, value.casefold() == "true"))
    elif (number := _as_number(value)) is not None:
        tests.append(Eq(name, number))
    elif not await has(Gte(name, "")):
        return None
    return tests[0] if len(tests) == 1 else Or(tuple(tests))


def _as_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None


def _narrowed(plan: Plan, store: Store, parsed: ParsedQuery, tests: _Tests) -> Plan:
    """Return the plan with the conditions of a query."""
    condition = all_of(*(_filter_of(each, tests) for each in parsed.conditions))
    can_test = condition is None or operators_of(condition) <= store.filter_operators
    phrases = None
    if parsed.required or parsed.excluded or not can_test:
        required, excluded = tuple(map(folded, parsed.required)), tuple(map(folded, parsed.excluded))
        phrases = Phrases(required, excluded, None if can_test else condition)
    return replace(
        plan,
        reads_syntax=False,
        condition=all_of(plan.condition, condition) if can_test else plan.condition,
        phrases=phrases,
        candidates=plan.candidates if phrases is None else max(plan.candidates, CHECKED),
        variants=(*plan.variants, *_phrase_searches(parsed)),
    )


def _phrase_searches(parsed: ParsedQuery) -> tuple[Variant, ...]:
    """Return keyword searches for the phrases, so that chunks with all of their words are among the candidates."""
    own = [phrase for phrase in parsed.required if phrase != parsed.text]
    return tuple(Variant("phrase", phrase, frozenset({"lexical"})) for phrase in own)


def _filter_of(condition: FieldValue, tests: _Tests) -> Filter:
    test = _path_filter(condition.value) if condition.name == PATH else tests[condition.name, condition.value]
    return Not(test) if condition.is_excluded else test


def _path_filter(path: str) -> Filter:
    """Return the filter of a glob, which may begin at any folder, or of a part of a path."""
    path = path.replace("\\", "/").removeprefix("./").removeprefix("**/").lstrip("/")
    if "*" not in path and "?" not in path:
        return Text("source", path)
    return Or((Glob("source", path), Glob("source", f"*/{path}")))


class CheckPhrases(Stage):
    """Drops candidates that lack a required phrase or have an excluded one.

    Args:
        store: Where chunks are read.
    """

    name = "phrases"
    deadline_share = 0

    def __init__(self, store: Store) -> None:
        self._store = store

    def fingerprint(self) -> str:
        """Return nothing: the phrases are in the plan."""
        return ""

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        """Return the state with the candidates that pass."""
        phrases, found = state.plan.phrases, state.found
        if phrases is None or found is None or state.error is not None:
            return state
        started, ids = run.elapsed_ms, [item.chunk_id for item in state.ranked]
        chunks: dict[str, Chunk] = {}
        for expansion in state.expansions:
            chunks.update(expansion.chunks)
        chunks.update((item.chunk_id, item.chunk) for item in found.candidates if item.chunk is not None)
        if missing := tuple(name for name in ids if name not in chunks):
            request = FetchRequest(chunk_ids=missing, filter=state.plan.condition)
            outcome = await read(run, self._store, state.held, request)
            if isinstance(outcome, Failed):
                state = state.failing(outcome)
            else:
                chunks.update(outcome.value.chunks)
        passing = await asyncio.to_thread(lambda: {name for name in ids if _passes(chunks.get(name), phrases)})
        kept = tuple(item for item in state.ranked if item.chunk_id in passing)
        run.note(self.name, started, len(ids), len(kept))
        return state.but(ranked=kept if state.plan.score_threshold is not None else kept[: state.plan.least_depth])


def _passes(chunk: Chunk | None, phrases: Phrases) -> bool:
    if chunk is None or not matches(phrases.condition, chunk_fields(chunk)):
        return False
    text = folded(chunk.text)
    return all(contains_phrase(text, phrase) for phrase in phrases.required) and not any(
        contains_phrase(text, phrase) for phrase in phrases.excluded
    )


def lacks_phrases(state: SearchState) -> bool:
    """Return whether nothing was found since nothing has the required phrases."""
    syntax = state.syntax
    found_some = state.selected or state.hits or state.ranked or state.error is not None
    return syntax is not None and bool(syntax.required) and not found_some


def without_missing_phrases(first: SearchState, best: SearchState) -> SearchState | None:
    """Return the state to search from if nothing has the phrases that a sentence quotes; ``None`` otherwise.

    Error messages quote names that no document has; what they are about is found by the other words.
    """
    if first.syntax is None or not first.syntax.is_sentence or not lacks_phrases(best):
        return None
    plan = _without_required(first.plan)
    plan = replace(plan, indexes={name: _without_required(own) for name, own in plan.indexes.items()})
    return first.but(plan=plan, has_missing_phrases=True)


def _without_required(plan: Plan) -> Plan:
    return plan if plan.phrases is None else replace(plan, phrases=replace(plan.phrases, required=()))
