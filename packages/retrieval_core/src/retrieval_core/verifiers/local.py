"""Holding sentences against passages word by word and figure by figure on this machine, without a model."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from retrieval_core.claims import Differences, Statement, differences, rules_id, statement_of
from retrieval_core.claims.alignments import ALL, NEARLY_ALL
from retrieval_core.errors import InvalidParameterError
from retrieval_core.ports import Verdicts, Verified
from retrieval_core.run.threads import ThreadPool
from retrieval_core.verifiers.windows import LONGEST_READ, MOST_SENTENCES, Window, windows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from retrieval_core.types import Verdict

SUPPORTED_FROM = 0.65
"""The least part of a sentence's words that a passage has if it supports it; chosen on one half of the cases of
``benchmarks/verifier.py`` and reported on the other."""
CONTRADICTED_FROM = 0.65
"""The same of the words besides those that differ, for a passage that contradicts it."""

# Windows of several sentences hold words of different statements, so what contradicts there needs more in common.
_WIDE_CONTRADICTED_FROM = 0.75
_SURE = 0.85
_CLEARLY_CLOSER = 0.15
_COMPARED = 12
"""Windows of one sentence, and of several, that are compared in full."""
_LEAST_WORDS = 3
_PARTS = re.compile(r", (?:and|but|while|whereas) |; ")
_SHOWN_WORDS = 3
_MOST_WORDS_SHOWN = 6


@dataclass(frozen=True, slots=True)
class _Judged:
    """A window, what differs, and what follows from it."""

    verdict: Verdict
    window: Window | None = None
    found: Differences | None = None


class LocalVerifier:
    """Compares words, figures, names and negations; a :class:`~retrieval_core.ports.Verifier` without a model.

    A sentence is held against each sentence of each passage, each two or three neighbouring ones, and each row of a
    table. It is supported where one of these has most of its words, all of its figures (in any form: ``1,000`` and
    ``one thousand``, ``90 s`` and ``1.5 minutes``) and names, denies nothing that it affirms, and is not the sentence
    but for a word that was altered or added. It is contradicted where one has most of its other words and another
    figure, date, name, weekday or colour in the place of its own, the opposite of a word (enabled, disabled), a
    negation that it has not, or two things the other way round. Everything else is not found. Sentences with several
    clauses are held against the passages clause by clause too.

    The words are those of English. In other languages figures, names and words that the passages have are compared all
    the same, and negations and opposites are not seen. What is said in quite other words than the passages' is not
    found; :class:`~retrieval_core.verifiers.llm.LLMVerifier` finds more of it.

    ``docs/measurements.md`` has what it gets right, and why no cross-encoder is asked: it tells what a passage is
    about, which the words tell too, and neither what is missing in it nor what contradicts.

    Args:
        batch_size: Sentences of one call, at least 1.
        threads: Calls that are worked on at a time, at least 1.

    Raises:
        InvalidParameterError: ``batch_size`` or ``threads`` is less than 1.
    """

    def __init__(self, *, batch_size: int = 32, threads: int = 1) -> None:
        for name, value in (("batch_size", batch_size), ("threads", threads)):
            if value < 1:
                msg = f"{name} must be at least 1, got {value}"
                raise InvalidParameterError(msg)
        self._batch_size = batch_size
        self._pool = ThreadPool("verifier", threads)

    @property
    def id(self) -> str:
        """Names the method, and a digest of its rules and thresholds."""
        settings = [
            rules_id(),
            SUPPORTED_FROM,
            CONTRADICTED_FROM,
            NEARLY_ALL,
            ALL,
            MOST_SENTENCES,
            LONGEST_READ,
            _COMPARED,
        ]
        return f"exact-comparison@{sha256(json.dumps(settings).encode()).hexdigest()[:12]}"

    @property
    def batch_size(self) -> int:
        """Sentences of one call."""
        return self._batch_size

    async def verify(self, query: str, sentences: Sequence[str], passages: Sequence[str]) -> Verdicts:  # noqa: ARG002
        """Hold sentences against passages; the question does not matter here.

        Raises:
            PoolSaturatedError: Too many calls are waiting.
        """
        windows = await self._pool.run(windows_of, tuple(passages))
        # One by one, so that a call that is cancelled ends with the sentence that is being compared.
        return Verdicts(tuple([await self._pool.run(verify, sentence, windows, passages) for sentence in sentences]))

    async def aclose(self) -> None:
        """Wait for the sentence that is compared, and refuse further calls. Closing twice is fine."""
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Do what :meth:`aclose` does, blocking."""
        self._pool.close()


def verify(sentence: str, windows: Sequence[Window], passages: Sequence[str]) -> Verified:
    """Hold one sentence against the windows of passages."""
    text = sentence[:LONGEST_READ]
    judged = _whole(statement_of(text), windows)
    parts = [statement_of(part) for part in _PARTS.split(text)]
    if (
        len(parts) > 1
        and all(_says_something(part) for part in parts)
        and not any(text in passage for passage in passages)
    ):
        each = [_whole(part, windows) for part in parts]
        wrong = next((part for part in each if part.verdict == "contradicted"), None)
        if all(part.verdict == "supported" for part in each):
            judged = each[0]
        elif wrong is not None and judged.verdict != "contradicted":
            judged = wrong
    window = judged.window
    if judged.verdict == "not_found" or window is None:
        return Verified("not_found", reason=_missing(judged.found))
    quote = passages[window.passage][window.start : window.end]
    reason = _same(judged.found) if judged.verdict == "supported" else _difference(judged.found)
    return Verified(judged.verdict, window.passage, quote, reason)


def _says_something(statement: Statement) -> bool:
    return len(statement.content) + len(statement.figures) >= _LEAST_WORDS


def _whole(claim: Statement, windows: Sequence[Window]) -> _Judged:
    single = _compared(claim, (window for window in windows if window.sentences == 1))
    wide = _compared(claim, (window for window in windows if window.sentences > 1))
    good = next((pair for pair in single if _agrees(pair[1])), None)
    bad = next((pair for pair in single if pair[1].contradict and pair[1].covered_else >= CONTRADICTED_FROM), None)
    if good and not (bad and bad[1].covered_else >= good[1].covered + _CLEARLY_CLOSER):
        return _Judged("supported", *good)
    wide_good = next((pair for pair in wide if _agrees(pair[1])), None)
    if bad and (wide_good is None or bad[1].covered_else >= min(_SURE, wide_good[1].covered)):
        return _Judged("contradicted", *bad)
    if wide_good:
        return _Judged("supported", *wide_good)
    wide_bad = next((pair for pair in wide if _names_another(pair[1])), None)
    if wide_bad:
        return _Judged("contradicted", *wide_bad)
    nearest = max((*single[:1], *wide[:1]), key=lambda pair: pair[1].covered, default=None)
    return _Judged("not_found") if nearest is None else _Judged("not_found", *nearest)


def _compared(claim: Statement, windows: Iterable[Window]) -> list[tuple[Window, Differences]]:
    """Return the windows that share the most words with a claim, the closest first, and how they differ from it."""
    values = {value for figure in claim.figures for value in figure.values}
    shared = [
        (len(claim.forms & window.read.forms) + len(values & window.figures), -place, window)
        for place, window in enumerate(windows)
    ]
    nearest = sorted((entry for entry in shared if entry[0]), key=lambda entry: entry[:2], reverse=True)[:_COMPARED]
    pairs = [(window, differences(claim, window.read, window.context)) for _, _, window in nearest]
    return sorted(pairs, key=lambda pair: (-max(pair[1].covered, pair[1].covered_else - 0.05), pair[0].sentences))


def _agrees(found: Differences) -> bool:
    return found.nothing_missing and not found.contradict and found.covered >= SUPPORTED_FROM


def _names_another(found: Differences) -> bool:
    another = found.other_figures or found.other_names or found.other_words
    return bool(another) and found.covered_else >= _WIDE_CONTRADICTED_FROM


def _difference(found: Differences | None) -> str:
    if found is None:
        return ""
    for mine, theirs in (*found.other_figures, *found.other_names, *found.other_words, *found.opposites):
        return f"the passage says {theirs!r:.80}, the answer {mine!r:.80}"
    if found.swapped:
        return f"the passage has {' and '.join(map(_quoted, found.swapped))} the other way round"
    return f"either the passage or the answer denies {_quoted(found.denied[0])}, and not both"


def _same(found: Differences | None) -> str:
    if found is None or not found.missing_words:
        return "the passage says the same"
    words = ", ".join(map(_quoted, found.missing_words[:_MOST_WORDS_SHOWN]))
    more = ", …" if len(found.missing_words) > _MOST_WORDS_SHOWN else ""
    return f"the passage says the same, but for: {words}{more}"


def _missing(found: Differences | None) -> str:
    if found is None:
        return "no passage has a word of it"
    lost = tuple(dict.fromkeys((*found.missing_figures, *found.missing_names, *found.strange_words)))[:_SHOWN_WORDS]
    if lost:
        return f"no passage that is near has {', '.join(map(_quoted, lost))}"
    return f"the nearest passage has {found.covered:.0%} of its words"


def _quoted(text: str) -> str:
    return f"{text!r:.80}"
