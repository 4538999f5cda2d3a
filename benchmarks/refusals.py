"""How often quotes are refused: ``python benchmarks/refusals.py QUESTIONS NAME=PLACE [NAME=PLACE ...] [--fit]``.

QUESTIONS is a file such as ``confidence_questions.json``, which the curve of quotes was fitted to,
``abstention_questions.json``, which its bound was chosen on, or ``refusal_questions.json``, which neither was: by NAME,
questions that documents answer, and questions of the same field that they do not. PLACE is the folder of these
documents, which is indexed first with the default settings, or an index of them.

Prints for each threshold what part of both is refused, where the local cross-encoder chose the quotes, by NAME and of
all together; the default's row is marked. ``--step`` is from one threshold to the next. With ``--fit``, prints the
coefficients fitted to all of them, and how good those fitted to the others are on each.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import dataclass
from itertools import chain
from math import log
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from calibration import area, fit, logistic

from retrieval_core import load_config, open_index
from retrieval_core.adapters.rerankers.local import LocalCrossEncoder
from retrieval_core.pipeline.answer.confidence import (
    CALIBRATED_EMBEDDER,
    LEAST_CHANCE,
    retrieval_confidence,
    signals_of,
    with_quotes,
)
from retrieval_core.pipeline.answer.extract import extract
from retrieval_core.run.runner import Run
from retrieval_core.run.threads import ThreadPool
from retrieval_core.text.analysis import Analyzer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from calibration import Figures

HIGHEST = 0.5
"""The last threshold that is tried."""


@dataclass(frozen=True)
class Asked:
    """A question that was asked.

    Attributes:
        passages: The confidence in what was found.
        chance: That the quotes answer.
        signals: The log odds of the best score, and the coverage of the question's words.
    """

    is_answered: bool
    passages: float
    chance: float
    signals: tuple[float, float]


def is_folder(place: Path) -> bool:
    """Return whether there are documents, not an index."""
    return place.is_dir()


async def ask(place: Path, questions: Mapping[str, Any]) -> list[Asked]:
    """Ask an index the questions of both kinds."""
    analyzer, pool, scorer = Analyzer(), ThreadPool("benchmark", threads=2), LocalCrossEncoder()
    config = load_config(overrides={"cache.enabled": False})
    asked: list[Asked] = []
    async with open_index(place, config=config) as index:
        for kind in ("answerable", "unanswerable"):
            for entry in questions[kind]:
                query = entry if isinstance(entry, str) else entry["question"]
                hits = (await index.aretrieve(query)).hits
                made = await extract(Run(pool), scorer, query, await index.acontext(query), analyzer)
                found = retrieval_confidence(query, hits, embedder_id=CALIBRATED_EMBEDDER, analyzer=analyzer)
                if found is None or made.best_score is None:
                    sys.exit(f"{query}: nothing to tell by")
                words = signals_of(query, hits, embedder_id=None, analyzer=analyzer).coverage
                chance = with_quotes(found, made.best_score, words).value
                score = min(max(made.best_score, 1e-9), 1 - 1e-9)
                signals = (log(score / (1 - score)), 1.0 if words is None else words)
                asked.append(Asked(kind == "answerable", found.retrieval, chance, signals))
    await scorer.aclose()
    pool.close()
    return asked


def print_table(name: str, asked: Sequence[Asked], abstain_below: float, step: float) -> None:
    """Print what each threshold refuses."""
    print(f"\n## {name}\n\n| threshold | answerable refused | unanswerable refused |\n|---|---|---|")
    for threshold in sorted({LEAST_CHANCE, *(round(step * index, 6) for index in range(round(HIGHEST / step) + 1))}):
        cells: list[str] = []
        for is_answered in (True, False):
            cases = [one for one in asked if one.is_answered == is_answered]
            refused = sum(one.passages < abstain_below or one.chance < threshold for one in cases)
            cells.append(f"{refused} of {len(cases)}, {refused / len(cases):.1%}")
        print(f"| {threshold:g} | {' | '.join(cells)} |{' <-- default' if threshold == LEAST_CHANCE else ''}")


def fitted(asked: Sequence[Asked]) -> Figures:
    """Return the coefficients of a curve: both kinds of questions weigh the same."""
    truths = np.array([float(one.is_answered) for one in asked])
    weights = 0.5 * (truths / truths.sum() + (1 - truths) / (1 - truths).sum())
    return fit(np.array([one.signals for one in asked]), truths, weights)


def print_fits(asked: Mapping[str, Sequence[Asked]]) -> None:
    """Print the curve fitted to all, and what fits to the others are worth on each."""
    print("\n## fitted\n\n| to | constant, score, words | ROC area on the one left out |\n|---|---|---|")
    for left_out in (None, *(asked if len(asked) > 1 else ())):
        found = fitted([one for name, cases in asked.items() for one in cases if name != left_out])
        cell = ""
        if left_out is not None:
            chances = logistic(found[0] + np.array([one.signals for one in asked[left_out]]) @ found[1:])
            truths = np.array([one.is_answered for one in asked[left_out]])
            cell = f"{area(chances[truths], chances[~truths]):.3f}"
        numbers = ", ".join(f"{number:.2f}" for number in found)
        print(f"| {'all' if left_out is None else f'all but {left_out}'} | {numbers} | {cell} |")


async def main() -> None:
    """Ask everything, and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("questions", type=Path)
    parser.add_argument("places", nargs="+", metavar="NAME=PLACE")
    parser.add_argument("--step", type=float, default=0.05)
    parser.add_argument("--fit", action="store_true")
    arguments = parser.parse_args()
    questions: dict[str, Any] = json.loads(arguments.questions.read_text(encoding="utf-8"))
    asked: dict[str, list[Asked]] = {}
    with TemporaryDirectory(prefix="benchmark-refusals-") as temporary:
        for given in arguments.places:
            name, _, text = given.partition("=")
            if name not in questions:
                parser.error(f"{arguments.questions} has no questions on {name!r}, but on {', '.join(questions)}")
            place = Path(text)
            if is_folder(place):
                place = Path(temporary, f"{name}.db")
                async with open_index(place) as index:
                    await index.aingest(text)
            asked[name] = await ask(place, questions[name])
    together = {"together": list(chain.from_iterable(asked.values()))} if len(asked) > 1 else {}
    for name, cases in {**asked, **together}.items():
        print_table(name, cases, load_config().answer.abstain_below, arguments.step)
    if arguments.fit:
        print_fits(asked)


if __name__ == "__main__":
    asyncio.run(main())
