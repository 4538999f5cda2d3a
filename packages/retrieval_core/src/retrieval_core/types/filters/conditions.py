"""The filters: conditions on one field, each with its test, and ``And``, ``Or`` and ``Not``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from math import isfinite
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from retrieval_core.errors import FilterError
from retrieval_core.types.documents import MAX_BITS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrieval_core.types import JSON

Scalar: TypeAlias = str | int | float | bool

MAX_FILTER_DEPTH = 64
"""How deeply ``And``, ``Or`` and ``Not`` may nest: every store can read a filter of this depth."""


def check_filter_depth(depth: int) -> None:
    """Refuse a depth above :data:`MAX_FILTER_DEPTH`; parsers call it while they descend, to spare the stack.

    Raises:
        FilterError: It is too deep.
    """
    if depth > MAX_FILTER_DEPTH:
        msg = f"a filter may nest at most {MAX_FILTER_DEPTH} levels deep"
        raise FilterError(msg)


def shown(value: object) -> str:
    """Return the first 80 characters of a value's ``repr``; the name of its type where that raises."""
    try:
        return f"{value!r:.80}"
    except Exception:  # noqa: BLE001 - nested too deeply, or a __repr__ that fails in its own way
        return f"a value of the type {type(value).__name__}"


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
        msg = f"{operator} takes text, a finite number or a boolean, got {shown(value)}.{hint}"
        raise FilterError(msg)
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        msg = f"{operator} takes whole numbers below 2 to the {MAX_BITS}, got one of {value.bit_length()} bits"
        raise FilterError(msg)


@dataclass(frozen=True, slots=True)
class _Condition(ABC):
    """A test of one field."""

    operator: ClassVar[str]
    field: str

    def _check_field(self) -> None:
        if not isinstance(self.field, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"{self.operator} takes the name of a field as text, got {shown(self.field)}"
            raise FilterError(msg)

    @abstractmethod
    def test(self, value: JSON) -> bool:
        """Whether a field with this value passes; ``None`` stands for an absent field."""


@dataclass(frozen=True, slots=True)
class _Comparison(_Condition):
    value: Scalar

    def __post_init__(self) -> None:
        self._check_field()
        _check_scalar(self.operator, self.value)


@dataclass(frozen=True, slots=True)
class Eq(_Comparison):
    """The field is equal to the value."""

    operator: ClassVar[str] = "$eq"

    def test(self, value: JSON) -> bool:
        """Whether the value, or one of its items, is equal."""
        return any(_same(item, self.value) for item in _items(value))


@dataclass(frozen=True, slots=True)
class Ne(_Comparison):
    """The field is absent or differs from the value."""

    operator: ClassVar[str] = "$ne"

    def test(self, value: JSON) -> bool:
        """Whether neither the value nor one of its items is equal."""
        return not any(_same(item, self.value) for item in _items(value))


@dataclass(frozen=True, slots=True)
class _Membership(_Condition):
    values: tuple[Scalar, ...]
    _wanted: frozenset[tuple[bool, Scalar]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_field()
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
        """Whether the value, or one of its items, is among the values."""
        return self._found(value)


@dataclass(frozen=True, slots=True)
class NotIn(_Membership):
    """The field is absent or differs from every value."""

    operator: ClassVar[str] = "$nin"

    def test(self, value: JSON) -> bool:
        """Whether neither the value nor one of its items is among the values."""
        return not self._found(value)


@dataclass(frozen=True, slots=True)
class _Ordering(_Comparison):
    _compare: ClassVar[Callable[..., bool]]

    def __post_init__(self) -> None:
        _Comparison.__post_init__(self)  # super() knows no class with slots in a dataclass
        if isinstance(self.value, bool):
            msg = f"{self.operator} takes a number or text, got {self.value}"
            raise FilterError(msg)

    def test(self, value: JSON) -> bool:
        """Whether the value, or one of its items, is of the same kind and in the range."""
        wanted_text, compare = isinstance(self.value, str), self._compare
        return any(
            isinstance(item, str) == wanted_text and isinstance(item, (str, int, float)) and compare(item, self.value)
            for item in _items(value)
            if not isinstance(item, bool)
        )


@dataclass(frozen=True, slots=True)
class Gt(_Ordering):
    """The field is greater than the value; text compares by code points."""

    operator: ClassVar[str] = "$gt"
    _compare: ClassVar[Callable[..., bool]] = gt


@dataclass(frozen=True, slots=True)
class Gte(_Ordering):
    """The field is greater than the value or equal to it."""

    operator: ClassVar[str] = "$gte"
    _compare: ClassVar[Callable[..., bool]] = ge


@dataclass(frozen=True, slots=True)
class Lt(_Ordering):
    """The field is less than the value."""

    operator: ClassVar[str] = "$lt"
    _compare: ClassVar[Callable[..., bool]] = lt


@dataclass(frozen=True, slots=True)
class Lte(_Ordering):
    """The field is less than the value or equal to it."""

    operator: ClassVar[str] = "$lte"
    _compare: ClassVar[Callable[..., bool]] = le


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
        self._check_field()
        if not isinstance(self.value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"{self.operator} takes text, got {shown(self.value)}"
            raise FilterError(msg)


@dataclass(frozen=True, slots=True)
class Text(_TextCondition):
    """The field holds the text, ignoring case."""

    operator: ClassVar[str] = "$text"

    def test(self, value: JSON) -> bool:
        """Whether the value, or one of its items, holds the text."""
        wanted = self.value.casefold()
        return any(isinstance(item, str) and wanted in item.casefold() for item in _items(value))


@dataclass(frozen=True, slots=True)
class Glob(_TextCondition):
    """The whole field fits the pattern, ignoring case; ``*`` is any run of characters and ``?`` any one."""

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
    """The field is present and not null or, with ``value=False``, is absent or null."""

    operator: ClassVar[str] = "$exists"
    value: bool = True

    def __post_init__(self) -> None:
        self._check_field()
        if not isinstance(self.value, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"$exists takes true or false, got {shown(self.value)}"
            raise FilterError(msg)

    def test(self, value: JSON) -> bool:
        """Whether the field's presence is ``self.value``."""
        return (value is not None) == self.value


@dataclass(frozen=True, slots=True)
class _Joined:
    operator: ClassVar[str]
    depth: int = field(init=False, repr=False, compare=False, kw_only=True)

    def _measure(self, filters: Sequence[Filter]) -> None:
        for part in filters:
            if not isinstance(part, (_Condition, _Joined)):  # pyright: ignore[reportUnnecessaryIsInstance]
                msg = f"{self.operator} joins filters, such as Eq('brand', 'Acme'), got {shown(part)}"
                raise FilterError(msg)
        depth = 1 + max((part.depth for part in filters if isinstance(part, _Joined)), default=0)
        check_filter_depth(depth)
        object.__setattr__(self, "depth", depth)


@dataclass(frozen=True, slots=True)
class _JoinsSeveral(_Joined):
    filters: tuple[Filter, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.filters, (list, tuple)):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"{self.operator} takes a tuple of filters, got {shown(self.filters)}"
            raise FilterError(msg)
        object.__setattr__(self, "filters", tuple(self.filters))
        self._measure(self.filters)


@dataclass(frozen=True, slots=True)
class And(_JoinsSeveral):
    """Every one of the filters matches."""

    operator: ClassVar[str] = "$and"


@dataclass(frozen=True, slots=True)
class Or(_JoinsSeveral):
    """At least one of the filters matches."""

    operator: ClassVar[str] = "$or"


@dataclass(frozen=True, slots=True)
class Not(_Joined):
    """The filter does not match."""

    operator: ClassVar[str] = "$not"
    filter: Filter

    def __post_init__(self) -> None:
        self._measure((self.filter,))


Condition: TypeAlias = Eq | Ne | In | NotIn | Gt | Gte | Lt | Lte | Contains | Text | Glob | Exists
Filter: TypeAlias = Condition | And | Or | Not

CONDITIONS: dict[str, type[Condition]] = {
    kind.operator: kind for kind in (Eq, Ne, In, NotIn, Gt, Gte, Lt, Lte, Contains, Text, Glob, Exists)
}
"""The class of each condition, by the operator's name in JSON."""
OPERATORS: frozenset[str] = frozenset({*CONDITIONS, "$and", "$or", "$not"})
"""Every operator's name in JSON."""
