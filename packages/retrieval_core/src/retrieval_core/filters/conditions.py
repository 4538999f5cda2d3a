"""The conditions on one field, each with its test, and what joins them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from retrieval_core.errors import FilterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.types import JSON

Scalar: TypeAlias = str | int | float | bool


def _same(left: object, right: object) -> bool:
    """Equality without Python's ``True == 1``."""
    return isinstance(left, bool) == isinstance(right, bool) and left == right


def _items(value: JSON) -> Sequence[JSON]:
    """A list's items, a scalar as a list of one, and nothing for an absent value."""
    if value is None:
        return ()
    return value if isinstance(value, (list, tuple)) else (value,)


def _check_scalar(operator: str, value: object) -> None:
    if not isinstance(value, (str, int, float, bool)) or (isinstance(value, float) and not isfinite(value)):
        hint = " Use $in for one of several values, $exists for an absent one." if operator in {"$eq", "$ne"} else ""
        msg = f"{operator} takes text, a finite number or a boolean, got {value!r:.80}.{hint}"
        raise FilterError(msg)


@dataclass(frozen=True, slots=True)
class _Condition(ABC):
    """A test of one field."""

    operator: ClassVar[str]
    field: str

    @abstractmethod
    def test(self, value: JSON) -> bool:
        """Whether a field with this value passes; ``None`` stands for an absent field."""


@dataclass(frozen=True, slots=True)
class _Comparison(_Condition):
    value: Scalar

    def __post_init__(self) -> None:
        _check_scalar(self.operator, self.value)


@dataclass(frozen=True, slots=True)
class Eq(_Comparison):
    """The field is equal to the value."""

    operator: ClassVar[str] = "$eq"

    def test(self, value: JSON) -> bool:
        """Whether the value, or one of its items, is the one asked for."""
        return any(_same(item, self.value) for item in _items(value))


@dataclass(frozen=True, slots=True)
class Ne(_Comparison):
    """The field is absent or differs from the value."""

    operator: ClassVar[str] = "$ne"

    def test(self, value: JSON) -> bool:
        """Whether neither the value nor one of its items is the one named."""
        return not any(_same(item, self.value) for item in _items(value))


@dataclass(frozen=True, slots=True)
class _Membership(_Condition):
    values: tuple[Scalar, ...]
    _wanted: frozenset[tuple[bool, Scalar]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        for value in self.values:
            _check_scalar(self.operator, value)
        object.__setattr__(self, "_wanted", frozenset((isinstance(value, bool), value) for value in self.values))

    def _found(self, value: JSON) -> bool:
        return any(
            isinstance(item, (str, int, float)) and (isinstance(item, bool), item) in self._wanted
            for item in _items(value)
        )


@dataclass(frozen=True, slots=True)
class In(_Membership):
    """The field is equal to one of the values; with no values nothing matches."""

    operator: ClassVar[str] = "$in"

    def test(self, value: JSON) -> bool:
        """Whether the value, or one of its items, is among those asked for."""
        return self._found(value)


@dataclass(frozen=True, slots=True)
class NotIn(_Membership):
    """The field is absent or differs from every value."""

    operator: ClassVar[str] = "$nin"

    def test(self, value: JSON) -> bool:
        """Whether neither the value nor one of its items is among those named."""
        return not self._found(value)


@dataclass(frozen=True, slots=True)
class _Ordering(_Comparison):
    def __post_init__(self) -> None:
        _check_scalar(self.operator, self.value)
        if isinstance(self.value, bool):
            msg = f"{self.operator} takes a number or text, got {self.value}"
            raise FilterError(msg)

    @abstractmethod
    def _orders(self, item: Any) -> bool: ...

    def test(self, value: JSON) -> bool:
        """Whether the value, or one of its items, is of the same kind and in the range."""
        wanted_text = isinstance(self.value, str)
        return any(
            isinstance(item, str) == wanted_text and isinstance(item, (str, int, float)) and self._orders(item)
            for item in _items(value)
            if not isinstance(item, bool)
        )


@dataclass(frozen=True, slots=True)
class Gt(_Ordering):
    """The field is greater than the value; text compares by code points."""

    operator: ClassVar[str] = "$gt"

    def _orders(self, item: Any) -> bool:
        return item > self.value


@dataclass(frozen=True, slots=True)
class Gte(_Ordering):
    """The field is greater than the value or equal to it."""

    operator: ClassVar[str] = "$gte"

    def _orders(self, item: Any) -> bool:
        return item >= self.value


@dataclass(frozen=True, slots=True)
class Lt(_Ordering):
    """The field is less than the value."""

    operator: ClassVar[str] = "$lt"

    def _orders(self, item: Any) -> bool:
        return item < self.value


@dataclass(frozen=True, slots=True)
class Lte(_Ordering):
    """The field is less than the value or equal to it."""

    operator: ClassVar[str] = "$lte"

    def _orders(self, item: Any) -> bool:
        return item <= self.value


@dataclass(frozen=True, slots=True)
class Contains(_Comparison):
    """The field is a list that holds the value; a single value is no list."""

    operator: ClassVar[str] = "$contains"

    def test(self, value: JSON) -> bool:
        """Whether the value is a list with that item."""
        return isinstance(value, (list, tuple)) and any(_same(item, self.value) for item in value)


@dataclass(frozen=True, slots=True)
class _TextCondition(_Condition):
    value: str

    def __post_init__(self) -> None:
        if not isinstance(self.value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"{self.operator} takes text, got {self.value!r:.80}"
            raise FilterError(msg)


@dataclass(frozen=True, slots=True)
class Text(_TextCondition):
    """The field holds the text, whatever the case."""

    operator: ClassVar[str] = "$text"

    def test(self, value: JSON) -> bool:
        """Whether the value, or one of its items, holds the text."""
        wanted = self.value.casefold()
        return any(isinstance(item, str) and wanted in item.casefold() for item in _items(value))


@dataclass(frozen=True, slots=True)
class Glob(_TextCondition):
    """The whole field fits the pattern, whatever the case; ``*`` is any run of characters and ``?`` any one."""

    operator: ClassVar[str] = "$glob"

    def test(self, value: JSON) -> bool:
        """Whether the value, or one of its items, fits the pattern as a whole."""
        pattern = self.value.casefold()
        return any(isinstance(item, str) and _fits(pattern, item.casefold()) for item in _items(value))


def _fits(pattern: str, text: str) -> bool:
    """Match a glob by going back to the last ``*`` only, which is enough and cannot blow up."""
    at_pattern = at_text = 0
    last_star, resume = -1, 0
    while at_text < len(text):
        if at_pattern < len(pattern) and pattern[at_pattern] == "*":
            last_star, resume = at_pattern, at_text
            at_pattern += 1
        elif at_pattern < len(pattern) and pattern[at_pattern] in ("?", text[at_text]):
            at_pattern += 1
            at_text += 1
        elif last_star >= 0:
            resume += 1
            at_pattern, at_text = last_star + 1, resume
        else:
            return False
    return all(character == "*" for character in pattern[at_pattern:])


@dataclass(frozen=True, slots=True)
class Exists(_Condition):
    """The field is there and not null or, with ``value=False``, is not."""

    operator: ClassVar[str] = "$exists"
    value: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.value, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"$exists takes true or false, got {self.value!r:.80}"
            raise FilterError(msg)

    def test(self, value: JSON) -> bool:
        """Whether the field's presence is as asked for."""
        return (value is not None) == self.value


@dataclass(frozen=True, slots=True)
class And:
    """Every one of the filters matches."""

    operator: ClassVar[str] = "$and"
    filters: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one of the filters matches."""

    operator: ClassVar[str] = "$or"
    filters: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The filter does not match."""

    operator: ClassVar[str] = "$not"
    filter: Filter


Condition: TypeAlias = Eq | Ne | In | NotIn | Gt | Gte | Lt | Lte | Contains | Text | Glob | Exists
Filter: TypeAlias = Condition | And | Or | Not

CONDITIONS: dict[str, type[Condition]] = {
    kind.operator: kind for kind in (Eq, Ne, In, NotIn, Gt, Gte, Lt, Lte, Contains, Text, Glob, Exists)
}
"""The class of each condition, by the operator's name in JSON."""
OPERATORS: frozenset[str] = frozenset({*CONDITIONS, "$and", "$or", "$not"})
"""Every operator, by the name it has in JSON."""
