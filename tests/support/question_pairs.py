"""The pairs of questions that are measured, written for this library."""

from __future__ import annotations

import json
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks" / "data"


def pairs(name: str) -> list[tuple[str, str]]:
    """Return the pairs of a file: ``lookalikes``, ``lookalikes_later``, ``paraphrases``, …."""
    lines = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [(row["question"], row["other"]) for row in map(json.loads, lines)]
