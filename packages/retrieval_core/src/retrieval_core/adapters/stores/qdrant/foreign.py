"""The translation of filters into Qdrant's language, for points that another program wrote.

It is never exact, as each point is tested again: Qdrant is asked for equality and for comparisons with numbers, of
fields with plain names.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import TYPE_CHECKING
from uuid import UUID

from retrieval_core.adapters.stores.foreign import positions_as_text
from retrieval_core.adapters.stores.qdrant.filters import EXACT, Pushed, both, either, in_range, one_of
from retrieval_core.adapters.stores.qdrant.points import distinct
from retrieval_core.types.filters import And, Contains, Eq, Gt, Gte, In, Lt, Lte, Or

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.adapters.stores.foreign import FieldMapping
    from retrieval_core.adapters.stores.qdrant.filters import Expression
    from retrieval_core.types.filters import Filter, Scalar

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


def translate(condition: Filter | None, mapping: FieldMapping) -> Pushed:
    """Return an expression that holds for everything that matches a filter; ``None`` matches everything."""
    return Pushed(True if condition is None else _pushed(condition, mapping), is_exact=condition is None)


def range_expression(document_id: str, first: int, last: int, mapping: FieldMapping) -> Expression:
    """Return an expression that holds for a range of a document's chunks, and for those whose position is unknown."""
    documents, positions = _keys("document_id", mapping), _keys("chunk_index", mapping)
    if first > last or not documents or not positions:
        return False
    of_document = either(*(_equal(key, document_id, is_read=True) for key in documents))
    texts = positions_as_text(first, last)
    if texts is None:  # each point is tested again
        return of_document
    in_place = either(*(either(in_range(key, gte=first, lte=last), one_of(key, texts)) for key in positions))
    return both(of_document, either(in_place, _absent(positions) if first <= 0 <= last else False))


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
            keys = () if path in mapping.paths else _keys(path, mapping)
            bound = {condition.operator.removeprefix("$"): value}
            return in_range(keys[0], **bound) if keys and abs(value) < EXACT else True
        case _:
            return True


def _any_of(path: str, values: Sequence[Scalar], mapping: FieldMapping) -> Expression:
    keys = _keys(path, mapping)
    if not keys:
        return True
    found = either(*(_equal(key, value, is_read=path in mapping.paths) for key in keys for value in values))
    if path != "document_id":
        return found if len(keys) == len(mapping.places(path)) else either(found, _absent(keys))
    # A point whose document id is absent, or cannot be read as one, is a document of its own.
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


def _keys(path: str, mapping: FieldMapping) -> tuple[str, ...]:
    """Return the places of a field in the payload, up to the first one that Qdrant cannot be asked for."""
    keys: list[str] = []
    for place in mapping.places(path) if path != "id" else ():
        if place[0] in mapping.json or not all(map(_SIMPLE_NAME.fullmatch, place)):
            break
        keys.append(".".join(place))
    return tuple(keys)
