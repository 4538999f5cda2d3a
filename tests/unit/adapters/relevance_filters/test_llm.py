from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.adapters.relevance_filters.llm import DEFAULT_PROMPT, LLMRelevanceFilter
from retrieval_core.errors import InvalidParameterError, MalformedAnswerError
from retrieval_core.ports import Completion
from retrieval_core.testing.fakes_llm import FakeLLM
from retrieval_core.types import Chunk, Judgement, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.ports import CompletionRequest, Judgements

YES = {"reason": "It says so.", "relevant": True, "score": 0.9}
NO = {"reason": "Another topic.", "relevant": False, "score": 0}


def chunk(number: int, text: str) -> Chunk:
    return Chunk(id=f"d#{number}", document_id="d", text=text)


def judge(llm: FakeLLM, texts: Sequence[str], *, prompt: str | None = None, query: str = "question?") -> Judgements:
    relevance_filter = LLMRelevanceFilter(llm, prompt=prompt, batch_size=max(1, len(texts)))
    return asyncio.run(relevance_filter.judge(query, [chunk(number, text) for number, text in enumerate(texts)]))


def data_of(request: CompletionRequest) -> list[tuple[str, Any]]:
    """Return labels and values of the data, as a model that keeps to the framing reads them."""
    (user,) = (message for message in request.messages if message.role == "user")
    lines = (line.partition(": ") for line in user.content.split("\n"))
    return [(label, json.loads(value)) for label, _, value in lines]


def test_one_judgement_for_each_passage() -> None:
    """Judgements come in the order of the passages, whatever order the answer has, with what the call cost."""
    answer = Completion(json.dumps({"2": NO, "1": YES}), Usage(70, 30))
    found = judge(FakeLLM([answer]), ["one", "two"])
    assert found.judgements == (Judgement(True, 0.9, "It says so."), Judgement(False, 0.0, "Another topic."))
    assert found.usage == Usage(70, 30)


def test_one_request() -> None:
    """All passages of a call go into one request, which asks for the likeliest answer."""
    llm = FakeLLM([{"1": YES, "2": YES, "3": NO}])
    judge(llm, ["one", "two", "three"])
    (request,) = llm.requests
    assert request.temperature == 0
    assert data_of(request) == [
        ("question", "question?"),
        ("passage 1", "one"),
        ("passage 2", "two"),
        ("passage 3", "three"),
    ]


def test_no_passages_ask_nothing() -> None:
    """Without passages there is nothing to ask."""
    llm = FakeLLM([])
    assert judge(llm, []).judgements == ()
    assert llm.requests == []


def test_the_schema_names_every_passage() -> None:
    """The schema requires a whole verdict for each passage and allows nothing else, at each level."""
    llm = FakeLLM([{"1": YES, "2": YES}])
    judge(llm, ["one", "two"])
    schema: Any = llm.requests[0].schema
    assert schema["required"] == ["1", "2"] == list(schema["properties"])
    for level in (schema, *schema["properties"].values()):
        assert level["additionalProperties"] is False
        assert level["required"] == list(level["properties"])
    assert list(schema["properties"]["1"]["properties"]) == ["reason", "relevant", "score"]
    assert schema["properties"]["1"]["properties"]["score"]["enum"][0] == 0
    assert schema["properties"]["1"]["properties"]["score"]["enum"][-1] == 1
    json.dumps(schema)


def test_title_and_headings_are_shown() -> None:
    """A passage from the middle of a document is judged with what says what it is about."""
    llm = FakeLLM([{"1": YES}])
    passage = Chunk(id="d#0", document_id="d", text="It weighs 3 kg.", title="Catalogue", section_path=("Drills", "X1"))
    asyncio.run(LLMRelevanceFilter(llm).judge("weight of the drill", [passage]))
    assert data_of(llm.requests[0])[1] == ("passage 1", "Catalogue > Drills > X1\nIt weighs 3 kg.")


def test_long_passages_are_shortened() -> None:
    """A passage never makes a request longer than its share."""
    llm = FakeLLM([{"1": YES}])
    judge(llm, ["word " * 10_000])
    ((_, _), (_, shown)) = data_of(llm.requests[0])
    assert len(shown) <= 6000
    assert shown.endswith(" […]")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"1": YES}, r"missing are \['2'\], and unknown are none"),
        ({"1": YES, "2": NO, "3": NO}, r"missing are none, and unknown are \['3'\]"),
        ({"1": YES, "02": NO}, r"missing are \['2'\], and unknown are \['02'\]"),
        ({}, r"missing are \['1', '2'\]"),
        (
            '{"1": {"reason": "", "relevant": true, "score": 1}, "1": {"reason": "", "relevant": true, "score": 1}}',
            "once",
        ),
        ({"1": YES, "2": {**NO, "score": 1.5}}, "2.score: Input should be less than or equal to 1"),
        ({"1": YES, "2": {**NO, "score": -0.1}}, "2.score: Input should be greater than or equal to 0"),
        ({"1": YES, "2": {**NO, "score": True}}, "2.score: Input should be a valid number"),
        ({"1": YES, "2": {**NO, "relevant": "no"}}, "2.relevant: Input should be a valid boolean"),
        ({"1": YES, "2": {"relevant": True, "score": 1}}, "2.reason: Field required"),
        ({"1": YES, "2": None}, "2: Input should be a valid dictionary"),
        ("Both are relevant.", "there is no object in it"),
    ],
)
def test_answers_that_are_none(answer: Any, problem: str) -> None:
    """An answer that lacks something is an error that says what, never a judgement that nobody made."""
    with pytest.raises(MalformedAnswerError, match=problem) as caught:
        judge(FakeLLM([answer]), ["one", "two"])
    assert caught.value.service == "fake-llm"
    assert caught.value.can_be_retried


def test_an_answer_is_not_repeated_at_length() -> None:
    """An error about a flood of invented passages stays short."""
    with pytest.raises(MalformedAnswerError) as caught:
        judge(FakeLLM([{str(number): YES for number in range(1, 5000)}]), ["one"])
    assert len(str(caught.value)) < 500


def test_reasons_are_one_line() -> None:
    """White space of a reason is made single spaces."""
    found = judge(FakeLLM([{"1": {**YES, "reason": " It\n\nsays\tso. "}}]), ["one"])
    assert found.judgements[0].reason == "It says so."


def test_the_id() -> None:
    """Model, prompt and size of a request are in the id; equal settings make equal ids."""
    llm = FakeLLM([])
    ids = [
        LLMRelevanceFilter(llm).id,
        LLMRelevanceFilter(llm, prompt="Other.").id,
        LLMRelevanceFilter(llm, batch_size=2).id,
    ]
    assert len(set(ids)) == 3
    assert LLMRelevanceFilter(llm, prompt=DEFAULT_PROMPT).id == ids[0]
    assert ids[0].startswith("fake-llm relevance-1@")
    assert LLMRelevanceFilter(llm, batch_size=2).batch_size == 2


@pytest.mark.parametrize("arguments", [{"batch_size": 0}, {"prompt": " \n"}])
def test_arguments_are_checked(arguments: dict[str, Any]) -> None:
    """No passages in a request, and no instructions, are errors."""
    with pytest.raises(InvalidParameterError, match=next(iter(arguments))):
        LLMRelevanceFilter(FakeLLM([]), **arguments)
