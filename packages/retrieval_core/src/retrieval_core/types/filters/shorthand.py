"""The specification's short form of a shop's filters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from retrieval_core.errors import FilterError
from retrieval_core.types.filters.conditions import Glob, Gte, Lte, Text
from retrieval_core.types.filters.matching import all_of

if TYPE_CHECKING:
    from retrieval_core.types.filters.conditions import Filter


@dataclass(frozen=True, slots=True)
class MetadataFilter:
    """Conditions on ``price``, ``rating`` and ``product_name``; all that are given must match.

    Attributes:
        min_price: Inclusive.
        max_price: Inclusive.
        min_rating: Inclusive.
        product_name_pattern: Part of ``product_name``, ignoring case: ``"phone"`` finds all names that hold it. With
            ``*`` for any run of characters or ``?`` for one it is a glob for the whole name, as in ``"*phone 1?*"``.
            It is never a regular expression.

    Raises:
        FilterError: A bound is no finite number, or the pattern is no text.
    """

    min_price: float | None = None
    max_price: float | None = None
    min_rating: float | None = None
    product_name_pattern: str | None = None

    def __post_init__(self) -> None:
        for name in ("min_price", "max_price", "min_rating"):
            bound = getattr(self, name)
            if bound is not None and (isinstance(bound, bool) or not isinstance(bound, (int, float))):
                msg = f"{name} must be a number, got {bound!r:.80}"
                raise FilterError(msg)
        self.as_filter()

    def as_filter(self) -> Filter | None:
        """Return the filter; ``None`` without conditions."""
        return all_of(
            None if self.min_price is None else Gte("price", self.min_price),
            None if self.max_price is None else Lte("price", self.max_price),
            None if self.min_rating is None else Gte("rating", self.min_rating),
            None if self.product_name_pattern is None else _pattern("product_name", self.product_name_pattern),
        )


def _pattern(path: str, pattern: str) -> Filter:
    is_glob = not isinstance(pattern, str) or "*" in pattern or "?" in pattern  # pyright: ignore[reportUnnecessaryIsInstance]
    return Glob(path, pattern) if is_glob else Text(path, pattern)
