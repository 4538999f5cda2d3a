"""Values of all sentences, given back to the passages they are from."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence, Sized

T = TypeVar("T")


def rows_of(values: Iterable[T], passages: Sequence[Sized]) -> tuple[tuple[T, ...], ...]:
    """Return one value for each sentence, in their order, as one row for each passage."""
    following = iter(values)
    return tuple(tuple(islice(following, len(passage))) for passage in passages)
