"""Typed filters on a chunk's fields, and :func:`matches`, which defines what they mean.

A store that evaluates filters in its own language must agree with :func:`matches` on every chunk; the conformance kit
in :mod:`retrieval_core.testing` checks that. The JSON form is in :mod:`retrieval_core.types.filters.syntax`. The rules:

- A field is named by its path, ``"specs.ram"``. A key that itself holds the dot wins over the nested one.
- A ``null`` is the same as an absent field.
- A list matches where one of its items does.
- Numbers compare with numbers and text with text; ``true`` is not ``1``; nothing else is ever equal.
- ``Ne``, ``NotIn`` and ``Not`` are plain negations, so they match if the field is absent.
- ``Text`` and ``Glob`` ignore case. In a glob ``*`` stands for any run of characters and ``?`` for one; there is no
  other syntax, and matching takes time linear in the text for each ``*``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from retrieval_core.errors import FilterError
from retrieval_core.types.documents import MAX_BITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from retrieval_core.types import JSON, Chunk

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
    if "?" not in pattern:
        return _fits_parts(pattern.split("*"), text)
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


def _fits_parts(parts: Sequence[str], text: str) -> bool:
    """Match a glob that was split at its stars, which is quicker."""
    first, last = parts[0], parts[-1]
    if len(parts) == 1:
        return text == first
    at, end = len(first), len(text) - len(last)
    if at > end or not (text.startswith(first) and text.endswith(last)):
        return False
    for part in parts[1:-1]:
        if (found := text.find(part, at, end)) < 0:
            return False
        at = found + len(part)
    return True


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


def lookup(fields: Mapping[str, JSON], path: str) -> JSON:
    """Return the value at a dotted path; ``None`` if there is none."""
    if path in fields:
        return fields[path]
    head, dot, rest = path.partition(".")
    inner = fields.get(head) if dot else None
    return lookup(inner, rest) if isinstance(inner, Mapping) else None


def chunk_fields(chunk: Chunk) -> Mapping[str, JSON]:
    """Return the fields of a chunk that filters see: its own and its metadata, which win where a name is in both."""
    pages, timestamp = chunk.page_span, chunk.timestamp
    return {
        "id": chunk.id,
        "document_id": chunk.document_id,
        "chunk_index": chunk.chunk_index,
        "page": tuple(range(pages.first, pages.last + 1)) if pages else None,
        "section": chunk.section_path,
        "parent_id": chunk.parent_id,
        "title": chunk.title,
        "source": chunk.source,
        "timestamp": timestamp.isoformat() if timestamp else None,
        **chunk.metadata,
    }


def matches(condition: Filter | None, fields: Mapping[str, JSON]) -> bool:
    """Whether fields match a filter; everything matches ``None``."""
    match condition:
        case None:
            return True
        case And(filters):
            return all(matches(part, fields) for part in filters)
        case Or(filters):
            return any(matches(part, fields) for part in filters)
        case Not(inner):
            return not matches(inner, fields)
        case _:
            return condition.test(lookup(fields, condition.field))


def all_of(*filters: Filter | None) -> Filter | None:
    """Combine filters so that every one must match, leaving out those that are ``None``."""
    given = tuple(item for item in filters if item is not None)
    return None if not given else given[0] if len(given) == 1 else And(given)


def parts_of(condition: Filter) -> Iterator[Filter]:
    """Yield a filter and all filters inside it."""
    yield condition
    match condition:
        case And(filters) | Or(filters):
            for part in filters:
                yield from parts_of(part)
        case Not(inner):
            yield from parts_of(inner)
        case _:
            pass


def operators_of(condition: Filter) -> frozenset[str]:
    """Return the names of all operators that a filter uses."""
    return frozenset(part.operator for part in parts_of(condition))


def paths_of(condition: Filter) -> frozenset[str]:
    """Return the paths that a filter looks at."""
    return frozenset(part.field for part in parts_of(condition) if not isinstance(part, (And, Or, Not)))


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
