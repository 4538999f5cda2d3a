"""Holding sentences against passages with a language model."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.adapters.verifiers.llm import LLMVerifier
from retrieval_core.errors import InvalidParameterError, MalformedAnswerError
from retrieval_core.ports import Completion, Verified
from retrieval_core.testing.fakes_llm import FakeLLM
from retrieval_core.types import Usage
from support.examples import times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.ports import CompletionRequest, Verdicts

PASSAGES = ("It opened\n  in 1898.", "Dogs are allowed. They need a ticket.")
YES = {"passage": 2, "quote": "Dogs are allowed.", "reason": "It says so.", "verdict": "supported"}
NO = {"passage": 1, "quote": "It opened in 1898.", "reason": "Another year.", "verdict": "contradicted"}
NOTHING = {"passage": 0, "quote": "", "reason": "No word of it.", "verdict": "not_found"}


def verify(
    llm: FakeLLM, sentences: Sequence[str] = ("one",), passages: Sequence[str] = PASSAGES, **settings: Any
) -> Verdicts:
    return asyncio.run(LLMVerifier(llm, **settings).verify("question?", sentences, passages))


def judged(answer: object) -> Verified:
    return verify(FakeLLM([json.dumps({"1": answer})])).verdicts[0]


def data_of(request: CompletionRequest) -> list[tuple[str, Any]]:
    """Return labels and values of the data, as a model that keeps to the framing reads them."""
    lines = (line.partition(": ") for line in request.messages[1].content.split("\n"))
    return [(label, json.loads(value)) for label, _, value in lines]


def test_one_verdict_for_each_sentence() -> None:
    """Verdicts come in the order of the sentences, with what the call cost, and quotes as the passage has them."""
    answer = Completion(json.dumps({"3": NOTHING, "2": NO, "1": YES}), Usage(70, 30))
    found = verify(FakeLLM([answer]), ("one", "two", "three"))
    assert found.verdicts == (
        Verified("supported", 1, "Dogs are allowed.", "It says so."),
        Verified("contradicted", 0, "It opened\n  in 1898.", "Another year."),
        Verified("not_found", reason="No word of it."),
    )
    assert found.usage == Usage(70, 30)


def test_one_request() -> None:
    """Question, passages and sentences go into one request as data, which asks for the likeliest answer."""
    llm = FakeLLM([{"1": YES, "2": YES}])
    verify(llm, ("one", "two"))
    (request,) = llm.requests
    assert request.temperature == 0
    assert data_of(request) == [
        ("question", "question?"),
        ("passage 1", PASSAGES[0]),
        ("passage 2", PASSAGES[1]),
        ("sentence 1", "one"),
        ("sentence 2", "two"),
    ]


def test_no_sentences_ask_nothing() -> None:
    """Without sentences there is nothing to ask."""
    llm = FakeLLM([])
    assert verify(llm, ()).verdicts == ()
    assert llm.requests == []


def test_the_schema_names_every_sentence() -> None:
    """The schema requires a whole verdict for each sentence, and numbers of passages that were given."""
    llm = FakeLLM([{"1": YES, "2": YES}])
    verify(llm, ("one", "two"))
    schema: Any = llm.requests[0].schema
    assert schema["required"] == ["1", "2"] == list(schema["properties"])
    entry = schema["properties"]["1"]
    assert entry["required"] == ["passage", "quote", "reason", "verdict"]
    assert entry["additionalProperties"] is False
    assert entry["properties"]["passage"]["enum"] == [0, 1, 2]


def test_long_texts_are_shortened() -> None:
    """Neither a passage nor a sentence makes a request longer than its share; a quote may be from what was shown."""
    llm = FakeLLM([{"1": {**YES, "passage": 1, "quote": "word word word"}}])
    found = verify(llm, ["term " * 5000], ["word " * 10_000])
    shown = dict(data_of(llm.requests[0]))
    assert len(shown["passage 1"]) <= 6000
    assert len(shown["sentence 1"]) <= 2000
    assert found.verdicts[0].quote == "word word word"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({**YES, "quote": "Cats are allowed."}, "supported, but its quote is not in passage 2"),
        ({**YES, "passage": 1}, "supported, but its quote is not in passage 1"),
        ({**YES, "quote": ""}, "supported, but quotes nothing of passage 2"),
        ({**NO, "quote": " \n "}, "contradicted, but quotes nothing of passage 1"),
        ({**YES, "quote": "dogs are allowed."}, "supported, but its quote is not in passage 2"),
        ({**YES, "passage": 0}, "supported and names no passage"),
        ({**YES, "passage": None}, "supported and names no passage"),
        ({**YES, "passage": 3}, "supported and names passage 3, which was not given"),
        ({**NO, "passage": -1}, "contradicted and names passage -1, which was not given"),
        ({**YES, "passage": 10**50}, "supported and names passage 1000"),
    ],
)
def test_a_verdict_without_its_quote_is_none(answer: object, reason: str) -> None:
    """What names no passage, or quotes what does not stand there, is not found, and is said to be so."""
    found = judged(answer)
    assert (found.verdict, found.passage, found.quote) == ("not_found", None, "")
    assert found.reason.startswith(f"the model says {reason}")


@pytest.mark.parametrize(
    ("quote", "passage"),
    [
        ("It opened in 1898.", "It opened\n  in 1898."),
        ("  It opened\tin  1898. ", "It opened\n  in 1898."),
        ("opened in 1898", "opened\n  in 1898"),
    ],
)
def test_a_quote_is_found_but_for_white_space(quote: str, passage: str) -> None:
    """Any white space counts as one space, and the passage's own is returned."""
    assert judged({**NO, "quote": quote}).quote == passage


@pytest.mark.parametrize(
    ("quote", "sentence", "verdict"),
    [
        (".", "Dogs are allowed.", "not_found"),
        ("They", "Dogs are allowed.", "not_found"),
        ("ticket", "Cats are forbidden.", "not_found"),
        ("ticket", "A ticket is needed.", "supported"),
        ("Dogs are allowed.", "You may bring pets.", "supported"),
        ("Dogs are allowed.", "\u72ac\u3092\u9023\u308c\u3066\u3082\u3088\u3044\u3002", "supported"),
    ],
)
def test_a_quote_has_to_do_with_the_sentence(quote: str, sentence: str, verdict: str) -> None:
    """A word or two that the sentence does not have decide nothing; a longer quote may say it in other words."""
    found = verify(FakeLLM([{"1": {**YES, "quote": quote}}]), (sentence,)).verdicts[0]
    assert found.verdict == verdict
    if verdict == "not_found":
        assert found.reason.startswith(f"the model says supported, but its quote {quote!r} has no word")


def test_a_figure_that_the_passage_lacks_is_not_supported() -> None:
    """A model that overlooks another number is overruled, and told why; other forms of a figure are the same."""
    answer = {**YES, "passage": 1, "quote": "It opened in 1898."}
    found = verify(FakeLLM([{"1": answer}]), ("It opened in 1989.",)).verdicts[0]
    assert found == Verified("not_found", reason="the model says supported, but passage 1 does not have '1989'")
    same = verify(
        FakeLLM([{"1": {**YES, "passage": 1, "quote": "90 seconds"}}]), ("1.5 minutes",), ["It takes 90 seconds."]
    )
    assert same.verdicts[0].verdict == "supported"
    other = verify(FakeLLM([{"1": {**answer, "verdict": "contradicted"}}]), ("It opened in 1989.",)).verdicts[0]
    assert other.verdict == "contradicted"


def test_not_found_needs_no_quote() -> None:
    """What a model adds to a verdict of not_found does not matter."""
    assert judged({**YES, "verdict": "not_found"}) == Verified("not_found", reason="It says so.")


def test_reasons_are_on_one_line() -> None:
    """A reason is one line of no great length."""
    found = judged({**YES, "reason": "so\n" * 1000})
    assert "\n" not in found.reason
    assert len(found.reason) <= 400


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"1": YES}, r"cover the sentences 1 to 2: missing are \['2'\]"),
        ({"1": YES, "2": NO, "3": NO}, r"unknown are \['3'\]"),
        ({"1": YES, "02": NO}, r"missing are \['2'\]"),
        ({}, r"missing are \['1', '2'\]"),
        ({"1": YES, "2": {**NO, "verdict": "refuted"}}, "2.verdict"),
        ({"1": YES, "2": {**NO, "verdict": True}}, "2.verdict"),
        ({"1": YES, "2": {**NO, "passage": "1"}}, "2.passage"),
        ({"1": YES, "2": {**NO, "passage": True}}, "2.passage"),
        ({"1": YES, "2": {**NO, "quote": None}}, "2.quote"),
        ({"1": YES, "2": {"verdict": "supported"}}, "2.quote"),
        ({"1": YES, "2": "supported"}, "2"),
        ("", "no object"),
        ("All sentences are supported.", "no object"),
        ('{"1": {"verdict": "supported"', "no object"),
        ('{"1": NaN}', "NaN"),
        ("[" * 100_000, "no object"),
        ("{" * 100_000 + "}", "is not a JSON object"),
        ('{"1": {}, "1": {}}', "more than once"),
    ],
)
def test_broken_answers(answer: Any, problem: str) -> None:
    """An answer that cannot be used is an error that holds it whole, so that it can be asked again."""
    text = answer if isinstance(answer, str) else json.dumps(answer)
    with pytest.raises(MalformedAnswerError, match=problem) as caught:
        verify(FakeLLM([text]), ("one", "two"))
    assert caught.value.answer == text
    assert caught.value.can_be_retried


def test_text_around_the_object_is_passed_over() -> None:
    """A fence around the JSON does no harm."""
    found = verify(FakeLLM([f"Here it is:\n```json\n{json.dumps({'1': YES})}\n```"]))
    assert found.verdicts[0].verdict == "supported"


def test_the_id_changes_with_what_shapes_verdicts() -> None:
    """Two verifiers with the same id judge alike."""
    llm = FakeLLM([])
    ids = {LLMVerifier(llm).id, LLMVerifier(llm, prompt="Other.").id, LLMVerifier(llm, batch_size=1).id}
    assert len(ids) == 3
    assert LLMVerifier(llm).id == LLMVerifier(FakeLLM([]), batch_size=8).id


def test_settings_are_checked() -> None:
    """A batch of none and a blank prompt are refused."""
    with pytest.raises(InvalidParameterError, match="batch_size must be a whole number of at least 1, got 0"):
        LLMVerifier(FakeLLM([]), batch_size=0)
    with pytest.raises(InvalidParameterError, match="prompt is blank"):
        LLMVerifier(FakeLLM([]), prompt=" ")


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 5) | st.text(max_size=20) | st.sampled_from(["supported", "not_found"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
ENTRY = st.fixed_dictionaries(
    {
        "passage": st.integers(-1, 4) | st.none(),
        "quote": st.sampled_from(["", "Dogs", "They  need", "opened in", "a cat", " "]) | st.text(max_size=10),
        "reason": st.text(max_size=10),
        "verdict": st.sampled_from(["supported", "contradicted", "not_found", "maybe"]),
    }
)


@settings(max_examples=times(300), deadline=None)
@given(st.dictionaries(st.sampled_from(["1", "2", "3"]), ENTRY | JUNK, max_size=3) | JUNK | st.text(max_size=60))
def test_whatever_a_model_answers(answer: Any) -> None:
    """Either the answer is refused, or there are two verdicts whose quotes stand in the passages they name."""
    text = answer if isinstance(answer, str) else json.dumps(answer)
    try:
        found = verify(FakeLLM([text]), ("one", "two"))
    except MalformedAnswerError:
        return
    assert len(found.verdicts) == 2
    for one in found.verdicts:
        if one.verdict == "not_found":
            assert (one.passage, one.quote) == (None, "")
        else:
            assert one.passage is not None
            assert one.quote.strip()
            assert one.quote in PASSAGES[one.passage]
