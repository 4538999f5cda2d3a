"""How often a language model is right about sentences of an answer.

``python benchmarks/verifier.py MODEL --base-url URL`` prints a table of verdicts for each set of sentences: rows are
what is right, columns what the model said, with precision and recall of each, and the recall of each kind of sentence.
The sets are the two halves of ``claims/unseen.json``, and the older sentences of ``data/verifier_cases.jsonl``, most of
them in other words than the passages'. The key is read from ``OPENAI_API_KEY``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from retrieval_core.adapters.llms.openai import OpenAILLM
from retrieval_core.adapters.verifiers.llm import LLMVerifier

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from retrieval_core.ports import Verified, Verifier
    from retrieval_core.types import Verdict

FOLDER = Path(__file__).parent
UNSEEN = FOLDER / "claims" / "unseen.json"
OLD = FOLDER / "data" / "verifier_cases.jsonl"
VERDICTS: tuple[Verdict, ...] = ("supported", "contradicted", "not_found")
PARTS = ("tune (old)", "tune", "held out")


@dataclass(frozen=True, slots=True)
class Case:
    """A sentence, what it is held against, and what is right.

    Attributes:
        kind: What was done to the passages' words.
    """

    part: str
    passages: tuple[str, ...]
    sentence: str
    verdict: Verdict
    kind: str


async def main(model: str, base_url: str | None) -> None:
    """Print the tables."""
    language_model = OpenAILLM(model, base_url=base_url, api_key=os.environ.get("OPENAI_API_KEY"))
    try:
        report(model, await verdicts(LLMVerifier(language_model)))
    finally:
        await language_model.aclose()


def cases() -> Iterator[Case]:
    """Yield all sentences, those of the same passages together."""
    for row in map(json.loads, OLD.read_text(encoding="utf-8").splitlines()):
        for entry in row["sentences"]:
            yield Case(PARTS[0], tuple(row["passages"]), entry["text"], entry["verdict"], entry["kind"])
    for row in json.loads(UNSEEN.read_text(encoding="utf-8")):
        yield Case(row["part"], (row["passage"],), row["claim"], row["verdict"].replace(" ", "_"), row["kind"])


async def verdicts(verifier: Verifier) -> list[tuple[Case, Verified]]:
    """Judge all sentences, those about the same passages together as those of an answer are."""
    found: list[tuple[Case, Verified]] = []
    for passages, group in groupby(cases(), key=lambda case: case.passages):
        those = list(group)
        for start in range(0, len(those), verifier.batch_size):
            batch = those[start : start + verifier.batch_size]
            answer = await verifier.verify("What do they say?", [case.sentence for case in batch], passages)
            found += zip(batch, answer.verdicts, strict=True)
    return found


def report(name: str, found: Sequence[tuple[Case, Verified]]) -> None:
    """Print a table of verdicts for each set, and one of the kinds."""
    for part in PARTS:
        those = [(case, one) for case, one in found if case.part == part]
        counts = Counter((case.verdict, one.verdict) for case, one in those)
        print(f"\n{name}, {part}: {len(those)} sentences")
        print(f"{'':26}" + "".join(f"{verdict:>14}" for verdict in VERDICTS) + f"{'precision':>14}{'recall':>10}")
        for verdict in VERDICTS:
            said = sum(counts[other, verdict] for other in VERDICTS)
            row = [counts[verdict, other] for other in VERDICTS]
            precision = counts[verdict, verdict] / said if said else 0.0
            print(line(verdict, row) + f"{precision:14.1%}{counts[verdict, verdict] / sum(row):10.1%}")
        kinds = Counter((case.verdict, case.kind, one.verdict) for case, one in those)
        for verdict, kind in sorted({(verdict, kind) for verdict, kind, _ in kinds}):
            row = [kinds[verdict, kind, other] for other in VERDICTS]
            print(line(f"  {verdict[:3]}. {kind}", row) + f"{'':14}{kinds[verdict, kind, verdict] / sum(row):10.1%}")


def line(title: str, row: Sequence[int]) -> str:
    """Return the beginning of a line of a table."""
    return f"{title:26}" + "".join(f"{count:14}" for count in row)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="How often a language model is right about sentences of an answer.")
    parser.add_argument("model", help="the model to ask")
    parser.add_argument("--base-url", help="of its API")
    given = parser.parse_args()
    asyncio.run(main(given.model, given.base_url))
