"""Find fields of a filter that no chunk has, with the closest known names."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, cast

from retrieval_core.pipeline.stages.state import Stage
from retrieval_core.run.outcomes import Failed
from retrieval_core.types import Chunk
from retrieval_core.types.filters import chunk_fields, lookup, paths_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from retrieval_core.pipeline.stages.state import SearchState
    from retrieval_core.ports import Store
    from retrieval_core.run.runner import Run
    from retrieval_core.types import JSON
    from retrieval_core.types.filters import Filter

MOST_PATHS = 10_000
"""If an index has as many fields, none is reported as unknown: it may be among those that were not read."""
SHARE = 0.1
"""The most of the deadline that reading the names of the fields may take."""
MOST_NAMED = 3
"""Unknown fields that a message names."""
LONGEST_NAME = 60
"""Code points of a name that are shown."""


class CheckFilter(Stage):
    """Reports fields of the filter that no chunk has.

    Args:
        store: Whose chunks have fields.
    """

    name = "filter"
    deadline_share = 0

    def __init__(self, store: Store) -> None:
        self._store = store

    def fingerprint(self) -> str:
        """Return nothing: the filter is in the plan."""
        return ""

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        """Return the state with a note on unknown fields."""
        condition = state.plan.condition
        if state.found is None or condition is None:
            return state
        seen = (chunk_fields(hit.chunk) for hit in state.pool)
        unknown = await find_unknown_fields(run, self._store, condition, seen)
        return state if unknown is None else state.but(unknown_fields=unknown)


async def find_unknown_fields(
    run: Run,
    store: Store,
    condition: Filter,
    seen: Iterable[Mapping[str, JSON]] = (),
    *,
    known: Iterable[str] = (),
) -> str | None:
    """Return which fields of a filter no chunk has, with the closest names; ``None`` if all are known.

    The store is asked for its fields once, and only if the filter has a field that no chunk found has. If the store
    fails, or takes too long, no field is unknown.

    Args:
        seen: The fields of chunks that were found.
        known: Names that need no chunk to have them.
    """
    names = _names_to_check(condition, seen, known)
    if not names:
        return None
    # Its circuit breaker is its own: that reading the fields takes too long says nothing about searches.
    run = run.within(SHARE).without_retries()
    if "sample_fields" in store.capabilities:
        sampled = await run.call("fields", store.sample_fields)
        if isinstance(sampled, Failed):
            return None
        if sampled.value is not None:
            fields, looked_at = sampled.value
            return _report(names, fields, f"none of the {looked_at:,} chunks looked at has")
    if "fields" not in store.capabilities:
        return None
    outcome = await run.call("fields", store.fields, MOST_PATHS)
    fields = None if isinstance(outcome, Failed) else cast("object", outcome.value)
    if not isinstance(fields, Mapping) or not all(isinstance(name, str) for name in cast("Iterable[object]", fields)):
        return None
    fields = cast("Mapping[str, object]", fields)
    return _report(names, fields, "no chunk has") if len(fields) < MOST_PATHS else None


def _names_to_check(condition: Filter, seen: Iterable[Mapping[str, JSON]], known: Iterable[str]) -> list[str]:
    names = sorted(paths_of(condition) - chunk_fields(Chunk("", "", "")).keys() - frozenset(known))
    found = list(seen) if names else []
    return [name for name in names if all(lookup(fields, name) is None for fields in found)]


def _report(names: Iterable[str], fields: Collection[str], where: str) -> str | None:
    unknown = [name for name in names if fields and name not in fields][:MOST_NAMED]
    told: list[str] = []
    for name in unknown:
        near = _nearest(name, sorted(fields))
        told.append(f"{where} a field {_quoted(name)}" + (f"; did you mean {_quoted(near)}?" if near else ""))
    return "; ".join(told) or None


def _nearest(name: str, fields: Iterable[str]) -> str | None:
    """Return the field whose name is most like another one; case, spaces, ``_`` and ``-`` count little."""
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


def _quoted(name: str) -> str:
    """Return a user's name in one line, shortened, and without what steers a terminal."""
    cut = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    shown = (letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in " ".join(cut.split()))
    return f"'{''.join(shown)}'"
