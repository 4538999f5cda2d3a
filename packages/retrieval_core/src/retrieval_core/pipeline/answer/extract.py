"""An answer without a language model: the best blocks of the chunks as plain sentences, each with its source."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from retrieval_core.pipeline.answer.candidates import MOST, candidates
from retrieval_core.run.outcomes import Failed, Ok
from retrieval_core.text.markdown import ends_in_prose, plain_text
from retrieval_core.types import AnswerSentence, Attribution, Span
from retrieval_core.types.escapes import escape_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.pipeline.answer.candidates import QuoteCandidate
    from retrieval_core.ports import Reranker, RerankScores
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
        text: Each stretch of the chunks as plain text, with ``[n]`` after it, the one that answers first; empty where
            they say nothing. The quotes of its sources are the stretches themselves, character by character. A line
            that looks like a passage's heading has a backslash before it. Other numbers in brackets are the
            documents' own: the sentences' attributions say which are not.
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
    if chosen:
        best = _ordered(found, scores)[0]
        sentence = await _best_sentence(run, None if scores is None else scorer, query, best, analyzer)
        if isinstance(sentence, Failed):
            failures = (sentence,)
        else:
            chosen = (chosen[0].beginning_with(sentence), *chosen[1:])
    text, sentences = compose(chosen)
    how = "words" if scores is None or scorer is None else scorer.id
    run.note("extract", started, len(found), len(chosen), f"by {how}" if found else "no passage says anything")
    return ExtractedAnswer(text, sentences, failures)


async def _best_sentence(
    run: Run, scorer: Reranker | None, query: str, candidate: QuoteCandidate, analyzer: Analyzer
) -> Span | Failed:
    """Return the sentence of a paragraph that bears most on the question; of other blocks, all."""
    sentences = candidate.sentences
    if len(sentences) < 2:
        return candidate.span
    texts = [replace(candidate, span=sentence).said for sentence in sentences]
    if scorer is None:
        asked = frozenset(analyzer.query_terms(query))
        scores: Sequence[float] = [len(asked.intersection(analyzer.terms(text))) for text in texts]
    else:
        scored = await _scores(run, scorer, query, [f"{candidate.above}\n{text}".lstrip("\n") for text in texts])
        if isinstance(scored, Failed):
            return scored
        scores = scored
    return sentences[max(range(len(sentences)), key=lambda place: (scores[place], -place))]


async def _scores(run: Run, scorer: Reranker, query: str, texts: Sequence[str]) -> tuple[float, ...] | Failed:
    size = max(1, scorer.batch_size)
    run = run.on(f"reranker {scorer.id}")

    async def score(part: Sequence[str]) -> Ok[RerankScores] | Failed:
        return await run.call("extract", scorer.score, query, part)

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
) -> tuple[QuoteCandidate, ...]:
    """Return the best of some candidates, best first, none that says what a better one says.

    The best one has the blocks after it that are under the same heading, as far as there is room.

    Args:
        found: Best first, as far as words tell.
        scores: One for each, in [0, 1], which then tells what is best; ``None`` where words alone count.
        most: The most that are returned.
    """
    chosen: list[QuoteCandidate] = []
    room = LONGEST_ANSWER
    for candidate in _ordered(found, scores):
        if not chosen:
            chosen.append(candidate.grown(min(LONGEST_SECTION, LONGEST_ANSWER)))
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
        """What the answer says of it, without its marker."""
        whole = self.first.passage.citation.quotes[self.first.part].text
        markdown = self.between.join(whole[span.start : span.end] for span in self.spans)
        return plain_text(markdown) or markdown

    def goes_on_with(self, candidate: QuoteCandidate) -> bool:
        """Whether nothing stands between it and a candidate, or it has the candidate's heads."""
        whole = self.first.passage.citation.quotes[self.first.part].text
        if any(_holds(span, head) for span in self.spans for head in candidate.heads):
            return True
        start = (*candidate.heads, candidate.span)[0].start
        return start >= self.spans[-1].end and not whole[self.spans[-1].end : start].strip()

    def add(self, candidate: QuoteCandidate) -> None:
        """Add what of a candidate is not there yet; what follows with nothing but white space between is one quote."""
        whole = self.first.passage.citation.quotes[self.first.part].text
        for span in (*candidate.heads, candidate.span):
            if not any(_holds(own, span) for own in self.spans):
                self.spans.append(span)
        self.spans.sort(key=lambda span: span.start)
        joined = self.spans[:1]
        for span in self.spans[1:]:
            if whole[joined[-1].end : span.start].strip():
                joined.append(span)
            else:
                joined[-1] = Span(joined[-1].start, span.end)
        self.spans = joined
        if candidate.kind == "row":
            self.between = "\n"


def compose(chosen: Sequence[QuoteCandidate]) -> tuple[str, tuple[AnswerSentence, ...]]:
    """Return candidates as a text to read, and its sentences with their sources.

    The best one comes first, then what follows it in its document, then the others in the order of the passages.
    Neighbours are one stretch, the head of a table or of a list is said once, and a marker ``[n]`` is after each
    stretch: on a line of its own after a block of code, which it would break.

    Args:
        chosen: Best first.
    """
    stretches: list[_Stretch] = []
    for candidate in _in_reading_order(chosen):
        own = [stretch for stretch in stretches if stretch.first.quoted_from == candidate.quoted_from]
        if any(_overlap(span, candidate.span) for stretch in own for span in stretch.spans):
            continue
        stretch = next((stretch for stretch in reversed(own) if stretch.goes_on_with(candidate)), None)
        if stretch is None:
            stretch = _Stretch(candidate, [])
            stretches.append(stretch)
        stretch.add(candidate)
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


def _in_reading_order(chosen: Sequence[QuoteCandidate]) -> list[QuoteCandidate]:
    if not chosen:
        return []
    best, *others = chosen

    def place(candidate: QuoteCandidate) -> tuple[bool, tuple[int, int], int]:
        goes_on = candidate.quoted_from == best.quoted_from and candidate.span.start > best.span.start
        return not goes_on, candidate.quoted_from, candidate.span.start

    return [best, *sorted(others, key=place)]


def _overlap(one: Span, other: Span) -> bool:
    return one.start < other.end and other.start < one.end


def _holds(outer: Span, inner: Span) -> bool:
    return outer.start <= inner.start and inner.end <= outer.end
