"""The events of a session that a client can ask for again."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.types import JSONRPCNotification

from retrieval_core_mcp.http.mcp import KEPT_CHARACTERS, KEPT_EVENTS, RecentEvents
from support.examples import times

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM"), pytest.mark.slow]


@settings(max_examples=times(100))
@given(
    written=st.lists(st.sampled_from(["1", "2", "_GET_stream"]), max_size=KEPT_EVENTS + 50), after=st.integers(0, 300)
)
def test_what_followed_an_event_in_its_stream_is_told_again(written: list[str], after: int) -> None:
    """In order, of no other stream, as far back as is kept."""

    async def conversation() -> None:
        events = RecentEvents()
        ids = [await events.store_event(stream, JSONRPCNotification(jsonrpc="2.0", method=str(at)))
               for at, stream in enumerate(written)]  # fmt: skip
        heard: list[int] = []

        async def hear(event: Any) -> None:
            heard.append(int(event.message.method))

        known = after < len(ids) and after >= len(ids) - KEPT_EVENTS
        stream = await events.replay_events_after(ids[after] if after < len(ids) else "nonsense", hear)
        assert stream == (written[after] if known else None)
        assert heard == ([at for at in range(after + 1, len(ids)) if written[at] == stream] if known else [])

    asyncio.run(conversation())


def test_what_is_kept_of_a_session_is_bounded() -> None:
    """By its length too: answers may be long, and there may be many sessions; the last event always is kept."""

    async def conversation() -> None:
        events = RecentEvents()
        long = JSONRPCNotification(jsonrpc="2.0", method="x" * (KEPT_CHARACTERS // 4))
        ids = [await events.store_event("1", long) for _ in range(8)]
        heard: list[Any] = []

        async def hear(event: Any) -> None:
            heard.append(event)

        assert await events.replay_events_after(ids[4], hear) is None
        assert await events.replay_events_after(ids[5], hear) == "1"
        assert [event.event_id for event in heard] == ids[6:]
        last = await events.store_event("2", JSONRPCNotification(jsonrpc="2.0", method="x" * KEPT_CHARACTERS))
        assert await events.replay_events_after(last, hear) == "2"
        assert await events.replay_events_after(ids[7], hear) is None

    asyncio.run(conversation())
