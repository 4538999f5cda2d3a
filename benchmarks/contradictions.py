"""How right the check of negations and figures is: ``python benchmarks/contradictions.py PAIRS.jsonl``.

A line has ``quote``, ``sentence`` and ``label``: ``negated`` and ``figure`` are contradicted; ``same`` and ``neutral``
are not. Prints how many of each are called contradicted, precision and recall.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from retrieval_core.text.matching import find_contradiction

CONTRADICTED = frozenset({"negated", "figure"})


def main() -> None:
    """Compare all pairs, and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--misses", action="store_true", help="print the pairs that are judged wrongly")
    arguments = parser.parse_args()
    counts: Counter[tuple[str, bool]] = Counter()
    for line in arguments.pairs.read_text(encoding="utf-8").splitlines():
        pair = json.loads(line)
        found = find_contradiction(pair["sentence"], [pair["quote"]])
        counts[pair["label"], found is not None] += 1
        if arguments.misses and (found is None) is (pair["label"] in CONTRADICTED):
            print(f"{pair['label']}: {pair['sentence']}\n    {pair['quote']}\n    {found and found.reason}")
    print("| label | called contradicted |\n|---|---|")
    for label in sorted({label for label, _ in counts}):
        print(f"| {label} | {counts[label, True]} of {counts[label, True] + counts[label, False]} |")
    called = sum(count for (_, is_called), count in counts.items() if is_called)
    wanted = sum(count for (label, _), count in counts.items() if label in CONTRADICTED)
    right = sum(counts[label, True] for label in CONTRADICTED)
    print(f"\nprecision {right} of {called}, {right / max(1, called):.1%} (aim: at least 98 %)")
    print(f"recall {right} of {wanted}, {right / max(1, wanted):.1%} (aim: at least 80 %)")


if __name__ == "__main__":
    main()
