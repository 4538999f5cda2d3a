"""What a service said and our advice are sentences of their own, however the service ends its text."""

from __future__ import annotations

import pytest

from retrieval_core.adapters.vendors import with_advice

ADVICE = "Check the API key."


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("Invalid API key", "Invalid API key. Check the API key."),
        ("Invalid API key.", "Invalid API key. Check the API key."),
        ("Invalid API key!", "Invalid API key! Check the API key."),
        ("Is that a key?", "Is that a key? Check the API key."),
        ("Invalid API key:", "Invalid API key. Check the API key."),
        ("Invalid API key;", "Invalid API key. Check the API key."),
        ("Invalid API key - ", "Invalid API key. Check the API key."),
        ("Invalid API key\n", "Invalid API key. Check the API key."),
        ("Invalid API key.\r\n ", "Invalid API key. Check the API key."),
        ("Invalid API key…", "Invalid API key… Check the API key."),
        ("密钥无效。", "密钥无效。 Check the API key."),
        ('He said "no."', 'He said "no." Check the API key.'),
        ("(not a key.)", "(not a key.) Check the API key."),
        ('the model "x"', 'the model "x". Check the API key.'),
        ('{"error": "no"}', '{"error": "no"}. Check the API key.'),
        ('{"error": "no."}', '{"error": "no."}. Check the API key.'),
        ("['x']", "['x']. Check the API key."),
        ("", "Check the API key."),
        (" \n", "Check the API key."),
        (":", "Check the API key."),
        ('"', '". Check the API key.'),
    ],
)
def test_a_service_may_end_its_text_in_any_way(said: str, sentence: str) -> None:
    """There is exactly one stop between the two, unless the service brought another sign that ends a sentence."""
    assert with_advice(said, ADVICE) == sentence


@pytest.mark.parametrize(("said", "alone"), [("busy", "busy"), ("busy.", "busy."), ("busy:\n", "busy"), ("", "")])
def test_without_advice_nothing_is_added(said: str, alone: str) -> None:
    """The text stands by itself, without what was to lead on to something."""
    assert with_advice(said, "") == alone
