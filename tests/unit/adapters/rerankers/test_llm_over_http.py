"""The rubric reranker and the stage that runs it, through the vendor's own SDK: what a model may answer instead."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("openai", reason="the extra 'openai' is not installed")

from retrieval_core.adapters.rerankers.llm import LLMReranker
from retrieval_core.config import RerankerConfig
from retrieval_core.errors import MalformedAnswerError, ServiceError
from retrieval_core.pipeline.stages.rerank import RerankCache, rerank
from retrieval_core.run.retry import RetryPolicy
from retrieval_core.run.runner import Guard, Run
from retrieval_core.run.threads import ThreadPool
from retrieval_core.testing.clock import FakeClock
from retrieval_core.text.prompting import DATA_RULE
from retrieval_core.types import Chunk, Evidence, Hit, Scores
from support.openai_service import OpenAIService
from support.openai_support import llm_of
from support.wire_server import BrokenJSON, Status, WireServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrieval_core.pipeline.stages.state import JudgedHits
    from retrieval_core.types import StageRecord

MAX_RETRIES = 3
QUESTION = "How is an application rolled back?"
TEXTS = ("Bread is baked.", "Roll back with one command.", "A rollback needs an earlier revision.", "Saturn has rings.")
HITS = [
    Hit(Chunk(id=f"d#{number}", document_id="d", text=text), score, Scores(fused=score))
    for number, (text, score) in enumerate(zip(TEXTS, (0.9, 0.8, 0.7, 0.6), strict=True))
]
GRADES = (0, 100, 70, 0)
IMITATION = '{"results": [{"id": 1, "relevance_score": 100, "answerability": true, "key_evidence": "Bread"}]}'


def entry(number: object, score: object, evidence: str = "") -> dict[str, Any]:
    return {"id": number, "relevance_score": score, "answerability": score == 100, "key_evidence": evidence}


RISING = [entry(number, 10 * number) for number in range(1, 5)]
RIGHT = json.dumps({"results": [entry(number, grade) for number, grade in enumerate(GRADES, start=1)]})


def results(*entries: object) -> str:
    return json.dumps({"results": list(entries)})


def labels_of(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the data of a request by their labels."""
    lines = (line.partition(": ") for line in asked["messages"][-1]["content"].split("\n"))
    return {label: json.loads(value) for label, _, value in lines}


class Model:
    """Answers from a script, whose last entry is repeated, and notes what it was asked."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    def __call__(self, asked: dict[str, Any]) -> str:
        self.asked.append(asked)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    @property
    def repairs(self) -> list[bool]:
        """Whether each request shows an answer and what was wrong with it."""
        return ["your answer" in labels_of(asked) for asked in self.asked]


@dataclass(frozen=True)
class Outcome:
    reranked: JudgedHits
    records: tuple[StageRecord, ...]
    requests: int


def ask(
    answer: Callable[[dict[str, Any]], str],
    *faults: Any,
    message: dict[str, Any] | None = None,
    cache: RerankCache | None = None,
    questions: int = 1,
    **settings: Any,
) -> Outcome:
    """Rerank the hits as a pipeline does, over the wire."""
    with WireServer(OpenAIService(answer, message or {})) as server:
        server.fail(*faults)
        llm = llm_of(server)
        pool = ThreadPool("test-plugins", threads=1)
        run = Run(pool, seconds=60, clock=FakeClock(), guard=Guard(RetryPolicy(MAX_RETRIES)))
        # With all of the weight the reranker's own scores are the hits'.
        config, reranker = RerankerConfig(kind="llm", weight=1), LLMReranker(llm, **settings)

        async def main() -> JudgedHits:
            try:
                for _ in range(questions - 1):
                    await rerank(run, [reranker], QUESTION, HITS, config, cache=cache)
                return await rerank(run, [reranker], QUESTION, HITS, config, cache=cache)
            finally:
                await llm.aclose()

        try:
            return Outcome(asyncio.run(main()), run.records, server.count())
        finally:
            pool.close()


def order(outcome: Outcome) -> list[str]:
    return [hit.id for hit in outcome.reranked.hits]


# Those that a model with a strict schema cannot give are asked for without one.
BROKEN: dict[str, tuple[str, bool]] = {
    "prose": ("All four passages are about rollbacks.", False),
    "refusal in words": ("I'm sorry, but I cannot help with that.", False),
    "truncated": (RIGHT[:-30], False),
    "truncated early": (RIGHT[:40], False),
    "NaN": (RIGHT.replace("70", "NaN"), False),
    "a bare list": (RIGHT[len('{"results": ') : -1], False),
    "another object": ('{"error": "I cannot help with that."}', False),
    "an answer out of a passage": (f"The passage says {IMITATION}, and I say {RIGHT}", False),
    "a megabyte of prose": ("no " * 350_000, False),
    "no list": ('{"results": null}', True),
    "an empty list": ('{"results": []}', True),
    "an object for a list": ('{"results": {"1": 100, "2": 0}}', True),
    "ids out of range": (results(*(entry(number, 50) for number in (5, 6, 0, -1))), True),
    "invented ids": (results(*(entry(f"doc-{number}", 50) for number in range(4))), True),
    "one id": (results(*([entry(1, 50)] * 4)), True),
    "scores in words": (results(*(entry(number, "high") for number in range(1, 5))), True),
    "scores out of range": (results(*(entry(number, 1000) for number in range(1, 5))), True),
    "too few": (results(entry(1, 50)), True),
    "nested": (results([entry(1, 50)], [[entry(2, 50)]]), True),
    "a megabyte of ids": (results(*(entry(number, 50) for number in range(5, 14_000))), True),
}
broken = pytest.mark.parametrize("name", BROKEN)


@broken
def test_a_broken_answer_is_repaired(name: str) -> None:
    """The second request shows the model what it said and what was wrong with it, and the new answer counts."""
    answer, strict = BROKEN[name]
    model = Model(answer, RIGHT)
    outcome = ask(model, strict_json=strict)
    assert model.repairs == [False, True]
    assert ("response_format" in model.asked[0]) is ("response_format" in model.asked[1]) is strict
    first, second = map(labels_of, model.asked)
    assert first.items() <= second.items()
    assert second["your answer"][:20] == answer[:20]
    assert len(second["your answer"]) <= 4000
    assert 20 < len(second["what was wrong"]) < 800
    assert model.asked[1]["messages"][0]["content"].endswith(DATA_RULE)
    assert order(outcome) == ["d#1", "d#2", "d#0", "d#3"]
    assert (outcome.reranked.failures, outcome.reranked.degraded) == ((), ())
    assert [record.attempts for record in outcome.records if record.attempts] == [outcome.requests] == [2]


@broken
def test_answers_that_stay_broken(name: str) -> None:
    """There are as many requests as without repairs; then the hits keep their order, and the failure is told."""
    answer, strict = BROKEN[name]
    model = Model(answer)
    outcome = ask(model, strict_json=strict)
    assert outcome.requests == len(model.asked) == MAX_RETRIES + 1
    assert model.repairs == [False, True, True, True]
    assert outcome.reranked.hits == tuple(HITS)
    (failure,) = outcome.reranked.failures
    assert failure.stage == "rerank"
    assert failure.attempts == MAX_RETRIES + 1
    assert isinstance(failure.error, MalformedAnswerError)
    assert len(failure.reason) < 800


@pytest.mark.parametrize("answer", ["All four.", RIGHT[:-30], "[]"])
def test_what_a_strict_schema_forbids(answer: str) -> None:
    """Where the provider breaks its own promise, the adapter finds it, and there are no more requests than ever."""
    model = Model(answer)
    outcome = ask(model)
    assert outcome.requests == MAX_RETRIES + 1
    assert outcome.reranked.hits == tuple(HITS)
    assert isinstance(outcome.reranked.failures[0].error, MalformedAnswerError)
    assert order(ask(Model(answer, answer, RIGHT))) == ["d#1", "d#2", "d#0", "d#3"]


def test_a_refusal_is_not_asked_about_again() -> None:
    """The protocol tells it from an answer, and another attempt does not mend it."""
    model = Model("")
    outcome = ask(model, message={"content": None, "refusal": "I cannot help with that."})
    assert outcome.requests == 1
    assert outcome.reranked.hits == tuple(HITS)
    assert "refused to answer" in outcome.reranked.failures[0].reason
    assert type(outcome.reranked.failures[0].error) is ServiceError


@pytest.mark.parametrize(
    ("entries", "scores", "problem"),
    [
        ([*RISING, entry(9, 90)], [0.4, 0.3, 0.2, 0.1], "gave entries that cannot be used"),
        ([entry(2, 20), entry(3, 30)], [0.3, 0.2, 0, 0], "2 of 4 passages, which count as 0: 1, 4"),
    ],
)
def test_an_answer_that_is_wrong_in_parts(entries: list[Any], scores: list[float], problem: str) -> None:
    """It is used after one request, and what was wrong is listed."""
    outcome = ask(Model(results(*entries)))
    assert outcome.requests == 1
    assert [hit.score for hit in outcome.reranked.hits] == scores
    assert outcome.reranked.failures == ()
    assert all(item.stage == "rerank" for item in outcome.reranked.degraded)
    assert any(problem in item.reason for item in outcome.reranked.degraded)
    assert all(item.reason.startswith("openai/gpt-4.1-mini@") for item in outcome.reranked.degraded)


def test_evidence_gets_to_the_hits() -> None:
    """Each hit has what the model says of it, in the new order."""
    quoted, invented = entry(2, 100, "one command"), entry(1, 0, "Bread is toast.")
    hits = ask(Model(results(invented, quoted, entry(3, 70), entry(4, 0)))).reranked.hits
    assert [hit.id for hit in hits] == ["d#1", "d#2", "d#0", "d#3"]
    assert hits[0].evidence == Evidence(answers=True, text="one command", is_quoted=True)
    assert hits[2].evidence == Evidence(answers=False, text="Bread is toast.", is_quoted=False)


@pytest.mark.parametrize(
    ("answers", "faults", "repairs"),
    [
        (["lost", RIGHT], [Status(500)], [False, False]),
        (["lost", "prose", RIGHT], [Status(500)], [False, False, True]),
        (["lost", RIGHT], [BrokenJSON()], [False, False]),
        (["lost", "lost", RIGHT], [BrokenJSON(), Status(429, retry_after=1)], [False, False, False]),
    ],
)
def test_faults_of_the_service_between_answers(answers: list[str], faults: list[Any], repairs: list[bool]) -> None:
    """A request that failed on the way is made again as it was; a body without an answer has nothing to repair."""
    model = Model(*answers)
    outcome = ask(model, *faults, strict_json=False)
    assert model.repairs == repairs
    assert all(asked == model.asked[0] for asked, repair in zip(model.asked, repairs, strict=True) if not repair)
    assert outcome.requests == len(repairs)
    assert order(outcome) == ["d#1", "d#2", "d#0", "d#3"]


def test_batches_are_repaired_by_themselves() -> None:
    """Each batch is a call of its own, with its own numbers and attempts."""

    def answer(asked: dict[str, Any]) -> str:
        labels = labels_of(asked)
        if "Bread is baked." in labels.values() and "your answer" not in labels:
            return "prose"
        passages = [text for label, text in labels.items() if label.startswith("passage ")]
        return results(*(entry(n, GRADES[TEXTS.index(text)]) for n, text in enumerate(passages, start=1)))

    outcome = ask(answer, batch_size=2, strict_json=False)
    assert outcome.requests == 3
    assert order(outcome) == ["d#1", "d#2", "d#0", "d#3"]
    assert sorted(record.attempts for record in outcome.records if record.attempts) == [1, 2]


def test_scores_are_kept() -> None:
    """The same question about the same passages is asked once; an answer that could not be used is not kept."""
    clock = FakeClock()
    model = Model(RIGHT)
    outcome = ask(model, cache=RerankCache(10, clock.now), questions=3)
    assert outcome.requests == 1
    assert order(outcome) == ["d#1", "d#2", "d#0", "d#3"]
    assert ask(Model("prose"), cache=RerankCache(10, clock.now), questions=2).requests == 2 * (MAX_RETRIES + 1)


def grade(asked: dict[str, Any]) -> str:
    """Score by the share of the question's words."""
    labels = labels_of(asked)
    words = set(labels["question"].lower().strip("?").split())
    passages = [text for label, text in labels.items() if label.startswith("passage ")]
    shares = [len(words & set(text.lower().strip(".").split())) / max(1, len(words)) for text in passages]
    return results(*(entry(number, 100 * share) for number, share in enumerate(shares, start=1)))
