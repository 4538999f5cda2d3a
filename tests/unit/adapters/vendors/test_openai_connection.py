"""Connections to OpenAI's API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("openai", reason="the extra 'openai' is not installed")

from retrieval_core.adapters.vendors import retry_after, what_was_said

if TYPE_CHECKING:
    pass


def test_times_to_wait_are_seconds_or_dates() -> None:
    """Both forms of the standard are read, the finer header first, and nonsense is nothing."""
    now = datetime(2030, 1, 1, tzinfo=UTC)
    date = format_datetime(now + timedelta(seconds=90), usegmt=True)
    assert retry_after({"retry-after": "1.5"}) == 1.5
    assert retry_after({"retry-after": "9", "retry-after-ms": "250"}) == 0.25
    assert retry_after({"retry-after": date}, now) == 90
    assert retry_after({"retry-after": date.replace("GMT", "-0000")}, now) == 90
    assert retry_after({"retry-after": date}, now + timedelta(days=1)) == 0
    assert retry_after({"retry-after": format_datetime(datetime.now(UTC) - timedelta(days=1))}) == 0
    for nonsense in ("", "soon", "nan", "inf", "-1"):
        assert retry_after({"retry-after": nonsense}) is None
    assert retry_after({}) is None


def test_what_a_service_says_is_bounded() -> None:
    """Long and nested messages become one short line."""
    assert what_was_said({"error": {"message": "a\n  b"}}) == "a b"
    assert what_was_said({"error": "plain"}) == "plain"
    assert what_was_said({"detail": ["x"]}) == "['x']"
    assert what_was_said(None) == what_was_said({"other": 1}) == ""
    assert len(what_was_said("x" * 10_000)) == 300
    assert what_was_said("y" * 290 + "secret-secret", "secret-secret") == "y" * 290 + "[secret]"
