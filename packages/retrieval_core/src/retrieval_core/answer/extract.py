"""An answer without a language model: the passages' own best sentences, word for word, each with its source."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from itertools import takewhile
from numbers import Real
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.answer.candidates import MOST, candidates
from retrieval_core.errors import MalformedAnswerError
from retrieval_core.ports import RerankScores
from retrieval_core.run.outcomes import Failed, Ok
from retrieval_core.types import AnswerSentence, Attribution, Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from retrieval_core.analysis import Analyzer
    from retrieval_core.answer.candidates import Candidate
    from retrieval_core.answer.units import Kind
    from retrieval_core.ports import Reranker
    from retrieval_core.run.runner import Run
    from retrieval_core.types import ContextPack

MOST_STRETCHES = 3
"""Sentences that an answer is made of, each with its neighbours."""
LONGEST_ANSWER = 1000
"""Code points of an answer's quotes; only the first one may be longer."""
WEAKEST = 0.01
"""The odds by a scorer's score, beside the best one's, below which a sentence is left out."""
LEAST_LOCAL_SCORE = 0.01
"""The local cross-encoder's score that one sentence at least must have: docs/measurements.md says what that refuses."""
ALIKE = 0.6
"""The part of a sentence's terms from which on it says what another one has said."""

_DAMAGED = re.compile(r"^[\s>]*<|^[\s>]*(?:```|~~~|\|)[^\n]*\Z", re.MULTILINE)
"""Finds what a marker behind it would damage or be lost in: tags, and a fence or a table row at the end."""


@dataclass(frozen=True, slots=True)
class Extracted:
    """An answer of quotes.

    Attributes:
        text: Each stretch of the passages byte for byte, with ``[n]`` behind it; empty where none of them answers.
        sentences: One for each stretch, in order.
        failures: Calls that failed; words chose instead.
    """

    text: str = ""
    sentences: tuple[AnswerSentence, ...] = ()
    failures: tuple[Failed, ...] = ()


async def extract(
    run: Run,
    scorer: Reranker | None,
    query: str,
    pack: ContextPack,
    analyzer: Analyzer,
    *,
    most: int = MOST,
    least_score: float = 0.0,
) -> Extracted:
    """Make an answer of the sentences of a pack that bear most on the question.

    Args:
        run: Makes the calls.
        scorer: Reads question and sentence together; without one, or where it fails, words alone choose.
        query: The question.
        pack: What may be quoted.
        analyzer: Makes the terms that are compared.
        most: The most sentences that are scored, at least 1.
        least_score: What the best sentence must score for any to be taken, in [0, 1].
    """
    started = run.elapsed_ms
    found = candidates(pack, analyzer, query, most=most)
    scores: tuple[float, ...] | None = None
    failures: tuple[Failed, ...] = ()
    if scorer is not None and found:
        scored = await _scores(run, scorer, query, [_as_read(candidate) for candidate in found])
        if isinstance(scored, Failed):
            failures = (scored,)
        else:
            scores = scored
    if scores is not None and max(scores) < least_score:
        run.note("extract", started, len(found), 0, f"no sentence scores {least_score:g} or more")
        return Extracted()
    chosen = choose(found, scores)
    text, sentences = compose(chosen)
    how = "words" if scores is None or scorer is None else scorer.id
    run.note("extract", started, len(found), len(chosen), f"by {how}" if found else "no passage says anything")
    return Extracted(text, sentences, failures)


async def _scores(run: Run, scorer: Reranker, query: str, texts: Sequence[str]) -> tuple[float, ...] | Failed:
    size = max(1, scorer.batch_size)
    run = run.on(f"reranker {scorer.id}")

    async def score(part: Sequence[str]) -> Ok[RerankScores] | Failed:
        return _checked(await run.call("extract", scorer.score, query, part), scorer, len(part))

    scores: list[float] = []
    for outcome in await asyncio.gather(*(score(texts[start : start + size]) for start in range(0, len(texts), size))):
        if isinstance(outcome, Failed):
            return outcome
        scores += outcome.value.scores
    return tuple(scores)


def _checked(outcome: Ok[RerankScores] | Failed, scorer: Reranker, expected: int) -> Ok[RerankScores] | Failed:
    """Return a call's outcome, as a failure where it does not give each text a number."""
    if isinstance(outcome, Failed):
        return outcome
    answer: Any = outcome.value  # a plug-in may give anything
    scores = cast("Any", answer.scores) if isinstance(answer, RerankScores) else None
    if (
        isinstance(scores, (tuple, list))
        and len(cast("Sequence[object]", scores)) == expected
        and all(_is_score(score) for score in cast("Sequence[object]", scores))
    ):
        return outcome
    problem = f"the answer of {scorer.id} cannot be used: no scores from 0 to 1 for {expected} texts in {answer!r:.200}"
    return Failed("extract", MalformedAnswerError(problem, scorer.id))


def _as_read(candidate: Candidate) -> str:
    """Return what a scorer reads: passages are scored with their titles too."""
    return f"{candidate.above}\n{candidate.text}" if candidate.above else candidate.text


def _is_score(score: object) -> bool:
    return type(score) is not bool and isinstance(score, Real) and 0 <= cast("float", score) <= 1


def choose(
    found: Sequence[Candidate],
    scores: Sequence[float] | None = None,
    *,
    most: int = MOST_STRETCHES,
    longest: int = LONGEST_ANSWER,
) -> tuple[Candidate, ...]:
    """Return the best of some candidates, best first, none that says what a better one says.

    Each has its neighbours with it, as far as there is room: the sentence before it, which it may refer to, and the one
    after it, which may go on.

    Args:
        found: Best first, as far as words tell.
        scores: One for each, in [0, 1], which then tells what is best; ``None`` where words alone count.
        most: The most that are returned.
        longest: The most code points of all of them; the best one is returned whatever its length.
    """
    chosen: list[Candidate] = []
    room = longest
    for candidate in _ordered(found, scores):
        length = len(candidate.text)
        if chosen and (length > room or any(_says(other, candidate) for other in chosen)):
            continue
        grown = _grown(candidate, chosen, room - length)
        room -= length + len(grown.text) - len(candidate.text)
        chosen.append(grown)
        if len(chosen) == most:
            break
    return tuple(chosen)


def _grown(candidate: Candidate, chosen: Sequence[Candidate], room: int) -> Candidate:
    """Return a candidate with its neighbours, as far as there is room and they are not there already."""
    start, end = candidate.span.start, candidate.span.end
    taken = [other.span for other in chosen if other.quoted_from == candidate.quoted_from]
    for span in (candidate.before, candidate.after):
        if span is None or any(other.start < span.end and span.start < other.end for other in taken):
            continue
        wider = Span(min(start, span.start), max(end, span.end))
        more = wider.end - wider.start - (end - start)
        if more <= room:
            room -= more
            start, end = wider.start, wider.end
    return replace(candidate, span=Span(start, end))


def _ordered(found: Sequence[Candidate], scores: Sequence[float] | None) -> list[Candidate]:
    """Return candidates best first, without those that are far behind or have no word of the question."""
    if not found:
        return []
    if scores is None:
        return [candidate for candidate in found if candidate.words] or list(found)
    odds = [_odds(score) for score in scores]
    least = WEAKEST * max(odds)
    order = sorted(range(len(found)), key=lambda place: (-odds[place], place))
    return [found[place] for place in order if odds[place] >= least]


def _odds(score: float) -> float:
    bounded = min(max(score, 1e-9), 1 - 1e-9)
    return bounded / (1 - bounded)


def _says(chosen: Candidate, candidate: Candidate) -> bool:
    """Whether what was chosen says what a candidate says, or holds it."""
    if chosen.quoted_from == candidate.quoted_from and _holds(chosen.span, candidate.span):
        return True
    fewest = min(len(chosen.terms), len(candidate.terms))
    return len(chosen.terms & candidate.terms) >= ALIKE * fewest


@dataclass(slots=True)
class _Stretch:
    """Parts of one quote that are shown together.

    Attributes:
        glue: What stands between this stretch and the one before it.
    """

    first: Candidate
    spans: list[Span]
    kind: Kind
    glue: str = "\n\n"

    @property
    def whole(self) -> str:
        """The text of the quote that it is of."""
        return self.first.passage.citation.quotes[self.first.part].text

    @property
    def text(self) -> str:
        """As it stands in the answer, without its marker."""
        between = "\n" if self.kind == "row" else "\n\n"
        return between.join(self.whole[span.start : span.end] for span in self.spans)


def compose(chosen: Sequence[Candidate]) -> tuple[str, tuple[AnswerSentence, ...]]:
    """Return candidates as a text to read, and its sentences with their sources.

    The document with the best one comes first; what is of one document stands in its order. Neighbours are one stretch,
    the head of a table or of a list is said once, and a marker ``[n]`` stands behind each stretch: on a line of its own
    after a table or a block of code, which it would break.

    Args:
        chosen: Best first.
    """
    documents = dict.fromkeys(candidate.passage.citation.document_id for candidate in chosen)
    stretches: list[_Stretch] = []
    for document in documents:
        own = (candidate for candidate in chosen if candidate.passage.citation.document_id == document)
        stretches += _stretches(sorted(own, key=lambda candidate: candidate.place))
    text = ""
    sentences: list[AnswerSentence] = []
    for stretch in stretches:
        number = stretch.first.passage.citation.number
        start = len(text) + (len(stretch.glue) if text else 0)
        text = f"{text}{stretch.glue if text else ''}{stretch.text}{_before_marker(stretch)}"
        marker = Span(len(text), len(text) + len(f"[{number}]"))
        text += f"[{number}]"
        source = replace(
            stretch.first.passage.citation, quotes=tuple(stretch.first.quoted(span) for span in stretch.spans)
        )
        sentences.append(
            AnswerSentence(Span(start, len(text)), text[start:], attributions=(Attribution(number, marker, source),))
        )
    return text, tuple(sentences)


def _before_marker(stretch: _Stretch) -> str:
    if stretch.kind in {"code", "row"} or _DAMAGED.search(stretch.text):
        return "\n\n"
    last = list(takewhile(str.strip, reversed(stretch.text.split("\n"))))
    indent = last[-1][: len(last[-1]) - len(last[-1].lstrip())].expandtabs(4)
    return " " if len(indent) < 4 else "\n\n"  # code by its indentation


def _stretches(ordered: Iterable[Candidate]) -> list[_Stretch]:
    """Return the stretches of a document, in order."""
    stretches: list[_Stretch] = []
    for candidate in ordered:
        last = stretches[-1] if stretches else None
        if last is None or last.first.quoted_from != candidate.quoted_from:
            stretches.append(_Stretch(candidate, [], candidate.kind))
            _add(stretches[-1], (*candidate.heads, candidate.span))
            continue
        own = (stretch for stretch in stretches if stretch.first.quoted_from == candidate.quoted_from)
        shown = [span for stretch in own for span in stretch.spans]
        heads = [head for head in candidate.heads if not any(_holds(span, head) for span in shown)]
        goes_on = not heads and last.kind == candidate.kind
        if _is_next(last, (*heads, candidate.span)[0]) or (goes_on and candidate.kind == "row" and candidate.heads):
            _add(last, (*heads, candidate.span))
            last.kind = candidate.kind
            continue
        glue = "\n" if goes_on and candidate.kind == "item" and candidate.heads else "\n\n"
        stretches.append(_Stretch(candidate, [], candidate.kind, glue))
        _add(stretches[-1], (*heads, candidate.span))
    return stretches


def _add(stretch: _Stretch, spans: Iterable[Span]) -> None:
    """Add further parts; one that follows with nothing but white space between becomes one with what it follows."""
    for span in spans:
        if _is_next(stretch, span):
            stretch.spans[-1] = Span(stretch.spans[-1].start, span.end)
        else:
            stretch.spans.append(span)


def _is_next(stretch: _Stretch, span: Span) -> bool:
    if not stretch.spans or span.start < stretch.spans[-1].end:
        return False
    between = stretch.whole[stretch.spans[-1].end : span.start]
    return not between or between.isspace()


def _holds(outer: Span, inner: Span) -> bool:
    return outer.start <= inner.start and inner.end <= outer.end
