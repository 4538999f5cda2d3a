"""What a plug-in hands back, told from what it should."""

from __future__ import annotations

from typing import Any

import pytest

from retrieval_core.errors import MalformedAnswerError, SearchError
from retrieval_core.pipeline.stages.sound import are, sound
from retrieval_core.run.outcomes import Failed, Ok


def too_long(value: str) -> str | None:
    return "it is too long" if len(value) > 3 else None


def test_what_can_be_used_is_handed_on_as_it_is() -> None:
    """So is a failure, which says already what went wrong."""
    for outcome in (Ok("abc"), Failed("call", ValueError("no"), 2)):
        assert sound(outcome, "call", "it", str, too_long) is outcome


@pytest.mark.parametrize(("value", "reason"), [(7, "it gave 7, which is no str"), ("abcd", "it is too long")])
def test_what_cannot_be_used_is_a_failure_that_names_the_plug_in(value: Any, reason: str) -> None:
    """Of another type, or wrong in itself; the kind of the error is the caller's to choose."""
    outcome = sound(Ok(value), "call", "the plug-in", str, too_long)
    assert isinstance(outcome, Failed)
    assert (outcome.stage, outcome.reason) == ("call", f"the answer of the plug-in cannot be used: {reason}")
    assert isinstance(outcome.error, MalformedAnswerError)
    other = sound(Ok(value), "call", "the store", str, too_long, error=SearchError)
    assert isinstance(other, Failed)
    assert isinstance(other.error, SearchError)


def test_a_list_of_what_fits_is_told_from_what_only_iterates() -> None:
    """Text iterates too, and is no list of texts."""
    assert are(["a"], bool)
    assert are((), bool)
    assert not any(are(value, bool) for value in ("ab", {"a"}, None, ["a", ""]))
