"""The translation of filters into Qdrant's language.

Qdrant's conditions on a point's payload differ from our filters. For Qdrant, 1 and 1.0 are two values, field names
have a syntax, and integers have 64 bits. So our points contain, besides their fields, a digest of every field and of
every value, and their numbers under digests of their fields (:func:`digested`). Presence, equality and membership
compare digests, and comparisons with numbers use a range. These filters are exact, and no part of them reaches Qdrant
as a name.

For comparisons of text, Qdrant only selects the points that have the field. The store then tests each of them with
:func:`~retrieval_core.types.filters.matches`. It does the same with points of another program:
there Qdrant selects by equality and by comparisons with numbers, in fields with plain names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b
from math import isfinite
from typing import TYPE_CHECKING, Any
from uuid import UUID

from retrieval_core.adapters.stores.foreign import positions_as_text
from retrieval_core.adapters.stores.services import combine, distinct, flat, item_token
from retrieval_core.types.filters import And, Contains, Eq, Exists, Gt, Gte, In, Lt, Lte, Ne, Not, NotIn, Or

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from retrieval_core.adapters.stores.foreign import FieldMapping
    from retrieval_core.adapters.stores.services import Expression
    from retrieval_core.types import JSON
    from retrieval_core.types.filters import Condition, Filter, Scalar

OWN = "_rc"
"""The part of a payload that is this library's alone."""
HAS = f"{OWN}.has"
"""Digests of fields, and of what lists hold."""
IS = f"{OWN}.is"
"""Digests of the values and items of fields."""
NUMBERS = f"{OWN}.num"
"""Numbers, each below the digest of its field."""

EXACT = 2**53
"""Below it, comparing with a rounded number is comparing with the number itself."""
# Qdrant reads JSON of at most 128 levels, and each level of a filter takes two.
_DEEPEST = 40


@dataclass(frozen=True, slots=True)
class Pushed:
    """What is asked of Qdrant for a filter.

    Attributes:
        expression: Holds for everything that matches.
        is_exact: Whether it holds for nothing else.
    """

    expression: Expression
    is_exact: bool


EVERYTHING = Pushed(expression=True, is_exact=True)


def translate(condition: Filter | None) -> Pushed:
    """Return a filter in Qdrant's language; ``None`` matches everything."""
    if condition is None:
        return EVERYTHING
    if isinstance(condition, (And, Or, Not)) and condition.depth > _DEEPEST:
        return Pushed(expression=True, is_exact=False)
    return _of(condition, negated=False)


def digested(fields: Mapping[str, JSON]) -> dict[str, Any]:
    """Return the part of a chunk's payload that its filters look at: :data:`HAS`, :data:`IS` and :data:`NUMBERS`."""
    has: dict[str, None] = {}
    values: dict[str, None] = {}
    numbers: dict[str, list[float]] = {}
    for path, value in flat(fields).items():
        has[digest(path)] = None
        is_list = isinstance(value, (list, tuple))
        for item in value if is_list else (value,):
            if not isinstance(item, (str, int, float)):
                continue
            values[_equality(path, item)] = None
            if is_list:
                has[_membership(path, item)] = None
            if not isinstance(item, (str, bool)):
                numbers.setdefault(digest(path), []).append(float(item))
    return {"has": list(has), "is": list(values), "num": numbers}


def digest(text: str) -> str:
    """Return 24 letters and digits that stand for a text."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def both(*expressions: Expression) -> Expression:
    """Combine expressions so that every one must hold."""
    return combine("must", expressions, decisive=False)


def either(*expressions: Expression) -> Expression:
    """Combine expressions so that at least one must hold."""
    return combine("should", expressions, decisive=True)


def none_of(expression: Expression) -> Expression:
    """Return the opposite of an expression."""
    return not expression if isinstance(expression, bool) else {"must_not": [expression]}


def one_of(key: str, values: Iterable[str | int]) -> Expression:
    """Return the expression for a field that has one of some values; ``key`` is a path of ours, never a user's."""
    given = [*values]
    return {"key": key, "match": {"any": given}} if given else False


def in_range(key: str, **bounds: float) -> dict[str, Any]:
    """Return the expression for a field with a number between bounds, such as ``gte=1``."""
    return {"key": key, "range": bounds}


def as_filter(expression: Expression) -> dict[str, Any] | None:
    """Return an expression as a whole filter in Qdrant's JSON; ``None`` for everything. Not for ``False``."""
    if isinstance(expression, bool):
        return None
    return expression if expression.keys() <= {"must", "should", "must_not"} else {"must": [expression]}


def _of(condition: Filter, *, negated: bool) -> Pushed:
    match condition:
        case And(filters) | Or(filters):
            parts = [_of(part, negated=negated) for part in filters]
            combine = both if isinstance(condition, And) != negated else either
            return Pushed(combine(*(part.expression for part in parts)), all(part.is_exact for part in parts))
        case Not(inner):
            return _of(inner, negated=not negated)
        case _:
            pushed = _condition(condition)
            if not negated:
                return pushed
            return Pushed(none_of(pushed.expression), is_exact=True) if pushed.is_exact else Pushed(True, False)


def _condition(condition: Condition) -> Pushed:
    match condition:
        case Eq(path, value) | Ne(path, value):
            return _exact(one_of(IS, (_equality(path, value),)), wanted=isinstance(condition, Eq))
        case In(path, values) | NotIn(path, values):
            tokens = dict.fromkeys(_equality(path, value) for value in values)
            return _exact(one_of(IS, tokens), wanted=isinstance(condition, In))
        case Contains(path, value):
            return _exact(one_of(HAS, (_membership(path, value),)))
        case Exists(path, value):
            return _exact(one_of(HAS, (digest(path),)), wanted=value)
        case Gt(path, value) | Gte(path, value) | Lt(path, value) | Lte(path, value) if (
            not isinstance(value, str) and abs(value) < EXACT
        ):
            bound = {condition.operator.removeprefix("$"): float(value)}
            return _exact(in_range(f"{NUMBERS}.{digest(path)}", **bound))
        case _:
            return Pushed(one_of(HAS, (digest(condition.field),)), is_exact=False)


def _exact(expression: Expression, *, wanted: bool = True) -> Pushed:
    return Pushed(expression if wanted else none_of(expression), is_exact=True)


def _equality(path: str, value: str | float) -> str:
    return digest(item_token(path, value))


def _membership(path: str, value: str | float) -> str:
    return digest(f"[{item_token(path, value)}")


_SIMPLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LARGEST_ID = 2**64
_IDS_AS_TEXT = 20  # digits of a number that 64 bits hold


def native_id(chunk_id: str) -> int | str | None:
    """Return a point's id in the form that Qdrant takes; ``None`` where no point can have it."""
    if chunk_id.isascii() and chunk_id.isdigit() and len(chunk_id) <= _IDS_AS_TEXT:
        return number if (number := int(chunk_id)) < _LARGEST_ID and str(number) == chunk_id else None
    try:
        return chunk_id if str(UUID(chunk_id)) == chunk_id else None
    except ValueError:
        return None


def translate_foreign(condition: Filter | None, mapping: FieldMapping) -> Pushed:
    """Return an expression that holds for everything that matches a filter; ``None`` matches everything."""
    return Pushed(True if condition is None else _pushed(condition, mapping), is_exact=condition is None)


def range_expression(document_id: str, first: int, last: int, mapping: FieldMapping) -> Expression:
    """Return an expression that holds for a range of a document's chunks, and for those whose position is unknown."""
    if first > last:
        return False
    documents, positions = keys_of("document_id", mapping), keys_of("chunk_index", mapping)
    own = native_id(document_id)
    by_id: Expression = False if own is None else {"has_id": [own]}  # a point without a document ID; it is tested again
    if not documents or not positions:
        return by_id
    of_document = either(*(_equal(key, document_id, is_read=True) for key in documents))
    texts = positions_as_text(first, last)
    if texts is None:  # each point is tested again
        return either(of_document, by_id)
    in_place = either(*(either(in_range(key, gte=first, lte=last), one_of(key, texts)) for key in positions))
    is_unplaced = _absent(positions) if first <= 0 <= last else False
    return either(both(of_document, either(in_place, is_unplaced)), by_id)


def _pushed(condition: Filter, mapping: FieldMapping) -> Expression:
    match condition:
        case And(filters):
            return both(*(_pushed(part, mapping) for part in filters))
        case Or(filters):
            return either(*(_pushed(part, mapping) for part in filters))
        case Eq(path, value) | Contains(path, value):
            return _any_of(path, (value,), mapping)
        case In(path, values):
            return _any_of(path, values, mapping)
        case Gt(path, value) | Gte(path, value) | Lt(path, value) | Lte(path, value) if not isinstance(value, str):
            # A field of ours may be read from text.
            keys = () if path in mapping.paths else keys_of(path, mapping)
            bound = {condition.operator.removeprefix("$"): value}
            return in_range(keys[0], **bound) if keys and abs(value) < EXACT else True
        case _:
            return True


def _any_of(path: str, values: Sequence[Scalar], mapping: FieldMapping) -> Expression:
    keys = keys_of(path, mapping)
    if not keys:
        return True
    found = either(*(_equal(key, value, is_read=path in mapping.paths) for key in keys for value in values))
    if path != "document_id":
        return found if len(keys) == len(mapping.places(path)) else either(found, _absent(keys))
    # If the document id of a point is missing or unreadable, the point counts as one document.
    own = [number for value in values if isinstance(value, str) and (number := native_id(value)) is not None]
    return either(found, _absent(keys), {"has_id": own} if own else False)


def _absent(keys: Sequence[str]) -> Expression:
    return both(*({"is_empty": {"key": key}} for key in keys))


def _equal(where: str, value: Scalar, *, is_read: bool) -> Expression:
    """Compare with a value.

    Args:
        is_read: Whether the payload's value is read first: numbers as text, or digits as a number.
    """
    if isinstance(value, bool):
        return {"key": where, "match": {"value": value}}
    if not isinstance(value, str):
        # 1 and 1.0 are one value to us, and a range finds both.
        return True if is_read or abs(value) >= EXACT else in_range(where, gte=value, lte=value)
    found = one_of(where, distinct((value,)))
    if not is_read or (number := _as_number(value)) is None:
        return found
    if not isfinite(number) or abs(number) >= EXACT:
        return True
    return either(found, in_range(where, gte=number, lte=number))


def _as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def keys_of(path: str, mapping: FieldMapping) -> tuple[str, ...]:
    """Return the places of a field in the payload, up to the first one that Qdrant cannot be asked for."""
    keys: list[str] = []
    for place in mapping.places(path) if path != "id" else ():
        if place[0] in mapping.json or not all(map(_SIMPLE_NAME.fullmatch, place)):
            break
        keys.append(".".join(place))
    return tuple(keys)
