"""Search a service for records that match a filter which it evaluates only in part."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from retrieval_core.errors import IndexFormatError, ServiceError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from retrieval_core.ports import Candidate

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
