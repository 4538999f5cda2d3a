"""An answer without a language model: the passages' own best blocks, word for word, each with its source."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from retrieval_core.pipeline.answer.candidates import MOST, candidates
from retrieval_core.pipeline.stages.rerank import scores_problem
from retrieval_core.pipeline.stages.sound import sound
from retrieval_core.ports import RerankScores
from retrieval_core.run.outcomes import Failed, Ok
from retrieval_core.text.markdown import ends_in_prose
from retrieval_core.types import AnswerSentence, Attribution, Span
from retrieval_core.types.escapes import escape_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.pipeline.answer.candidates import QuoteCandidate
    from retrieval_core.ports import Reranker
    from retrieval_core.run.runner import Run
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import ContextPack

MOST_BLOCKS = 3
"""Blocks that an answer is made of."""
LONGEST_ANSWER = 1500
"""Code points of an answer's quotes; only the first one may be longer."""
LONGEST_SECTION = 1000
"""Code points of the best block with those around it."""
RANK_POWER = 2
"""The power of a passage's number that the odds of its blocks are divided by: the search saw more than one block."""
WEAKEST = 0.01
"""The odds, beside the best one's, below which a block is left out."""
ALIKE = 0.6
"""The part of a sentence's terms from which on it says what another one has said."""


@dataclass(frozen=True, slots=True)
class ExtractedAnswer:
    """An answer of quotes.

    Attributes:
        text: Each stretch of the passages byte for byte, with ``[n]`` behind it; empty where they say nothing. A line
            that looks like a passage's heading has a backslash before it. Other numbers in brackets are the passages'
            own: the sentences' attributions say which are not.
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
) -> ExtractedAnswer:
    """Make an answer of the blocks of a pack that bear most on the question.

    Args:
        run: Makes the calls.
        scorer: Reads question and block together; without one, or where it fails, words alone choose.
        query: The question.
        pack: What may be quoted.
        analyzer: Makes the terms that are compared.
        most: The most blocks that are scored, at least 1.
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
    chosen = choose(found, scores)
    text, sentences = compose(chosen)
    how = "words" if scores is None or scorer is None else scorer.id
    run.note("extract", started, len(found), len(chosen), f"by {how}" if found else "no passage says anything")
    return ExtractedAnswer(text, sentences, failures)


async def _scores(run: Run, scorer: Reranker, query: str, texts: Sequence[str]) -> tuple[float, ...] | Failed:
    size = max(1, scorer.batch_size)
    run = run.on(f"reranker {scorer.id}")

    async def score(part: Sequence[str]) -> Ok[RerankScores] | Failed:
        outcome = await run.call("extract", scorer.score, query, part)
        return sound(outcome, "extract", scorer.id, RerankScores, partial(scores_problem, len(part)))

    scores: list[float] = []
    for outcome in await asyncio.gather(*(score(texts[start : start + size]) for start in range(0, len(texts), size))):
        if isinstance(outcome, Failed):
            return outcome
        scores += outcome.value.scores
    return tuple(scores)


def _as_read(candidate: QuoteCandidate) -> str:
    """Return what a scorer reads: passages are scored with their titles too."""
    return f"{candidate.above}\n{candidate.text}" if candidate.above else candidate.text


def choose(
    found: Sequence[QuoteCandidate],
    scores: Sequence[float] | None = None,
    *,
    most: int = MOST_BLOCKS,
    longest: int = LONGEST_ANSWER,
) -> tuple[QuoteCandidate, ...]:
    """Return the best of some candidates, best first, none that says what a better one says.

    The best one has the blocks around it that stand under the same heading, as far as there is room.

    Args:
        found: Best first, as far as words tell.
        scores: One for each, in [0, 1], which then tells what is best; ``None`` where words alone count.
        most: The most that are returned.
        longest: The most code points of all of them; the best one is returned whatever its length.
    """
    chosen: list[QuoteCandidate] = []
    room = longest
    for candidate in _ordered(found, scores):
        if not chosen:
            chosen.append(candidate.grown(min(LONGEST_SECTION, longest)))
        elif len(candidate.text) <= room and not any(_says(other, candidate) for other in chosen):
            chosen.append(candidate)
        else:
            continue
        room -= len(chosen[-1].text)
        if len(chosen) == most:
            break
    return tuple(chosen)


def _ordered(found: Sequence[QuoteCandidate], scores: Sequence[float] | None) -> list[QuoteCandidate]:
    """Return candidates best first, without those that are far behind or have no word of the question."""
    if not found:
        return []
    if scores is None:
        return [candidate for candidate in found if candidate.words] or list(found)
    odds = [_odds(score) / one.passage.citation.number**RANK_POWER for one, score in zip(found, scores, strict=True)]
    least = WEAKEST * max(odds)
    order = sorted(range(len(found)), key=lambda place: (-odds[place], place))
    return [found[place] for place in order if odds[place] >= least]


def _odds(score: float) -> float:
    bounded = min(max(score, 1e-9), 1 - 1e-9)
    return bounded / (1 - bounded)


def _says(chosen: QuoteCandidate, candidate: QuoteCandidate) -> bool:
    """Whether what was chosen says what a candidate says, or holds it."""
    if chosen.quoted_from == candidate.quoted_from and _holds(chosen.span, candidate.span):
        return True
    fewest = min(len(chosen.terms), len(candidate.terms))
    return len(chosen.terms & candidate.terms) >= ALIKE * fewest


@dataclass(slots=True)
class _Stretch:
    """Parts of one quote that are shown together.

    Attributes:
        between: What stands between two of them.
    """

    first: QuoteCandidate
    spans: list[Span]
    between: str = "\n\n"

    @property
    def text(self) -> str:
        """As it stands in the answer, without its marker."""
        whole = self.first.passage.citation.quotes[self.first.part].text
        return self.between.join(whole[span.start : span.end] for span in self.spans)

    def goes_on_with(self, candidate: QuoteCandidate) -> bool:
        """Whether nothing stands between it and a candidate, or it has the candidate's heads."""
        whole = self.first.passage.citation.quotes[self.first.part].text
        if any(_holds(span, head) for span in self.spans for head in candidate.heads):
            return True
        return not whole[self.spans[-1].end : (*candidate.heads, candidate.span)[0].start].strip()

    def add(self, candidate: QuoteCandidate) -> None:
        """Add what of a candidate is not there yet; what follows with nothing but white space between is one quote."""
        whole = self.first.passage.citation.quotes[self.first.part].text
        for span in (*candidate.heads, candidate.span):
            if any(_holds(own, span) for own in self.spans):
                continue
            if self.spans and not whole[self.spans[-1].end : span.start].strip():
                self.spans[-1] = Span(self.spans[-1].start, span.end)
            else:
                self.spans.append(span)
        if candidate.kind == "row":
            self.between = "\n"


def compose(chosen: Sequence[QuoteCandidate]) -> tuple[str, tuple[AnswerSentence, ...]]:
    """Return candidates as a text to read, and its sentences with their sources.

    They stand in the order of the passages, and in each in its own order. Neighbours are one stretch, the head of a
    table or of a list is said once, and a marker ``[n]`` stands behind each stretch: on a line of its own after a table
    or a block of code, which it would break.
    """
    stretches: list[_Stretch] = []
    for candidate in sorted(chosen, key=lambda candidate: (*candidate.quoted_from, candidate.span.start)):
        last = stretches[-1] if stretches else None
        if last is None or last.first.quoted_from != candidate.quoted_from or not last.goes_on_with(candidate):
            stretches.append(_Stretch(candidate, []))
        stretches[-1].add(candidate)
    text = ""
    sentences: list[AnswerSentence] = []
    for stretch in stretches:
        number = stretch.first.passage.citation.number
        text += "\n\n" if text else ""
        start = len(text)
        text += escape_text(stretch.text)
        text += " " if ends_in_prose(text) else "\n\n"
        marker = Span(len(text), len(text) + len(f"[{number}]"))
        text += f"[{number}]"
        source = replace(
            stretch.first.passage.citation, quotes=tuple(stretch.first.quoted(span) for span in stretch.spans)
        )
        sentences.append(
            AnswerSentence(Span(start, len(text)), text[start:], attributions=(Attribution(number, marker, source),))
        )
    return text, tuple(sentences)


def _holds(outer: Span, inner: Span) -> bool:
    return outer.start <= inner.start and inner.end <= outer.end
