"""Filters in SQL mean what they mean in Python, where PostgreSQL's own values differ from Python's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retrieval_core.adapters.stores.postgres.schema import decode, encode
from retrieval_core.ports import Change
from retrieval_core.testing.store_kit.base import chunk, units
from retrieval_core.types.filters import (
    Contains,
    Eq,
    Exists,
    Glob,
    Gt,
    Gte,
    In,
    Lt,
    Lte,
    Ne,
    NotIn,
    Text,
    chunk_fields,
    matches,
)

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.types.filters import Filter
    from support.postgres_server import PostgresServer

NUMBERS = (
    *(0, -0.0, 0.1, 1, 1.0, True, False, 2**53, 2**53 + 1, float(2**53), 10**23, 1e23, 1e308, -(10**307), 5e-324),
    *(2**1023 - 1, 0.1 + 0.2, 0.3, -1e-300),
)
TEXTS = st.text("\x00\x01\x02\x03\x04aA?*%_\\\u00df\ud7ff\ue000\U0001f600", max_size=4)
GIVEN_TEXTS = st.one_of(TEXTS, st.text("a\x00\ud800\udfff\ue000", max_size=3))
VALUES = st.one_of(st.sampled_from(NUMBERS), TEXTS)
PATHS = ("v", "\x00", "\x01\x02", "a.b", "\ud800")


def conditions() -> st.SearchStrategy[Filter]:
    paths = st.sampled_from(PATHS)
    value = st.one_of(st.sampled_from(NUMBERS), GIVEN_TEXTS)
    ordered = st.one_of(st.sampled_from([number for number in NUMBERS if not isinstance(number, bool)]), GIVEN_TEXTS)
    several = st.lists(value, max_size=3).map(tuple)
    return st.one_of(
        *(st.builds(kind, paths, value) for kind in (Eq, Ne, Contains)),
        *(st.builds(kind, paths, ordered) for kind in (Gt, Gte, Lt, Lte)),
        *(st.builds(kind, paths, several) for kind in (In, NotIn)),
        *(st.builds(kind, paths, GIVEN_TEXTS) for kind in (Text, Glob)),
        st.builds(Exists, paths, st.booleans()),
    )


@given(st.text(), st.text())
def test_encoded_texts_keep_their_order_and_contain_what_they_did(one: str, other: str) -> None:
    assert decode(encode(one)) == one
    assert "\0" not in encode(one)
    assert (encode(one) < encode(other)) == (one < other)
    assert (encode(one) in encode(other)) == (one in other)


def test_values_that_postgresql_has_otherwise(postgres: PostgresServer, tmp_path: Path) -> None:
    """Large integers beside floats, ``NUL``, half surrogate pairs, and signs of patterns."""
    with asyncio.Runner() as runner:
        store = postgres.store(tmp_path)

        @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(
            st.lists(
                st.dictionaries(st.sampled_from(PATHS[:4]), st.one_of(VALUES, st.lists(VALUES, max_size=3))),
                min_size=1,
                max_size=4,
            ),
            st.lists(conditions(), min_size=1, max_size=8),
        )
        def check(metadata: list[dict[str, Any]], filters: list[Filter]) -> None:
            chunks = tuple(chunk(f"c{row}", metadata=fields) for row, fields in enumerate(metadata))
            runner.run(store.upsert(Change(chunks, units(len(chunks)), removed_documents=("d",))))
            for condition in filters:
                wanted = sum(matches(condition, chunk_fields(item)) for item in chunks)
                assert runner.run(store.count_chunks(condition)) == wanted, condition

        try:
            check()
        finally:
            runner.run(store.aclose())
