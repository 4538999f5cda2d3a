"""Retry-After headers and error messages of services over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any, cast

from retrieval_core.config import without_credentials

_LONGEST = 300
_ENDS = frozenset(
    ".!?\N{HORIZONTAL ELLIPSIS}\N{IDEOGRAPHIC FULL STOP}\N{FULLWIDTH EXCLAMATION MARK}\N{FULLWIDTH QUESTION MARK}"
)
_CLOSING = "\"')`\N{RIGHT DOUBLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}"
"""Closing marks behind the end of a sentence."""
_DANGLING = ":;,- \N{EN DASH}\N{EM DASH}"


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return how many seconds a service asks to wait, ``None`` without a valid header.

    ``Retry-After`` holds seconds or a date (RFC 9110, 10.2.3); ``retry-after-ms`` is finer and goes first. A date in
    the past is 0.

    Args:
        headers: With names in lower case, or of any mapping that ignores case.
        now: With a time zone; the present by default.
    """
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) / unit
        except ValueError:
            seconds = _seconds_until(value, now or datetime.now(UTC))
        if seconds is not None and isfinite(seconds) and seconds >= 0:
            return seconds
    return None


def what_was_said(body: object, secret: str = "") -> str:
    """Return the message of an error's body, as one line of bounded length; empty where there is none.

    Args:
        body: JSON, or text.
        secret: Left out of the message where the service repeats it.
    """
    while isinstance(body, Mapping):
        fields = cast("Mapping[str, Any]", body)
        body = next((fields[name] for name in ("message", "error", "detail") if fields.get(name)), "")
    text = " ".join(str(body or "").split())
    text = without_credentials(text.replace(secret, "[secret]") if secret else text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def with_advice(said: str, advice: str) -> str:
    """Return a service's message, ended as a sentence, with our own advice after it."""
    said = said.rstrip().rstrip(_DANGLING)
    if not advice or not said:
        return said or advice
    last = said.rstrip(_CLOSING)[-1:]
    return f"{said} {advice}" if last in _ENDS else f"{said}. {advice}"


def _seconds_until(date: str, now: datetime) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())
