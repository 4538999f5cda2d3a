"""Find problems of a filter: a field that no chunk has, or a value whose type lets nothing pass."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, TypeGuard, cast

from retrieval_core.ports import LIST_TYPES, FieldCatalogue, FieldInfo, SamplesFields
from retrieval_core.run.outcomes import Failed
from retrieval_core.types import Chunk
from retrieval_core.types.filters import (
    And,
    Contains,
    Eq,
    Exists,
    Glob,
    Gt,
    Gte,
    In,
    Lt,
    Lte,
    Ne,
    Not,
    NotIn,
    Or,
    Text,
    chunk_fields,
    lookup,
    paths_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from retrieval_core.pipeline.stages.search import SearchResults
    from retrieval_core.ports import Store
    from retrieval_core.run.runner import Run
    from retrieval_core.types import JSON
    from retrieval_core.types.filters import Condition, Filter, Scalar

MOST_FIELDS = 200
"""Of an index with as many, only wrong types are told: a field that is not among these may be there all the same."""
MOST_PATHS = 10_000
"""Of an index with as many, an unknown field is not told."""
SHARE = 0.1
"""How much of the deadline asking for the fields may use up."""
NAMED = 12
"""Fields that a message lists."""
REASONS = 3
"""Alternatives of an ``$or`` that a message tells of."""
MOST_VALUES = 3
"""Values of an ``$in`` that a message lists."""
LONGEST_NAME = 60
"""Code points shown of a name or a value."""

_PLURALS = {"text": "text", "number": "numbers", "boolean": "booleans"}
_KNOWN_TYPES = frozenset({*LIST_TYPES, *LIST_TYPES.values(), "list", "object"})


@dataclass(frozen=True, slots=True)
class FilterProblems:
    """The problems of a filter.

    Attributes:
        note: Why it lets nothing pass; ``None`` if something was found, or if that is unknown.
        warning: Which of its fields no chunk has, with the closest names; ``None`` if all are known.
    """

    note: str | None = None
    warning: str | None = None


async def examine_filter(
    run: Run,
    store: Store,
    condition: Filter,
    seen: Iterable[Mapping[str, JSON]] = (),
    *,
    found: SearchResults | None = None,
    known: Iterable[str] = (),
) -> FilterProblems:
    """Find the problems of a search's filter.

    The store is asked for its fields once, and only if nothing was found or if no chunk found has a field of the
    filter. If the store fails, or takes too long, there is no problem to report.

    Args:
        seen: The fields of chunks that were found.
        found: What the search found, for the note.
        known: Names that need no chunk to have them.
    """
    sides = [] if found is None else [side for side in (found.dense, found.lexical) if side is not None]
    is_empty = bool(sides) and not any(sides)
    names = _names_to_check(condition, seen, known)
    if not (names or is_empty):
        return FilterProblems()
    # Its circuit breaker is its own: that counting fields takes too long says nothing about searches.
    run = run.within(SHARE).without_retries()
    if isinstance(store, SamplesFields):
        sampled = await run.call("fields", store.sample_fields)
        if isinstance(sampled, Failed):
            return FilterProblems()
        if sampled.value is not None:
            paths, looked_at = sampled.value
            return FilterProblems(warning=_warning(names, paths, f"none of the {looked_at:,} chunks looked at has"))
    if not isinstance(store, FieldCatalogue):
        return FilterProblems()
    outcome = await run.call("fields", store.fields, MOST_PATHS)
    if isinstance(outcome, Failed) or not _is_catalogue(outcome.value):
        return FilterProblems()
    catalogue = outcome.value
    reason = _reason(condition, dict(islice(catalogue.items(), MOST_FIELDS))) if is_empty else None
    return FilterProblems(
        note=f"Nothing passes the filter: {reason}" if reason else None,
        warning=_warning(names, catalogue.keys(), "no chunk has") if len(catalogue) < MOST_PATHS else None,
    )


def _names_to_check(condition: Filter, seen: Iterable[Mapping[str, JSON]], known: Iterable[str]) -> list[str]:
    names = sorted(paths_of(condition) - chunk_fields(Chunk("", "", "")).keys() - frozenset(known))
    found = list(seen) if names else []
    return [name for name in names if all(lookup(fields, name) is None for fields in found)]


def _warning(names: Iterable[str], fields: Collection[str], where: str) -> str | None:
    told: list[str] = []
    for name in names:
        if fields and name not in fields:
            near = _nearest(name, sorted(fields))
            told.append(f"{where} a field {_quoted(name)}" + (f"; did you mean {_quoted(near)}?" if near else ""))
    return "; ".join(told[:REASONS]) or None


def _is_catalogue(value: object) -> TypeGuard[Mapping[str, FieldInfo]]:
    if not (isinstance(value, Mapping) and value):
        return False
    entries = cast("Mapping[object, object]", value).items()
    return all(isinstance(name, str) and isinstance(info, FieldInfo) and _is_sound(info) for name, info in entries)


def _is_sound(info: FieldInfo) -> bool:
    types = cast("object", info.types)
    if not isinstance(types, Mapping):
        return False
    counts = (info.passages, *cast("Mapping[object, object]", types).values())
    return all(type(count) is int for count in counts)


def _reason(condition: Filter, fields: Mapping[str, FieldInfo]) -> str | None:
    """Return why no passage can pass; ``None`` where one could."""
    match condition:
        case And(filters):
            return next((reason for part in filters if (reason := _reason(part, fields))), None)
        case Or(filters):
            reasons = [_reason(part, fields) for part in filters]
            told = [reason for reason in dict.fromkeys(reasons) if reason is not None]
            return "; ".join(told[:REASONS]) if None not in reasons and told else None
        case Not() | Ne() | NotIn():  # let pass what lacks the field, or has another type
            return None
        case Exists(value=False):
            return None
        case _:
            info = fields.get(condition.field)
            if info is not None:
                return _of_another_type(condition, info)
            return _absent(condition.field, fields) if len(fields) < MOST_FIELDS else None


def _absent(name: str, fields: Mapping[str, FieldInfo]) -> str:
    every = chunk_fields(Chunk("", "", "")).keys()
    ordered = sorted(fields, key=lambda field: field in every)  # first those that are the index's own
    listed = ", ".join(_shown(field, LONGEST_NAME) for field in ordered[:NAMED])
    if len(ordered) > NAMED:
        listed += f" and {len(ordered) - NAMED} more"
    near = _nearest(name, ordered)
    question = f"; did you mean {_quoted(near)}?" if near is not None else "."
    return f"no passage has a field {_quoted(name)}{question} Fields: {listed}"


def _nearest(name: str, fields: Iterable[str]) -> str | None:
    """Return the field whose name is most like another one, where case, spaces, ``_`` and ``-`` count little."""
    alike: dict[str, str] = {}
    for field in fields:
        if len(field) <= LONGEST_NAME:
            alike.setdefault(_plain(field), field)
    if len(name) > LONGEST_NAME:
        return None
    near = get_close_matches(_plain(name), alike, n=1)
    return alike[near[0]] if near else None


def _plain(name: str) -> str:
    return name.casefold().replace("_", " ").replace("-", " ").strip()


def _of_another_type(condition: Condition, info: FieldInfo) -> str | None:
    """Return that the field has no value of a type that the condition could match; ``None`` where it has, or may."""
    kinds, verb = _wanted(condition)
    inside = {LIST_TYPES[kind] for kind in kinds}
    fitting = inside if isinstance(condition, Contains) else inside | kinds
    if not kinds or not info.types or fitting & info.types.keys() or not info.types.keys() <= _KNOWN_TYPES:
        return None
    wanted = " or ".join(plural for kind, plural in _PLURALS.items() if kind in kinds)
    return f"{_quoted(condition.field)} is {_types(info)}, and {_in_short(condition)} {verb} {wanted}"


def _wanted(condition: Condition) -> tuple[set[str], str]:
    """Return the types that a value must have to pass, and what the operator does with them."""
    match condition:
        case Eq(value=value):
            return {_type_of(value)}, "looks for"
        case In(values=values):
            return {_type_of(value) for value in values}, "looks for"
        case Gt(value=value) | Gte(value=value) | Lt(value=value) | Lte(value=value):
            return {_type_of(value)}, "compares"
        case Contains(value=value):
            return {_type_of(value)}, "looks into lists of"
        case Text() | Glob():
            return {"text"}, "looks into"
        case _:
            return set(), ""


def _type_of(value: object) -> str:
    return "boolean" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"


def _types(info: FieldInfo) -> str:
    if len(info.types) == 1:
        where = "the only passage that has" if info.passages == 1 else f"all {info.passages:,} passages that have"
        return f"{_with_article(next(iter(info.types)))} in {where} it"
    parts = [f"{_with_article(kind)} in {count:,}" for kind, count in info.types.items()]
    return f"{' and '.join(parts)} of the passages that have it"


def _with_article(kind: str) -> str:
    return kind if kind == "text" else f"an {kind}" if kind == "object" else f"a {kind}"


def _in_short(condition: Condition) -> str:
    """Return an operator with its operand, as much of it as a message has room for."""
    if isinstance(condition, (In, NotIn)):
        values = ", ".join(map(_value, condition.values[:MOST_VALUES]))
        return f"{condition.operator} [{values}{', …' if len(condition.values) > MOST_VALUES else ''}]"
    return f"{condition.operator} {_value(condition.value)}"


def _value(value: Scalar) -> str:
    short = value[:LONGEST_NAME] if isinstance(value, str) else value
    return _shown(json.dumps(short, ensure_ascii=False), LONGEST_NAME)


def _quoted(name: str) -> str:
    return f"'{_shown(name, LONGEST_NAME)}'"


def _shown(text: str, longest: int) -> str:
    """Return a user's text in one line, shortened, and without what steers a terminal."""
    cut = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in " ".join(cut.split())
    )
