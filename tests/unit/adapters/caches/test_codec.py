from __future__ import annotations

import asyncio
import collections.abc
import json
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.adapters.caches import codec
from retrieval_core.adapters.caches.codec import decode, encode, is_quickly_decoded, record_types, schema
from retrieval_core.errors import InvalidParameterError
from retrieval_core.testing.cache_kit import a_result, assert_same
from retrieval_core.types import FrozenDict, RetrievalResult
from support.results import BERLIN, results

if TYPE_CHECKING:
    from collections.abc import Callable

HEADER = len(schema()) + 4


def sealed(payload: bytes) -> bytes:
    return schema() + crc32(payload).to_bytes(4, "big") + payload


def changed(data: bytes, path: list[Any], value: Any) -> bytes:
    """Replace one value in what was encoded, with a checksum that is right."""
    document = json.loads(data[HEADER:])
    inner = document
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return sealed(json.dumps(document).encode())


@settings(max_examples=150)
@given(results)
def test_every_result_comes_back(result: RetrievalResult) -> None:
    """Every field of every type, read from the types themselves, comes back equal and of the same type."""
    assert_same(decode(encode(result)), result)


def test_the_kits_result_has_a_value_in_every_field() -> None:
    """So that the cases here, and those of the kit, look at each field of each type."""
    result = a_result()
    first, record = result.hits[0], result.trace[0]
    chunk = first.chunk
    known: list[Any] = [
        *(result, first, chunk, chunk.page_span, chunk.span, first.scores, result.degraded[0], record, record.usage),
        *(record.dropped[0], result.rewrites[0], result.evaluation, first.evidence, first.found_by[0]),
    ]
    assert {type(value) for value in known} == set(record_types())
    empty = {(kind.__name__, field.name) for kind in record_types() for field in fields(kind)} - {
        (type(value).__name__, field.name)
        for value in known
        for field in fields(value)
        if getattr(value, field.name) not in (None, (), "", {}, False)
    }
    # The chunk counts from 0; where a result came from has a test of its own.
    assert empty == {("Chunk", "chunk_index"), ("RetrievalResult", "from_cache")}


@pytest.mark.parametrize("kind", record_types(), ids=lambda kind: kind.__name__)
def test_no_field_is_forgotten(kind: type) -> None:
    """Each field has a place in what is written."""
    names = [field.name for field in fields(kind)]
    write, _ = codec._record(kind)

    class Recorder:
        def __init__(self) -> None:
            self.asked: list[str] = []

        def __getattr__(self, name: str) -> None:
            self.asked.append(name)

    recorder = Recorder()
    assert write(recorder) == [None] * len(names)
    assert recorder.asked == names


@settings(max_examples=100)
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


@settings(max_examples=100)
@given(st.binary() | st.binary().map(sealed))
def test_any_bytes_are_no_result(data: bytes) -> None:
    """Bytes that nobody encoded are a miss, never an error, even when their checksum is right."""
    assert decode(data) is None


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ([0], 1),
        ([0], None),
        ([1], {}),
        ([1, 0], [1, 2]),
        ([1, 0, 0, 3], "3"),
        ([1, 0, 0, 3], True),
        ([1, 0, 0, 3], 3.0),
        ([1, 0, 0, 5], [1]),
        ([1, 0, 0, 6], "text"),
        ([1, 0, 0, 9], [1, 2, 3]),
        ([1, 0, 0, 14], "yesterday"),
        ([1, 0, 0, 14], 5),
        ([1, 0, 0, 14], {"@zone": "No/Such", "at": "2024-01-01", "fold": 0}),
        ([1, 0, 0, 14], {"@zone": "../../etc/passwd", "at": "2024-01-01", "fold": 0}),
        ([1, 0, 0, 14], {"@zone": "Europe", "at": "2024-01-01", "fold": 0}),
        ([1, 0, 0, 14], {}),
        ([1, 0, 0, 16], []),
        ([1, 0, 0, 16], {"a": float("nan")}),
        ([1, 0, 1], "0.5"),
        ([1, 0, 1], True),
        ([1, 0, 2], []),
        ([3], None),
        ([5], 1),
    ],
)
def test_values_of_a_wrong_type_are_no_result(path: list[Any], value: Any) -> None:
    """Somebody else who writes to the cache cannot make a result that breaks whoever reads it."""
    good = encode(a_result())
    assert decode(changed(good, [2], "other text")) is not None
    assert decode(changed(good, path, value)) is None


@pytest.mark.parametrize("payload", [b"[" * 100_000, b"1" * 5000, b"", b"null", b"\xff", b"[]", b'{"a": 1}'])
def test_hostile_json_is_no_result(payload: bytes) -> None:
    """Nesting without end, numbers without end and the like are a miss."""
    assert decode(sealed(payload)) is None


def test_another_version_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that were written for other types, or in another format, are a miss."""
    data = encode(a_result())
    monkeypatch.setattr(codec, "_FORMAT", 2)
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

    def schema_of(*kinds: type) -> bytes:
        monkeypatch.setattr(codec, "record_types", lambda: kinds)
        schema.cache_clear()
        return schema()

    def record(name: str, hint: Any) -> type:
        return dataclass(type("Record", (), {"__annotations__": {name: hint}}))

    try:
        made = [schema_of(record("a", int)), schema_of(record("b", int)), schema_of(record("a", str)), schema_of()]
    finally:
        monkeypatch.undo()
        schema.cache_clear()
    assert len(set(made)) == 4


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
    """Large results, and those that need the description of a time zone, are decoded elsewhere."""
    result = a_result()
    hit = replace(result.hits[0], chunk=replace(result.hits[0].chunk, timestamp=datetime(2024, 1, 1, tzinfo=BERLIN)))
    assert is_quickly_decoded(encode(result))
    assert not is_quickly_decoded(encode(a_result("word " * 50_000)))
    assert not is_quickly_decoded(encode(replace(result, hits=(hit,))))


@pytest.mark.parametrize("hint", [set[int], int | str, tuple[int, str], bytes, complex])
def test_a_type_that_is_not_known_is_an_error(hint: Any) -> None:
    """Whoever gives a result a field of a new type must say how it is written."""
    with pytest.raises(TypeError, match="teach it"):
        codec._codec(hint)


def test_types_that_results_may_come_to_have() -> None:
    """Mappings of numbers, and fixed choices, are known and checked too."""
    _, choice = codec._codec(Literal["a", "b"])
    assert choice("a") == "a"
    assert decode_fails(choice, "c")
    _, mapping = codec._codec(collections.abc.Mapping[str, float])
    assert type(mapping({"a": 1.5})) is FrozenDict
    assert decode_fails(mapping, {"a": "b"})
    assert decode_fails(mapping, [])


def decode_fails(reader: Callable[[Any], Any], value: Any) -> bool:
    try:
        reader(value)
    except (TypeError, ValueError):
        return True
    return False


def test_decoding_makes_no_blocking_call_for_ordinary_results() -> None:
    """A result without named time zones is decoded on the event loop itself."""

    async def main() -> RetrievalResult | None:
        return decode(encode(a_result()))

    assert asyncio.run(main()) == a_result()
