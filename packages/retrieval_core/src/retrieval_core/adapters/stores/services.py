"""Common parts of stores over services: requests and filters, and exact filtering where the service can't filter."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from retrieval_core.errors import IndexFormatError, ServiceError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

    from retrieval_core.ports import Candidate
    from retrieval_core.types import JSON

T = TypeVar("T")
Expression: TypeAlias = "dict[str, Any] | bool"
"""A condition in a service's JSON; ``True`` and ``False`` where everything or nothing matches."""

CONCURRENT_REQUESTS = 4


async def together(calls: Iterable[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """Make calls, a few at a time, and return their results in order; the first failure cancels the others."""
    few = asyncio.Semaphore(CONCURRENT_REQUESTS)

    async def make(call: Callable[[], Awaitable[Any]]) -> Any:
        async with few:
            return await call()

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(make(call)) for call in calls]
    except ExceptionGroup as errors:
        failure = errors.exceptions[0]
    else:
        return [task.result() for task in tasks]
    raise failure


MOST_RESULTS = 10_000
"""The most records that are asked for in order to find enough that match."""
GROWTH = 4
"""How many times as many are asked for next."""
_TOO_MANY = 400
"""The status with which a service refuses so large an answer."""


async def find_best(
    ask: Callable[[int], Awaitable[Sequence[Any]]],
    read: Callable[[Any], Candidate | None],
    limit: int,
    *,
    service: str,
    location: str,
) -> tuple[tuple[Candidate, ...], str | None]:
    """Return the best candidates, best first, as many as the limit if there are so many.

    One more than the limit is asked for; and more, where that cuts through equal scores or records do not match.

    Args:
        ask: Returns that many of the best records, each with its ``score``.
        read: Returns the candidate of a record; ``None`` if it does not match.
        limit: The most candidates to return.

    Returns:
        The candidates, and a message on what is missing from them or ``None``.

    Raises:
        IndexFormatError: Only records that cannot be read were found.
    """
    most = max(MOST_RESULTS, limit)
    asked = min(limit + 1, most)
    records = await ask(asked)
    while True:
        found, unreadable = _read_all(records, read)
        is_enough = len(found) >= limit
        last = min((record.score for record in records), default=0.0)
        is_all = len(records) < asked
        if is_all or asked == most or (is_enough and found[limit - 1][0] > last):
            break
        asked = min(GROWTH * asked, most)
        try:
            records = await ask(asked)
        except ServiceError as error:
            if error.status != _TOO_MANY:
                raise
            break
    bar = found[limit - 1][0] if is_enough else -inf
    left_out = [error for score, error in unreadable if score >= bar]
    if left_out and not found:
        raise left_out[0]
    problems: list[str] = []
    if not (is_all or is_enough):
        problems.append(
            f"of the {len(records)} best points only {len(found)} match the filter, which {service} cannot evaluate "
            "itself, and there may be others; add a filter that it can evaluate, such as $eq"
        )
    if left_out:
        problems.append(f"{len(left_out)} of the best points were left out: {left_out[0]}")
    message = f"{location}: {'; '.join(problems)}" if problems else None
    return tuple(candidate for _, candidate in found[:limit]), message


def _read_all(
    records: Sequence[Any], read: Callable[[Any], Candidate | None]
) -> tuple[list[tuple[float, Candidate]], list[tuple[float, IndexFormatError]]]:
    """Return the matches, best first, and the errors of records that cannot be read, each with its score."""
    found: list[tuple[float, Candidate]] = []
    unreadable: list[tuple[float, IndexFormatError]] = []
    for record in records:
        try:
            candidate = read(record)
        except IndexFormatError as error:
            unreadable.append((record.score, error))
        else:
            if candidate is not None:
                found.append((record.score, candidate))
    found.sort(key=lambda match: (-match[0], match[1].chunk_id))
    return found, unreadable


def split(items: Iterable[T], size_of: Callable[[T], int], *, most: int, most_size: int) -> Iterator[list[T]]:
    """Split items so that each part fits into one request; an item that is too large is a part by itself."""
    part: list[T] = []
    size = 0
    for item in items:
        length = size_of(item)
        if part and (len(part) == most or size + length > most_size):
            yield part
            part, size = [], 0
        part.append(item)
        size += length
    if part:
        yield part


def combine(clause: str, expressions: Iterable[Expression], *, decisive: bool) -> Expression:
    """Combine the expressions of a clause.

    Args:
        clause: Such as ``$or``.
        decisive: The truth value of which one is enough: ``True`` if one expression has to hold, ``False`` if all have.
    """
    parts: list[dict[str, Any]] = []
    for part in expressions:
        if part is decisive:
            return decisive
        if not isinstance(part, bool) and part not in parts:
            parts.append(part)
    return not decisive if not parts else parts[0] if len(parts) == 1 else {clause: parts}


def flat(fields: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return every path at which :func:`retrieval_core.types.filters.lookup` finds a value, with that value."""
    found: dict[str, JSON] = {}
    for key, value in fields.items():
        if isinstance(value, Mapping) and "." not in key:
            found.update((f"{key}.{path}", inner) for path, inner in flat(value).items())
    found.update(fields)  # a key that holds the dot itself wins
    return {path: value for path, value in found.items() if value is not None}


def exact_float(value: float) -> float | None:
    """Return a number as a 64-bit float, ``None`` where that is another number."""
    return as_float if (as_float := float(value)) == value else None


def item_token(path: str, value: str | float) -> str:
    """Return a text that identifies a value below a path; only equal values have the same."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps([path, value])


def is_text(text: str) -> bool:
    """Whether a text can be encoded in UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def distinct(names: Iterable[str]) -> list[str]:
    """Return names without repetitions, and without those that UTF-8 cannot express: nothing has such a name."""
    return [name for name in dict.fromkeys(names) if is_text(name)]
