"""The sentences that verifiers are measured on, written for this library."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from retrieval_core.types import Verdict

FILE = Path(__file__).parents[2] / "benchmarks" / "data" / "verifier_cases.jsonl"
Half: TypeAlias = Literal["choosing", "reporting"]
"""On the first, rules and thresholds were chosen; on the second they are reported, its failures unseen."""
VERDICTS: tuple[Verdict, ...] = ("supported", "contradicted", "not_found")


@dataclass(frozen=True, slots=True)
class Case:
    """A sentence, what it is held against, and what is right.

    Attributes:
        kind: What was done to the passages' words: verbatim, paraphrase, number, negation, swapped, absent, …
    """

    topic: str
    half: Half
    passages: tuple[str, ...]
    sentence: str
    verdict: Verdict
    kind: str


def cases(*halves: Half) -> Sequence[Case]:
    """Return the cases of these halves; all, where none is named."""
    rows = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
    return [
        Case(row["topic"], row["half"], tuple(row["passages"]), entry["text"], entry["verdict"], entry["kind"])
        for row in rows
        if not halves or row["half"] in halves
        for entry in row["sentences"]
    ]
