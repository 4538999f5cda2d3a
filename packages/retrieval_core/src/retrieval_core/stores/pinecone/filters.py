"""Our filters in Pinecone's language, with the meaning that :func:`retrieval_core.filters.matches` gives them.

Values travel as JSON values and names as keys: none becomes part of an expression. What Pinecone means is taken from
its documentation; two points on which it is silent, or has changed its mind, are never relied on:

- Whether ``$ne`` and ``$nin`` match where the field is absent: each stands beside an explicit ``$exists``.
- Whether ``$in`` takes booleans, and values of several kinds: each kind is asked for by itself.

``$gt``, ``$gte``, ``$lt`` and ``$lte`` compare numbers only at Pinecone, and without a test of a value's kind their
negation cannot be said. So with text, and below ``Not``, they are refused, and so is ``$contains`` below ``Not``.

Where Pinecone cannot be exact it is asked for more: ``$contains`` also finds single values, and an opaque value passes
every comparison. The store therefore holds each answer against :func:`~retrieval_core.filters.matches`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from retrieval_core.errors import UnsupportedFilterError
from retrieval_core.filters import (
    And,
    Contains,
    Eq,
    Exists,
    Gt,
    Gte,
    In,
    Lt,
    Lte,
    Ne,
    Not,
    NotIn,
    Or,
)
from retrieval_core.stores.pinecone.fields import ITEMS, OPAQUE, can_be_name, exact_float, is_text, item_token

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.filters import Condition, Filter, Scalar

Expression: TypeAlias = "dict[str, Any] | bool"
"""A filter in Pinecone's JSON; true and false where everything or nothing passes, which it has no words for."""

SUPPORTED = frozenset(
    {"$eq", "$ne", "$in", "$nin", "$gt", "$gte", "$lt", "$lte", "$exists", "$contains", "$and", "$or", "$not"}
)
"""Operators that can be translated; the module's documentation says where an operand cannot."""

MOST_VALUES = 10_000
"""Values that Pinecone takes in one ``$in`` or ``$nin``."""

_LARGEST = 1.7976931348623157e308


def translate(condition: Filter | None, names: Mapping[str, str] | None = None) -> Expression:
    """Return a filter in Pinecone's language.

    Args:
        condition: ``None`` lets everything pass.
        names: For an index that others filled: the name there, by our name of a field. ``None`` for our own.

    Raises:
        UnsupportedFilterError: Pinecone cannot evaluate it exactly.
    """
    return True if condition is None else _Translation(names).of(condition, negated=False)


def both(*expressions: Expression) -> Expression:
    """Combine expressions so that every one must hold."""
    return _combined("$and", expressions)


def either(*expressions: Expression) -> Expression:
    """Combine expressions so that at least one must hold."""
    return _combined("$or", expressions)


def _combined(operator: str, expressions: Sequence[Expression]) -> Expression:
    decisive = operator == "$or"
    parts = [part for part in expressions if part is not (not decisive)]
    if any(part is decisive for part in parts):
        return decisive
    return not decisive if not parts else parts[0] if len(parts) == 1 else {operator: parts}


@dataclass(frozen=True, slots=True)
class _Translation:
    names: Mapping[str, str] | None

    def of(self, condition: Filter, *, negated: bool) -> Expression:
        match condition:
            case And(filters) | Or(filters):
                parts = [self.of(part, negated=negated) for part in filters]
                return both(*parts) if isinstance(condition, And) != negated else either(*parts)
            case Not(inner):
                return self.of(inner, negated=not negated)
            case _:
                return self._condition(condition, negated=negated)

    def _condition(self, condition: Condition, *, negated: bool) -> Expression:
        match condition:
            case Eq(path, value) | Ne(path, value):
                return self._member(path, (value,), wanted=isinstance(condition, Eq) != negated)
            case In(path, values) | NotIn(path, values):
                return self._member(path, values, wanted=isinstance(condition, In) != negated)
            case Exists(path, value):
                return self._exists(path, wanted=value != negated)
            case Contains(path, value) if not negated:
                return self._member(path, (value,), wanted=True)
            case Gt(path, value) | Gte(path, value) | Lt(path, value) | Lte(path, value) if (
                not negated and not isinstance(value, str)
            ):
                own = {OPAQUE: {"$in": [path]}} if self.names is None and is_text(path) else False
                name = self._name(path)
                return either(_ordering(name, condition.operator, value) if name else False, own)
            case _:
                raise UnsupportedFilterError(_refusal(condition, negated=negated))

    def _name(self, path: str) -> str | None:
        name = path if self.names is None else self.names.get(path, path)
        return name if can_be_name(name) and is_text(name) else None

    def _member(self, path: str, values: Sequence[Scalar], *, wanted: bool) -> Expression:
        texts = [value for value in values if isinstance(value, str) and is_text(value)]
        numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
        exact = [number for number in map(exact_float, numbers) if number is not None]
        groups: list[Sequence[Scalar]] = [texts, exact, *([value] for value in values if isinstance(value, bool))]
        tokens = [item_token(path, value) for value in values] if self.names is None else []
        name = self._name(path)
        native = [_among(name, group, wanted=wanted) for group in groups if group] if name else []
        listed = [_among(ITEMS, tokens, wanted=wanted)] if tokens else []
        if wanted:
            return either(*native, *listed)
        return both(
            either({name: {"$exists": False}}, both(*native)) if name and native else True,
            either({ITEMS: {"$exists": False}}, *listed) if listed else True,
        )

    def _exists(self, path: str, *, wanted: bool) -> Expression:
        name = self._name(path)
        native: Expression = {name: {"$exists": wanted}} if name else not wanted
        if self.names is not None or not is_text(path):
            return native
        if wanted:
            return either(native, {OPAQUE: {"$in": [path]}})
        return both(native, either({OPAQUE: {"$exists": False}}, {OPAQUE: {"$nin": [path]}}))


def _among(name: str, values: Sequence[Scalar], *, wanted: bool) -> Expression:
    if len(values) > MOST_VALUES:
        msg = f"Pinecone takes at most {MOST_VALUES} values in one $in or $nin, got {len(values)}; ask in parts"
        raise UnsupportedFilterError(msg)
    if len(values) == 1:
        return {name: {"$eq" if wanted else "$ne": values[0]}}
    return {name: {"$in" if wanted else "$nin": list(values)}}


def _ordering(name: str, operator: str, value: float) -> Expression:
    """Compare with the number itself, though only 64-bit floats can be sent."""
    upward = operator in {"$gt", "$gte"}
    try:
        limit = float(value)
    except OverflowError:  # beyond every number that is stored
        return (
            {name: {"$gte" if upward else "$lte": -_LARGEST if upward else _LARGEST}}
            if upward == (value < 0)
            else False
        )
    if limit != value:  # no stored number lies between the two, so only the side of the limit counts
        operator = ("$gte" if limit > value else "$gt") if upward else ("$lte" if limit < value else "$lt")
    return {name: {operator: limit}}


def _refusal(condition: Condition, *, negated: bool) -> str:
    if condition.operator not in SUPPORTED:
        return f"a Pinecone index has no operator {condition.operator}; narrow the search by $eq, $in or numbers"
    if negated:
        return (
            f"a Pinecone index cannot evaluate {condition.operator} below a negation exactly; "
            "say the opposite instead, for instance $lte in place of a negated $gt"
        )
    return (
        f"a Pinecone index compares numbers only, and {condition.operator} on {condition.field!r:.80} got text; "
        "index such a field as a number, for instance a date as seconds since 1970"
    )
