"""Results as bytes, for caches outside this process.

The bytes are a header and JSON. The header holds a digest of the fields of every type in :mod:`retrieval_core.types`
and a checksum, so bytes of another version of the library and damaged bytes are told from good ones. What comes back is
checked field by field: whoever can write to the cache can put a wrong answer there, but nothing of a wrong type, and no
code. The fields are read from the types themselves, so a new one is taken along without a change here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cache
from hashlib import sha256
from typing import Annotated, Any
from zlib import crc32

from pydantic import ConfigDict, PlainSerializer, PlainValidator, TypeAdapter
from pydantic_core import PydanticSerializationError

from retrieval_core import types
from retrieval_core.errors import InvalidParameterError
from retrieval_core.types import RetrievalResult

_FORMAT = 2
_SCHEMA_BYTES = 12
_HEADER_BYTES = _SCHEMA_BYTES + 4
_QUICK_BYTES = 200_000


def encode(result: RetrievalResult) -> bytes:
    """Return a result as bytes; time zones are kept by their offset from UTC.

    Raises:
        InvalidParameterError: The result holds something else than :mod:`retrieval_core.types` says.
    """
    try:
        data = _adapter().dump_json((result,), warnings="error")
    except (PydanticSerializationError, TypeError, ValueError) as error:
        msg = f"the result cannot be written as JSON: {error}; make it of what retrieval_core.types names"
        raise InvalidParameterError(msg) from error
    return schema() + crc32(data).to_bytes(4, "big") + data


def decode(data: bytes) -> RetrievalResult | None:
    """Return the result that the bytes were made of, ``None`` where they are of another version or damaged."""
    if data[:_SCHEMA_BYTES] != schema():
        return None
    payload = data[_HEADER_BYTES:]
    if crc32(payload).to_bytes(4, "big") != data[_SCHEMA_BYTES:_HEADER_BYTES]:
        return None
    try:
        return _adapter().validate_json(payload, strict=True)[0]
    except (OverflowError, TypeError, ValueError):
        return None


def is_quickly_decoded(data: bytes) -> bool:
    """Whether decoding takes no longer than an event loop may be kept."""
    return len(data) <= _QUICK_BYTES


@cache
def schema() -> bytes:
    """Return what the bytes of this version begin with."""
    records = [kind for _, kind in sorted(vars(types).items()) if is_dataclass(kind)]
    described = [(kind, [(field.name, str(field.type)) for field in fields(kind)]) for kind in records]
    return sha256(repr((_FORMAT, described)).encode()).digest()[:_SCHEMA_BYTES]


@cache
def _adapter() -> TypeAdapter[tuple[RetrievalResult]]:
    moment = Annotated[datetime, PlainValidator(datetime.fromisoformat), PlainSerializer(datetime.isoformat)]
    return _adapter_with(moment, Mapping, Mapping[str, Any])


def _adapter_with(datetime: Any, Mapping: Any, Metadata: Any) -> TypeAdapter[tuple[RetrievalResult]]:  # noqa: ARG001, N803
    # What the types import for type checkers alone is looked up in this frame.
    return TypeAdapter(tuple[RetrievalResult], config=ConfigDict(ser_json_inf_nan="constants"))
