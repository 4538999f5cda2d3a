from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime
from typing import Any, cast, get_args
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core import types
from retrieval_core.adapters.caches import redis as codec
from retrieval_core.adapters.caches.redis import decode, encode, is_quickly_decoded, schema
from retrieval_core.errors import InvalidParameterError
from retrieval_core.testing.cache_kit import a_result, assert_same
from retrieval_core.types import FrozenDict, RetrievalResult
from support.examples import times
from support.results import hints_of, results

HEADER = len(schema()) + 4


def sealed(payload: bytes) -> bytes:
    return schema() + crc32(payload).to_bytes(4, "big") + payload


def record_types(hint: Any) -> set[type]:
    """Return the types that a value of a type consists of."""
    found = {kind for inner in get_args(hint) for kind in record_types(inner)}
    if is_dataclass(hint):
        found |= {cast("type", hint)}.union(*map(record_types, hints_of(cast("type", hint)).values()))
    return found


def changed(data: bytes, path: list[Any], value: Any) -> bytes:
    """Replace one value in what was encoded, with a checksum that is right."""
    document = json.loads(data[HEADER:])
    (inner,) = document
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return sealed(json.dumps(document).encode())


@settings(max_examples=times(150))
@given(results)
def test_every_result_comes_back(result: RetrievalResult) -> None:
    """Every field of every type, read from the types themselves, comes back equal and of the same type.

    Time zones come back as their offset from UTC.
    """
    for hit in result.hits:
        moment = hit.chunk.timestamp
        if moment is not None:
            object.__setattr__(hit.chunk, "timestamp", datetime.fromisoformat(moment.isoformat()))
    assert_same(decode(encode(result)), result)


def test_the_kits_result_has_a_value_in_every_field() -> None:
    """So that the cases here, and those of the kit, look at each field of each type."""
    result = a_result()
    first, record = result.hits[0], result.trace[0]
    chunk = first.chunk
    known: list[Any] = [
        *(result, first, chunk, chunk.page_span, chunk.span, first.scores, result.degraded[0], record, record.usage),
        *(
            record.dropped[0],
            record.failed[0],
            result.rewrites[0],
            result.evaluation,
            result.relevance,
            first.evidence,
            first.found_by[0],
        ),
    ]
    kinds = record_types(RetrievalResult)
    assert {type(value) for value in known} == kinds
    empty = {(kind.__name__, field.name) for kind in kinds for field in fields(kind)} - {
        (type(value).__name__, field.name)
        for value in known
        for field in fields(value)
        if getattr(value, field.name) not in (None, (), "", {}, False)
    }
    # The chunk counts from 0 and lacks no field; where a result came from has a test of its own.
    assert empty == {("Chunk", "chunk_index"), ("Chunk", "missing_fields"), ("RetrievalResult", "from_cache")}


@settings(max_examples=times(100))
@given(data=st.data(), result=results)
def test_damaged_bytes_are_no_result(data: st.DataObject, result: RetrievalResult) -> None:
    """Bytes that were changed, cut off or added to are a miss, wherever it happened."""
    good = encode(result)
    place = data.draw(st.integers(0, len(good) - 1))
    damage = data.draw(st.sampled_from(["flip", "cut", "add"]))
    bit = 1 << data.draw(st.integers(0, 7))
    bad = {
        "flip": good[:place] + bytes([good[place] ^ bit]) + good[place + 1 :],
        "cut": good[:place],
        "add": good[:place] + bytes([bit]) + good[place:],
    }[damage]
    assert bad == good or decode(bad) is None


@settings(max_examples=times(100))
@given(st.binary() | st.binary().map(sealed))
def test_any_bytes_are_no_result(data: bytes) -> None:
    """Bytes that nobody encoded are a miss, never an error, even when their checksum is right."""
    assert decode(data) is None


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["query"], 1),
        (["query"], None),
        (["hits"], {}),
        (["hits", 0], [1, 2]),
        (["hits", 0, "chunk", "chunk_index"], "3"),
        (["hits", 0, "chunk", "chunk_index"], True),
        (["hits", 0, "chunk", "chunk_index"], 3.0),
        (["hits", 0, "chunk", "page_span"], [1]),
        (["hits", 0, "chunk", "section_path"], "text"),
        (["hits", 0, "chunk", "row_range"], [1, 2, 3]),
        (["hits", 0, "chunk", "timestamp"], "yesterday"),
        (["hits", 0, "chunk", "timestamp"], 5),
        (["hits", 0, "chunk", "timestamp"], {}),
        (["hits", 0, "chunk", "metadata"], []),
        (["hits", 0, "chunk", "metadata"], {"a": float("nan")}),
        (["hits", 0, "score"], "0.5"),
        (["hits", 0, "score"], True),
        (["hits", 0, "scores"], []),
        (["metadata"], None),
        (["from_cache"], 1),
    ],
)
def test_values_of_a_wrong_type_are_no_result(path: list[Any], value: Any) -> None:
    """Somebody else who writes to the cache cannot make a result that breaks whoever reads it."""
    good = encode(a_result())
    assert decode(changed(good, ["formatted_context"], "other text")) is not None
    assert decode(changed(good, path, value)) is None


@pytest.mark.parametrize("payload", [b"[" * 100_000, b"1" * 5000, b"", b"null", b"\xff", b"[]", b'{"a": 1}'])
def test_hostile_json_is_no_result(payload: bytes) -> None:
    """Nesting without end, numbers without end and the like are a miss."""
    assert decode(sealed(payload)) is None


def test_another_version_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that were written for other types, or in another format, are a miss."""
    data = encode(a_result())
    monkeypatch.setattr(codec, "_FORMAT", 3)
    schema.cache_clear()
    try:
        assert decode(data) is None
        assert decode(encode(a_result())) == a_result()
    finally:
        monkeypatch.undo()
        schema.cache_clear()
    assert decode(data) == a_result()


def test_the_schema_names_types_and_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field of another name, or of another type, is another schema."""

    def schema_of(hints: dict[str, Any]) -> bytes:
        monkeypatch.setattr(types, "Span", dataclass(type("Span", (), {"__annotations__": hints})))
        schema.cache_clear()
        return schema()

    try:
        made = [schema(), *map(schema_of, ({"a": int}, {"b": int}, {"a": str}, {}))]
    finally:
        monkeypatch.undo()
        schema.cache_clear()
    assert len(set(made)) == 5


@pytest.mark.parametrize("value", [{1.0}, object(), b"bytes", 10**5000], ids=["set", "object", "bytes", "huge"])
def test_what_is_no_json_is_refused(value: Any) -> None:
    """A result that cannot be kept as it is, is not kept."""
    with pytest.raises(InvalidParameterError, match="make it of what retrieval_core"):
        encode(replace(a_result(), latency_ms=value))


def test_a_result_that_holds_itself_is_refused() -> None:
    """A list inside itself, hidden in a mapping that only claims to be frozen, is an error and no endless loop."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidParameterError):
        encode(replace(a_result(), metadata=FrozenDict(a=endless)))


def test_what_keeps_an_event_loop_is_known() -> None:
    """Large results are decoded elsewhere."""
    result = a_result()
    assert is_quickly_decoded(encode(result))
    assert not is_quickly_decoded(encode(a_result("word " * 50_000)))


def test_decoding_makes_no_blocking_call_for_ordinary_results() -> None:
    """A result is decoded on the event loop itself."""

    async def main() -> RetrievalResult | None:
        return decode(encode(a_result()))

    assert asyncio.run(main()) == a_result()
