"""Whether unanswerable questions are recognised: ``python benchmarks/answerability.py QUESTIONS.jsonl PLACE``.

A line of QUESTIONS.jsonl has ``question`` and ``answerable`` (true or false); ``kind`` and ``identifier`` are optional.
PLACE is a folder of documents, which is indexed first with the default settings, or an index of them. Prints what part
of both kinds is refused: an answer abstains, since the hits are unlikely to answer or since no chunk contains an
identifier of the question. Then the same for each threshold of ``answer.abstain_below``, with the identifiers counted
and without; the default's row is marked. ``--mode`` searches another way than the default. ``--answers`` asks for the
answers too, and fails if one of them disagrees with its search.

``--fit SET ...`` prints the curve fitted to several sets instead, and what those fitted to the others are worth on
each. A set is ``NAME=QUESTIONS=PLACE``, with questions as above or in a file such as ``refusal_questions.json`` or
``absence_questions.json``, which have them by NAME. Or it is ``NAME=FOLDER``, a BEIR collection: of 160 of its
questions, the relevant documents of 80 are left out, and 600 documents are indexed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from calibration import area, fit, logistic

from retrieval_core import load_config, open_index
from retrieval_core.evaluate import load_collection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from calibration import Figures

    from retrieval_core import Index
    from retrieval_core.types import Relevance

PER_KIND, DOCUMENTS = 80, 600
"""Of a collection: questions of either kind, and documents."""
THRESHOLDS = (0.05, 0.1, 0.15, 0.2, 0.22, 0.24, 0.26, 0.28, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7)
Mode = Literal["hybrid", "dense", "lexical"]


@dataclass(frozen=True)
class Asked:
    """A question that was asked, and how its search was judged."""

    question: str
    kind: str
    is_answerable: bool
    relevance: Relevance

    def is_below(self, threshold: float) -> bool:
        """Return whether the probability is below a threshold."""
        return self.relevance.value is not None and self.relevance.value < threshold


def read_questions(path: Path, name: str = "") -> list[dict[str, Any]]:
    """Read questions, one a line, or those of a name."""
    if path.suffix == ".json":
        both: dict[str, list[Any]] = json.loads(path.read_text(encoding="utf-8"))[name]
        kinds = {True: both["answerable"], False: both["unanswerable"]}
        return [{"question": _text_of(each), "answerable": kind} for kind in kinds for each in kinds[kind]]
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _text_of(question: Any) -> str:
    return question if isinstance(question, str) else question["question"]


def is_folder(place: Path) -> bool:
    """Return whether there are documents, not an index."""
    return place.is_dir()


async def ask_collection(folder: Path, mode: Mode | None) -> list[Asked]:
    """Ask a part of a collection the questions whose relevant documents it has, and others."""
    collection, drawn = load_collection(folder), Random(7)
    relevant = {
        query: {document for document, grade in grades.items() if grade > 0}
        for query, grades in collection.judgements.items()
    }
    queries = [query for query in collection.queries if relevant.get(query)]
    drawn.shuffle(queries)
    own, others = queries[:PER_KIND], queries[PER_KIND : 2 * PER_KIND]
    kept = {document for query in own for document in relevant[query]}
    gone = {document for query in others for document in relevant[query]} - kept
    documents = {document.id: document for document in collection.documents() if document.text.strip()}
    rest = sorted(documents.keys() - kept - gone)
    drawn.shuffle(rest)
    indexed = [documents[name] for name in (*sorted(kept & documents.keys()), *rest[: max(0, DOCUMENTS - len(kept))])]
    questions = [{"question": collection.queries[query], "answerable": query in own} for query in (*own, *others)]
    with TemporaryDirectory(prefix="benchmark-answerability-") as temporary:
        place = Path(temporary, "index.db")
        async with open_index(place) as index:
            await index.aadd_documents(indexed)
        return await ask(questions, place, mode, with_answers=False)


async def ask(
    questions: Sequence[Mapping[str, Any]], place: Path, mode: Mode | None, *, with_answers: bool
) -> list[Asked]:
    """Ask an index all questions, made first of a folder."""
    with TemporaryDirectory(prefix="benchmark-answerability-") as temporary:
        config = load_config(overrides={"cache.kind": "none"})
        path = Path(temporary, "index.db") if is_folder(place) else place
        async with open_index(path, config=config) as index:
            if is_folder(place):
                await index.aingest(place)
            return [await _ask(index, each, mode, with_answers=with_answers) for each in questions]


async def _ask(index: Index, question: Mapping[str, Any], mode: Mode | None, *, with_answers: bool) -> Asked:
    text = question["question"]
    found = await index.aretrieve(text, mode=mode)
    relevance = found.relevance
    if relevance is None:
        sys.exit(f"{text}: it was not judged")
    if with_answers and ((await index.aanswer(text, mode=mode)).kind == "abstained") != relevance.is_unanswerable:
        sys.exit(f"{text}: the answer disagrees with the search")
    kind = str(question.get("kind", "answerable" if question["answerable"] else "unanswerable"))
    return Asked(text, kind, bool(question["answerable"]), relevance)


def part(refused: Sequence[bool]) -> str:
    """Return how many of some questions are refused."""
    return f"{sum(refused)} of {len(refused)}, {sum(refused) / max(1, len(refused)):.1%}"


def print_rates(asked: Sequence[Asked], default: float, *, with_misses: bool) -> None:
    """Print both rates, by kind too, and both curves."""
    good, bad = ([one for one in asked if one.is_answerable is kind] for kind in (True, False))
    print(f"unanswerable recognised: {part([one.relevance.is_unanswerable for one in bad])} (aim: at least 70 %)")
    print(f"answerable refused: {part([one.relevance.is_unanswerable for one in good])} (aim: at most 8 %)\n")
    print("| kind | refused |\n|---|---|")
    for (is_answerable, kind), _ in sorted(
        Counter((one.is_answerable, one.kind) for one in asked).items(), reverse=True
    ):
        cases = [
            one.relevance.is_unanswerable for one in asked if (one.is_answerable, one.kind) == (is_answerable, kind)
        ]
        print(f"| {'answerable' if is_answerable else 'unanswerable'}: {kind} | {part(cases)} |")
    print(
        "\n| threshold | answerable refused | unanswerable recognised | probability only: answerable | unanswerable |"
    )
    print("|---|---|---|---|---|")
    for threshold in sorted({*THRESHOLDS, default}):
        cells = [
            part([bool(one.relevance.unknown) or one.is_below(threshold) for one in cases]) for cases in (good, bad)
        ]
        cells += [part([one.is_below(threshold) for one in cases]) for cases in (good, bad)]
        print(f"| {threshold:g} | {' | '.join(cells)} |{' <-- default' if threshold == default else ''}")
    values = [
        np.array([0.5 if one.relevance.value is None else one.relevance.value for one in cases])
        for cases in (good, bad)
    ]
    print(f"\nROC area of the probability: {area(*values):.3f}")
    for title, cases in (("answerable, refused", good), ("unanswerable, not recognised", bad)):
        missed = [one for one in cases if one.relevance.is_unanswerable is one.is_answerable]
        if with_misses and missed:
            print(f"\n{title}:\n" + "\n".join(f"- {one.relevance.value or 0:.2f} {one.question}" for one in missed))


def rows_of(asked: Sequence[Asked], *, has_cosine: bool) -> tuple[Figures, Figures, Figures]:
    """Return signals, truths and weights: both kinds of a set weigh the same."""
    known = [one for one in asked if one.relevance.coverage is not None]
    truths = np.array([float(one.is_answerable) for one in known])
    weights = truths / max(1, truths.sum()) + (1 - truths) / max(1, (1 - truths).sum())
    judged = [one.relevance for one in known]
    signals = [
        [each.coverage or 0.0, -float(bool(each.unknown or each.missing_names)), each.cosine or 0.0] for each in judged
    ]
    return np.array(signals)[:, : 3 if has_cosine else 2], truths, weights


def fitted(sets: Sequence[Sequence[Asked]], *, has_cosine: bool) -> Figures:
    """Return the coefficients of a curve."""
    signals, truths, weights = zip(*(rows_of(asked, has_cosine=has_cosine) for asked in sets), strict=True)
    together = np.concatenate(weights)
    return fit(np.vstack(signals), np.concatenate(truths), together / together.sum())


def print_fits(sets: Mapping[str, Sequence[Asked]], default: float, *, has_cosine: bool) -> None:
    """Print the curve fitted to all sets, and what fits to the others are worth on each."""
    whole = fitted([*sets.values()], has_cosine=has_cosine)
    numbers = ", ".join(f"{number:.1f}" for number in whole)
    print(f"fitted to all: {numbers} (constant, coverage, no name missing, cosine)\n")
    print(f"| held out | ROC area | answerable refused at {default:g} | unanswerable recognised |\n|---|---|---|---|")
    judged: list[tuple[Figures, Figures]] = []
    for name, asked in sets.items():
        others = [other for key, other in sets.items() if key != name]
        if not others:
            continue
        coefficients = fitted(others, has_cosine=has_cosine)
        signals, truths, _ = rows_of(asked, has_cosine=has_cosine)
        values = logistic(coefficients[0] + signals @ coefficients[1:])
        good, bad = values[truths == 1], values[truths == 0]
        judged.append((good, bad))
        print(f"| {name} | {area(good, bad):.3f} | {(good < default).mean():.1%} | {(bad < default).mean():.1%} |")
    print("\n| threshold | answerable refused, mean | unanswerable recognised, mean |\n|---|---|---|")
    for threshold in sorted({*THRESHOLDS, default}):
        means = [float(np.mean([(values < threshold).mean() for values in kind])) for kind in zip(*judged, strict=True)]
        print(f"| {threshold:g} | {' | '.join(f'{mean:.1%}' for mean in means)} |")


async def ask_set(argument: str, mode: Mode | None) -> tuple[str, list[Asked]]:
    """Ask the questions of a set, and return its name too."""
    name, questions, *places = argument.split("=", 2)
    if not places:
        return name, await ask_collection(Path(questions), mode)
    return name, await ask(read_questions(Path(questions), name), Path(places[0]), mode, with_answers=False)


async def main() -> None:
    """Ask everything, and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("questions", nargs="?", type=Path)
    parser.add_argument("place", nargs="?", type=Path)
    parser.add_argument("--mode", choices=("hybrid", "dense", "lexical"))
    parser.add_argument("--answers", action="store_true")
    parser.add_argument("--misses", action="store_true", help="print the questions that are judged wrongly")
    parser.add_argument("--fit", nargs="+", metavar="SET")
    arguments = parser.parse_args()
    default = load_config().answer.abstain_below
    if arguments.fit:
        sets = dict([await ask_set(argument, arguments.mode) for argument in arguments.fit])
        print_fits(sets, default, has_cosine=arguments.mode != "lexical")
        return
    if arguments.questions is None or arguments.place is None:
        parser.error("QUESTIONS.jsonl and PLACE are needed, or --fit")
    questions = read_questions(arguments.questions)
    asked = await ask(questions, arguments.place, arguments.mode, with_answers=arguments.answers)
    print_rates(asked, default, with_misses=arguments.misses)


if __name__ == "__main__":
    asyncio.run(main())
