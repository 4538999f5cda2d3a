"""The key of a result: one short name for everything that the result depends on.

The key is the SHA-256 of a text in which every value is written in one way only, and no two values alike: texts and
numbers as Python writes them, ``{...}`` for mappings in the order of their keys, ``[...]`` for lists, and a filter as
its operator with its operands. Python's own equality would not do: ``1``, ``1.0`` and ``True`` are equal to it, and a
filter means something else by each. The same inputs have the same key in every process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from hashlib import sha256
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.errors import InvalidParameterError

if TYPE_CHECKING:
    from retrieval_core.types import JSON
    from retrieval_core.types.filters import Filter

_FORMAT = "retrieval-core result 1"
_PARTITION = "retrieval-core questions 1"
_PLAIN = frozenset({str, int, float, bool, type(None)})
_first = itemgetter(0)


def result_key(
    *,
    query: str,
    filters: Filter | None,
    parameters: Mapping[str, JSON],
    fingerprint: str,
    version: str | None,
    epoch: int,
) -> str:
    """Return the key of a result, 64 hexadecimal digits.

    The order of ``parameters`` does not count, and a tuple counts as a list. The order within a filter does count:
    ``Or((a, b))`` and ``Or((b, a))`` have two keys, which costs a second run and is never wrong.

    Args:
        query: As it is searched for. Any text will do, lone surrogates included.
        filters: All conditions of the run, those set by a server included.
        parameters: What else was asked for in this call, for instance the number of hits.
        fingerprint: Names the configuration and the parts of the pipeline.
        version: Names the state of the index, ``None`` where the store cannot tell.
        epoch: How often this process declared its earlier results void.

    Raises:
        InvalidParameterError: A parameter is not JSON, or a mapping has a key that is not text.
    """
    condition = "-" if filters is None else _filter(filters)
    rest = f"{query!r} {condition} {_value(parameters)} {fingerprint!r} {version!r} {epoch!r}"
    # Python escapes lone surrogates, so that the text can be encoded, and a backslash, so that no two are alike.
    return sha256(f"{_FORMAT} {rest}".encode()).hexdigest()


def partition_key(
    *,
    session: str | None,
    filters: Filter | None,
    parameters: Mapping[str, JSON],
    fingerprint: str,
    version: str | None,
    epoch: int,
) -> str:
    """Return what names everything that a result depends on but the question, 64 hexadecimal digits.

    Args:
        session: Whose questions are compared with each other; ``None`` where that makes no difference.
        filters: As for :func:`result_key`, and likewise the others.

    Raises:
        InvalidParameterError: As :func:`result_key`.
    """
    whole = result_key(
        query="", filters=filters, parameters=parameters, fingerprint=fingerprint, version=version, epoch=epoch
    )
    return sha256(f"{_PARTITION} {session!r} {whole}".encode()).hexdigest()


def _value(value: Any) -> str:
    kind = cast("type[object]", type(value))
    if kind in _PLAIN:
        return repr(value)
    if isinstance(value, Mapping):
        return _mapping(cast("Mapping[Any, Any]", value))
    if isinstance(value, (list, tuple)):
        return "[" + ",".join([_value(item) for item in cast("list[Any]", value)]) + "]"
    for plain in (str, int, float):  # a subclass may write itself in any way; it counts as what it is a kind of
        if isinstance(value, plain):
            return plain.__repr__(value)  # type: ignore[arg-type]
    msg = f"parameters must be JSON (text, number, boolean, null, list, object), got {kind.__name__}"
    raise InvalidParameterError(msg)


def _mapping(mapping: Mapping[Any, Any]) -> str:
    if not all([isinstance(name, str) for name in mapping]):  # noqa: C419 - a generator takes twice as long
        msg = f"the keys of a mapping must be text, got {list(mapping)!r:.80}"
        raise InvalidParameterError(msg)
    # Plain values are written here and not by a call for each, which halves the time of a whole key.
    written = [
        f"{name!r}:{value!r}" if type(name) is str and type(value) in _PLAIN else f"{_value(name)}:{_value(value)}"
        for name, value in sorted(mapping.items(), key=_first)
    ]
    return "{" + ",".join(written) + "}"


def _filter(condition: Filter) -> str:
    written = [_operand(getattr(condition, name)) for name in _operands(type(condition))]
    return f"({condition.operator} {' '.join(written)})"


def _operand(operand: Any) -> str:
    kind = cast("type[object]", type(operand))
    if kind in _PLAIN:
        return repr(operand)
    if kind is not tuple and hasattr(kind, "operator"):
        return _filter(operand)
    if isinstance(operand, (tuple, list)) and operand and hasattr(cast("Any", operand[0]), "operator"):
        return "[" + ",".join([_filter(part) for part in cast("tuple[Filter, ...]", operand)]) + "]"
    return _value(operand)


@cache
def _operands(kind: type[Filter]) -> tuple[str, ...]:
    """Names of what a filter consists of, which is what its equality looks at."""
    return tuple(field.name for field in fields(kind) if field.compare)
