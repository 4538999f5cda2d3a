"""What the confidence in passages is worth: ``python benchmarks/abstention.py FOLDER [NAME ...] [--indexes FOLDER]``.

FOLDER holds BEIR collections, by default those of :data:`COLLECTIONS`. Of each an index is made with the default
settings, unless the folder of ``--indexes`` has ``NAME.db``. Each index is asked questions of its own, at most
``--own``, and of every other collection, ``--foreign`` of each, by both sides and by each alone. Passages bear on a
question where one of the first ten is of a document that is judged relevant; on a question of another collection none
does. Own questions are also asked with their relevant documents taken out of the list: the hardest foreign ones.

Prints, of the default search:

- the mean confidence for each pair of questions and index;
- for each threshold, what part of the foreign questions is abstained from, of the own ones, of those own ones that
  have a relevant passage, and how many of the answered own ones have one; the default's row is marked;
- how often passages of a given confidence bear on the question.

Then of every search, the coefficients fitted to all collections (``answer/confidence.py`` has them rounded), and how
good fits to the others are on each collection. "Held out" stands for that: no collection is judged by coefficients that
it had a part in. Each collection weighs the same, and in it own and foreign questions do. Ends with 1 if the default
refuses more than 5 % of the own questions of a collection that have a relevant passage, in the default search.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from calibration import area, bins, brier, calibration_error, fit, logistic

from retrieval_core import load_config, open_index
from retrieval_core.evaluate import load_collection
from retrieval_core.pipeline.answer.confidence import (
    CALIBRATED_EMBEDDER,
    DEPTH,
    Kind,
    Signals,
    curve_for,
    signals_of,
)
from retrieval_core.text.analysis import Analyzer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence

    from calibration import Figures

    from retrieval_core import Index
    from retrieval_core.evaluate import Collection
    from retrieval_core.types import Hit

COLLECTIONS = ("scifact", "cranfield", "esci_us_small", "mtrag_fiqa", "limit_small")
THRESHOLDS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
BOUND = 0.05
"""The most of a collection's own questions with a relevant passage that the default may refuse."""
LIST = 30
"""Hits asked for, so that ten are left where relevant ones are taken out."""
Source = Literal["own", "foreign", "taken out"]
SignalName = Literal["cosine", "coverage"]


@dataclass(frozen=True)
class Asked:
    """A question that was asked of an index."""

    index: str
    source: str
    kind: Source
    bears: bool
    """Whether one of the first ten passages is of a relevant document."""
    signals: Signals | None
    """``None`` where nothing was found."""

    @property
    def confidence(self) -> float:
        """As :func:`retrieval_core.pipeline.answer.confidence.retrieval_confidence` computes it."""
        curve = None if self.signals is None else curve_for(self.signals)
        return 0.0 if curve is None or self.signals is None else curve.chance(self.signals)


def spread(queries: Mapping[str, str], count: int) -> dict[str, str]:
    """Return so many questions, spread evenly over all: neighbours are often alike."""
    chosen = list(queries.items())
    return dict(chosen[place * len(chosen) // count] for place in range(count)) if len(chosen) > count else dict(chosen)


def exists(place: Path) -> bool:
    """Return whether there is an index."""
    return place.is_file()


@asynccontextmanager
async def opened(name: str, place: Path, collection: Collection, mode: str) -> AsyncGenerator[Index]:
    """Open an index of a collection, made first where there is none."""
    config = load_config(overrides={"cache.enabled": False, "search.mode": mode})
    is_new = not exists(place)
    async with open_index(place, config=config) as index:
        if is_new:
            print(f"{name}: indexing", file=sys.stderr, flush=True)
            await index.aadd_documents(collection.documents())
        wanted = sum(bool(document.text.strip()) for document in collection.documents())
        if (there := (await index.adescribe()).documents) < wanted:
            sys.exit(f"{place} has {there} documents of {wanted}; index it anew")
        yield index


async def ask(
    index: Index, name: str, questions: Mapping[str, Mapping[str, str]], collection: Collection, analyzer: Analyzer
) -> list[Asked]:
    """Ask the questions of all collections."""
    asked: list[Asked] = []
    for source, queries in questions.items():
        for query_id, query in queries.items():
            hits = (await index.aretrieve(query, top_k=LIST)).hits
            lists: dict[Source, Sequence[Hit]] = {"foreign": hits}
            bears = False
            if source == name:
                relevant = {document for document, grade in collection.judgements[query_id].items() if grade > 0}
                bears = any(hit.chunk.document_id in relevant for hit in hits[:DEPTH])
                lists = {"own": hits, "taken out": [hit for hit in hits if hit.chunk.document_id not in relevant]}
            for kind, listed in lists.items():
                first = listed[:DEPTH]
                signals = (
                    signals_of(query, first, embedder_id=CALIBRATED_EMBEDDER, analyzer=analyzer) if first else None
                )
                asked.append(Asked(name, source, kind, bears and kind == "own", signals))
    return asked


def with_only(asked: Iterable[Asked], *names: SignalName) -> list[Asked]:
    """Return the cases with some of the signals alone: without cosines is as with another embedder, or none."""
    return [
        one
        if one.signals is None
        else replace(
            one,
            signals=Signals(
                one.signals.kind,
                one.signals.cosine if "cosine" in names else None,
                one.signals.coverage if "coverage" in names else None,
            ),
        )
        for one in asked
    ]


def of_kind(asked: Iterable[Asked], *kinds: Source) -> list[Asked]:
    """Return those of some kinds."""
    return [one for one in asked if one.kind in kinds]


def weights_of(asked: Sequence[Asked]) -> Figures:
    """Return weights that give each collection the same, and in it own and foreign questions."""
    groups = [(one.index, one.kind) for one in asked]
    weights = np.array([1 / groups.count(group) for group in groups])
    return weights / weights.sum()


def matrix(asked: Sequence[Asked]) -> Figures:
    """Return the signals that there are, one row a case."""
    rows = [(one.signals.cosine, one.signals.coverage) for one in asked if one.signals is not None]
    return np.array([[signal for signal in row if signal is not None] for row in rows], dtype=np.float64)


def fitted(asked: Sequence[Asked]) -> Figures:
    """Return the coefficients for own questions with a relevant passage against foreign ones."""
    # An own question without one may be the search's fault: it says nothing on what fitting passages look like.
    cases = [one for one in asked if (one.bears or one.kind == "foreign") and one.signals is not None]
    return fit(matrix(cases), np.array([float(one.bears) for one in cases]), weights_of(cases))


def found(asked: Sequence[Asked]) -> float:
    """Return the part of own questions that have a relevant passage, in the mean over the collections."""
    names = dict.fromkeys(one.index for one in asked)
    own = of_kind(asked, "own")
    return float(np.mean([np.mean([one.bears for one in own if one.index == name]) for name in names]))


def held_out(asked: Sequence[Asked]) -> Figures:
    """Return the confidence of each case by coefficients fitted to the other collections."""
    values = np.zeros(len(asked))
    for name in dict.fromkeys(one.index for one in asked):
        others = [one for one in asked if one.index != name]
        coefficients, most = fitted(others), found(others)
        places = [place for place, one in enumerate(asked) if one.index == name and one.signals is not None]
        signals = matrix([asked[place] for place in places])
        values[places] = most * logistic(coefficients[0] + signals @ coefficients[1:])
    return values


def below(asked: Sequence[Asked], values: Figures, threshold: float) -> float:
    """Return the part of the cases with less confidence, in the mean over the indexes."""
    return float(np.mean([*below_by_index(asked, values, threshold).values()]))


def below_by_index(asked: Sequence[Asked], values: Figures, threshold: float) -> dict[str, float]:
    """Return the part of the cases with less confidence, by index."""
    parts: dict[str, list[bool]] = {}
    for one, value in zip(asked, values, strict=True):
        parts.setdefault(one.index, []).append(bool(value < threshold))
    return {name: float(np.mean(part)) for name, part in parts.items()}


def confidences(asked: Sequence[Asked]) -> Figures:
    """Return the confidence of each case."""
    return np.array([one.confidence for one in asked])


def print_means(asked: Sequence[Asked], names: Sequence[str]) -> None:
    """Print the mean confidence by index and questions."""
    print(f"\n## mean confidence\n\n| index | {' | '.join(names)} | own, relevant taken out |")
    print(f"|---|{'---|' * (len(names) + 1)}")
    for index in names:
        cells = [
            confidences([one for one in of_kind(asked, "own", "foreign") if (one.index, one.source) == (index, source)])
            for source in names
        ]
        cells.append(confidences([one for one in of_kind(asked, "taken out") if one.index == index]))
        print(f"| {index} | {' | '.join(f'{cell.mean():.2f}' for cell in cells)} |")


def print_curve(asked: Sequence[Asked], default: float) -> None:
    """Print what each threshold does."""
    own, foreign, near = (of_kind(asked, kind) for kind in get_args(Source))
    good = [one for one in own if one.bears]
    print("\n## abstained from, by threshold: the mean over the indexes\n")
    print("| threshold | foreign | own | own with a relevant passage | own, relevant taken out | accuracy, answered |")
    print("|---|---|---|---|---|---|")
    for threshold in sorted({0.0, *THRESHOLDS, default}):
        parts = [below(cases, confidences(cases), threshold) for cases in (foreign, own, good, near)]
        answered = [one for one in own if one.confidence >= threshold]
        accuracy = found(answered)
        mark = " <-- default" if threshold == default else ""
        print(f"| {threshold:.2f} | {' | '.join(f'{part:.1%}' for part in parts)} | {accuracy:.1%} |{mark}")


def print_reliability(asked: Sequence[Asked]) -> None:
    """Print how often passages of a given confidence bear on the question, held out."""
    values, truths, weights = held_out(asked), np.array([float(one.bears) for one in asked]), weights_of(asked)
    print("\n## how often it is right, held out\n\n| confidence | cases | weight | mean confidence | true share |")
    print("|---|---|---|---|---|")
    for lower, count, weight, mean, share in bins(values, truths, weights):
        print(f"| {lower:.1f} to {lower + 0.1:.1f} | {count} | {weight:.3f} | {mean:.3f} | {share:.3f} |")
    score, error = brier(values, truths, weights), calibration_error(values, truths, weights)
    constant = brier(np.full(len(truths), truths @ weights), truths, weights)
    print(f"\nBrier score {score:.3f}, {constant:.3f} for the mean each time; expected calibration error {error:.3f}.")


def print_fit(search: str, asked: Sequence[Asked], default: float) -> None:
    """Print a row on one kind of search."""
    cases = of_kind(asked, "own", "foreign")
    values, truths, weights = held_out(cases), np.array([float(one.bears) for one in cases]), weights_of(cases)
    is_foreign = np.array([one.kind == "foreign" for one in cases])
    good = [one for one in cases if one.bears]
    refused = below_by_index(good, values[truths == 1], default)
    worst = max(refused, key=lambda name: refused[name])
    caught = below(of_kind(cases, "foreign"), values[is_foreign], default)
    numbers = ", ".join(f"{number:.1f}" for number in fitted(cases))
    cells = (
        f"{found(cases):.2f}",
        f"{area(values[truths == 1], values[is_foreign]):.3f}",
        f"{brier(values, truths, weights):.3f}",
        f"{calibration_error(values, truths, weights):.3f}",
        f"{np.mean([*refused.values()]):.1%}, {refused[worst]:.1%} {worst}",
        f"{caught:.1%}",
    )
    print(f"| {search} | {numbers} | {' | '.join(cells)} |")


async def main() -> None:
    """Ask everything, and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=COLLECTIONS)
    parser.add_argument("--indexes", type=Path)
    parser.add_argument("--own", type=int, default=300)
    parser.add_argument("--foreign", type=int, default=100)
    arguments = parser.parse_args()
    names: Sequence[str] = arguments.names
    if len(set(names)) < 2:
        parser.error("at least two collections are needed: each is asked the others' questions")
    collections = {name: load_collection(arguments.folder / name) for name in names}
    asked: dict[str, list[Asked]] = {mode: [] for mode in get_args(Kind)}
    with TemporaryDirectory(prefix="benchmark-abstention-") as temporary:
        for name, collection in collections.items():
            questions = {
                other: spread(collections[other].queries, arguments.own if other == name else arguments.foreign)
                for other in names
            }
            ready = None if arguments.indexes is None else arguments.indexes / f"{name}.db"
            place = ready if ready is not None and exists(ready) else Path(temporary, f"{name}.db")
            for mode, cases in asked.items():
                print(f"{name}: {mode}", file=sys.stderr, flush=True)
                async with opened(name, place, collection, mode) as index:
                    cases.extend(await ask(index, name, questions, collection, Analyzer()))
    default = load_config().answer.abstain_below
    hybrid = asked["hybrid"]
    print_means(hybrid, names)
    print_curve(hybrid, default)
    print_reliability(of_kind(hybrid, "own", "foreign"))
    print(f"\n## every search, held out, and what is refused at {default:g}\n")
    print("| search | fitted | found | ROC area | Brier | ECE | own with a relevant passage, worst | foreign |")
    print("|---|---|---|---|---|---|---|---|")
    for mode in ("hybrid", "dense"):
        print_fit(f"{mode}, cosine and words", asked[mode], default)
    for mode, cases in asked.items():
        print_fit(f"{mode}, words", with_only(cases, "coverage"), default)
    print_fit("hybrid, cosine", with_only(hybrid, "cosine"), default)
    good = [one for one in hybrid if one.bears]
    worst = max(below_by_index(good, confidences(good), default).values())
    sys.exit(worst > BOUND)


if __name__ == "__main__":
    asyncio.run(main())
