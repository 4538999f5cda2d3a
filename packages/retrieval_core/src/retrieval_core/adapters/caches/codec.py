"""Results as bytes, for caches outside this process.

The bytes are a header and JSON. The header holds a digest of the fields of every type that occurs in a result and a
checksum, so bytes of another version of the library and damaged bytes are told from good ones. What comes back is
checked field by field: whoever can write to the cache can put a wrong answer there, but nothing of a wrong type, and no
code.

The fields are read from the types themselves, so a new one is taken along without a change here. JSON is written by the
standard library, because others refuse lone surrogates, which occur in real texts; they are kept as they stand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from functools import cache
from hashlib import sha256
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, Union, cast, get_args, get_origin, get_type_hints
from zlib import crc32
from zoneinfo import ZoneInfo

from retrieval_core.errors import InvalidParameterError
from retrieval_core.types import FrozenDict, RetrievalResult, freeze

_FORMAT = 1
_RECORDS = "retrieval_core.types."
_SCHEMA_BYTES = 12
_HEADER_BYTES = _SCHEMA_BYTES + 4
_ZONE = "@zone"
_QUICK_BYTES = 200_000

_MAPPING = get_origin(Mapping[str, int])

_Writer: TypeAlias = Callable[[Any], Any] | None
_Reader: TypeAlias = Callable[[Any], Any]


class _Json:
    """Stands for any JSON value in the hints, whose own name is an alias that refers to itself."""


def encode(result: RetrievalResult) -> bytes:
    """Return a result as bytes.

    Time zones are kept by their name, or else by their offset from UTC.

    Raises:
        InvalidParameterError: The result holds something else than :mod:`retrieval_core.types` says.
    """
    writer, _ = _record(RetrievalResult)
    try:
        payload = json.dumps(writer(result), ensure_ascii=False, separators=(",", ":"), check_circular=False)
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        msg = f"the result cannot be written as JSON: {error}; make it of what retrieval_core.types names"
        raise InvalidParameterError(msg) from error
    data = payload.encode("utf-8", "surrogatepass")
    return schema() + crc32(data).to_bytes(4, "big") + data


def decode(data: bytes) -> RetrievalResult | None:
    """Return the result that the bytes were made of, ``None`` where they are of another version or damaged."""
    if data[:_SCHEMA_BYTES] != schema():
        return None
    payload = data[_HEADER_BYTES:]
    if crc32(payload).to_bytes(4, "big") != data[_SCHEMA_BYTES:_HEADER_BYTES]:
        return None
    _, reader = _record(RetrievalResult)
    try:
        return reader(json.loads(payload.decode("utf-8", "surrogatepass")))
    except (LookupError, OSError, OverflowError, RecursionError, TypeError, ValueError):
        return None


def is_quickly_decoded(data: bytes) -> bool:
    """Whether decoding takes no longer than an event loop may be kept, and reads no file (of a time zone)."""
    return len(data) <= _QUICK_BYTES and f'"{_ZONE}"'.encode() not in data


@cache
def schema() -> bytes:
    """Return what the bytes of this version begin with."""
    described = [(kind.__name__, [(field.name, str(field.type)) for field in fields(kind)]) for kind in record_types()]
    return sha256(repr((_FORMAT, described)).encode()).digest()[:_SCHEMA_BYTES]


@cache
def record_types() -> tuple[type, ...]:
    """Return the types that a result consists of, itself first."""
    found: dict[type, None] = {}

    def collect(hint: Any) -> None:
        if _is_record(hint) and hint not in found:
            found[hint] = None
            for inner in _hints(hint).values():
                collect(inner)
        for inner in get_args(hint):
            collect(inner)

    collect(RetrievalResult)
    return tuple(found)


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and hint.__module__.startswith(_RECORDS) and hasattr(hint, "__dataclass_fields__")


def _hints(kind: type) -> dict[str, Any]:
    json_names = {"JSON": _Json, "Metadata": Mapping[str, _Json], "Mapping": Mapping}
    hints = get_type_hints(kind, localns=json_names)
    return {field.name: hints[field.name] for field in fields(kind) if field.init}


@cache
def _record(kind: type) -> tuple[Callable[[Any], Any], _Reader]:
    """Return how a record becomes a list of its fields' values, and how it is made of such a list."""
    hints = _hints(kind)
    codecs = [_codec(hint) for hint in hints.values()]
    writers = [(place, writer) for place, (writer, _) in enumerate(codecs) if writer is not None]
    readers = [reader for _, reader in codecs]
    values_of = attrgetter(*hints)

    def write(record: Any) -> list[Any]:
        values = list(values_of(record))
        for place, writer in writers:
            if values[place] is not None:
                values[place] = writer(values[place])
        return values

    def read(values: Any) -> Any:
        if type(values) is not list:
            raise TypeError
        return kind(*[reader(value) for reader, value in zip(readers, cast("list[Any]", values), strict=True)])

    return write, read


def _codec(hint: Any) -> tuple[_Writer, _Reader]:
    """Return how a field's value becomes JSON, ``None`` where it is JSON already, and how it is read and checked."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType) and NoneType in arguments and len(arguments) == 2:
        writer, reader = _codec(arguments[arguments[0] is NoneType])
        return writer, lambda value: None if value is None else reader(value)
    if origin is tuple:
        return _tuple_codec(arguments)
    if origin is Literal:
        return None, _one_of(arguments)
    if origin is _MAPPING:
        return None, _mapping_reader(_codec(arguments[1])[1])
    return _plain_codec(hint)


def _plain_codec(hint: Any) -> tuple[_Writer, _Reader]:
    if _is_record(hint):
        return _record(hint)
    if hint is datetime:
        return _write_moment, _read_moment
    readers: dict[Any, _Reader] = {
        str: _exactly(str),
        int: _exactly(int),
        bool: _exactly(bool),
        float: _exactly(float, int),
        _Json: freeze,
    }
    if hint not in readers:
        msg = f"retrieval_core.adapters.caches.codec cannot keep fields of the type {hint}; teach it"
        raise TypeError(msg)
    return None, readers[hint]


def _tuple_codec(arguments: tuple[Any, ...]) -> tuple[_Writer, _Reader]:
    writer, reader = _codec(arguments[0])
    length = None if arguments[-1] is Ellipsis else len(arguments)
    if length is not None and any(argument != arguments[0] for argument in arguments):
        msg = f"retrieval_core.adapters.caches.codec cannot keep tuples of different types {arguments}; teach it"
        raise TypeError(msg)

    def read(values: Any) -> tuple[Any, ...]:
        if type(values) is not list or (length is not None and len(cast("list[Any]", values)) != length):
            raise TypeError
        return tuple([reader(value) for value in cast("list[Any]", values)])

    return (None if writer is None else lambda values: [writer(value) for value in values]), read


def _mapping_reader(reader: _Reader) -> _Reader:
    def read(value: Any) -> FrozenDict:
        if type(value) is not dict:
            raise TypeError
        return FrozenDict({key: reader(item) for key, item in cast("dict[str, Any]", value).items()})

    return read


def _exactly(*kinds: type) -> _Reader:
    def read(value: Any) -> Any:
        if type(value) not in kinds:  # so that true is no number
            raise TypeError
        return value

    return read


def _one_of(choices: tuple[Any, ...]) -> _Reader:
    def read(value: Any) -> Any:
        if value not in choices:
            raise ValueError
        return value

    return read


def _write_moment(moment: datetime) -> Any:
    zone = getattr(moment.tzinfo, "key", None)
    if not zone and not moment.fold:
        return moment.isoformat()
    at = moment.replace(tzinfo=None) if zone else moment
    return {_ZONE: zone, "at": at.isoformat(), "fold": moment.fold}


def _read_moment(value: Any) -> datetime:
    if type(value) is not dict:
        return datetime.fromisoformat(value)
    parts = cast("dict[str, Any]", value)
    moment = datetime.fromisoformat(parts["at"]).replace(fold=parts["fold"])
    return moment.replace(tzinfo=ZoneInfo(parts[_ZONE])) if parts[_ZONE] else moment
