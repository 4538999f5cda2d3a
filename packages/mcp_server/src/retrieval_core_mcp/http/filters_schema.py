"""The JSON schema of filters, as :func:`retrieval_core.types.filters.syntax.parse_filter` reads them."""

from __future__ import annotations

from typing import Any

_THIS = "#/components/schemas/Filter"
_LARGEST = 1.7976931348623157e308
_TEXT: dict[str, Any] = {"type": "string"}
_NUMBER: dict[str, Any] = {"type": "number", "minimum": -_LARGEST, "maximum": _LARGEST}
_BOOLEAN: dict[str, Any] = {"type": "boolean"}
_SCALAR: dict[str, Any] = {"anyOf": [_TEXT, _NUMBER, _BOOLEAN]}
_ORDERED: dict[str, Any] = {"anyOf": [_TEXT, _NUMBER]}
_SEVERAL: dict[str, Any] = {"type": "array", "items": _SCALAR}
_OPERATORS: dict[str, Any] = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": False,
    "properties": {
        "$eq": _SCALAR,
        "$ne": _SCALAR,
        "$in": _SEVERAL,
        "$nin": _SEVERAL,
        "$gt": _ORDERED,
        "$gte": _ORDERED,
        "$lt": _ORDERED,
        "$lte": _ORDERED,
        "$contains": _SCALAR,
        "$text": _TEXT,
        "$glob": _TEXT,
        "$exists": _BOOLEAN,
    },
}
_FILTERS: dict[str, Any] = {"type": "array", "minItems": 1, "items": {"$ref": _THIS}}

FILTER: dict[str, Any] = {
    "description": "Conditions by field, combined with $and, $or and $not. A bare value means $eq. "
    "At most 256 conditions, and 64 levels.",
    "type": "object",
    "minProperties": 1,
    "properties": {"$and": _FILTERS, "$or": _FILTERS, "$not": {"$ref": _THIS}},
    "patternProperties": {"^[^$]": {"anyOf": [*_SCALAR["anyOf"], _OPERATORS]}},
    "additionalProperties": False,
}
