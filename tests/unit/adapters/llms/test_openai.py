"""The parameters of a request to a language model."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("openai", reason="the extra 'openai' is not installed")

from retrieval_core.adapters.llms.openai import OpenAILLM
from retrieval_core.ports import CompletionRequest, Message

QUESTION = CompletionRequest((Message("system", "be brief"), Message("user", "one two three")))


@pytest.mark.parametrize(
    ("model", "url", "names"),
    [
        ("gpt-4.1-mini", None, {"max_completion_tokens", "temperature"}),
        ("gpt-5.2", None, {"max_completion_tokens"}),
        ("openai/o3", "http://gateway/v1", {"max_completion_tokens"}),
        ("gpt-oss:20b", "http://localhost:11434/v1", {"max_tokens", "temperature"}),
        ("gpt-4o", "https://api.openai.com/v1", {"max_completion_tokens", "temperature"}),
    ],
)
def test_parameters_fit_the_server(model: str, url: str | None, names: set[str]) -> None:
    """OpenAI itself is sent the name that it does not deprecate."""
    arguments = OpenAILLM(model, api_key="k", base_url=url)._arguments(replace(QUESTION, max_tokens=9))
    assert arguments.keys() - {"model", "messages"} == names
