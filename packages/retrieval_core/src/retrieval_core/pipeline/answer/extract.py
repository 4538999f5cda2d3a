"""An answer without a language model: the best blocks of the chunks as plain sentences, each with its source."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from heapq import nsmallest
from itertools import groupby, islice
from math import fsum, log
from typing import TYPE_CHECKING

from retrieval_core.run.outcomes import Failed, Ok, in_batches
from retrieval_core.text.markdown import ends_in_prose, parse_markdown, plain_text
from retrieval_core.text.sentences import ASKS, INTRODUCES, LINK, sentences_of, units_of
from retrieval_core.types import AnswerSentence, Attribution, Quote, Span
from retrieval_core.types.escapes import escape_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from retrieval_core.ports import Reranker, RerankScores
    from retrieval_core.run.runner import Run
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.text.sentences import Kind
    from retrieval_core.types import ContextPack, ContextPassage

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
MOST = 14
"""Candidates of an answer, which a cross-encoder reads. Of 20, the best one was on the right page no more often."""
MOST_READ = 2000
"""Blocks of a pack that are looked at, from its beginning; a pack of 12,000 tokens has a few hundred."""
FEWEST_TERMS = 4
"""Terms of what is more than a title, a label or the rest of something."""
RANK_OFFSET = 10
"""How slowly a later passage counts less: the eleventh counts half."""
OF_TITLES = 0.5
"""How much a word of the question counts that only the titles above a sentence have."""


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
    run = run.on(f"reranker {scorer.id}")

    async def score(part: Sequence[str]) -> Ok[RerankScores] | Failed:
        return await run.call("extract", scorer.score, query, part)

    scores: list[float] = []
    for _, outcome in await in_batches(score, texts, scorer.batch_size):
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


@dataclass(frozen=True, slots=True)
class QuoteCandidate:
    """A block of a passage, or a run of the sentences, items or rows of one that is too long.

    Attributes:
        part: Which of the passage's quotes it is in, from 0.
        span: Where it stands in that quote's text.
        heads: What it needs to be understood, there too and in order: see :class:`~retrieval_core.text.sentences.Unit`.
        headings: The titles above it in that quote.
        section: Everything that stands next to each other under these, this one too.
        terms: What it consists of, for comparing it with others.
        words: How much of the question it has, in [0, 1].
    """

    passage: ContextPassage
    part: int
    span: Span
    heads: tuple[Span, ...] = ()
    kind: Kind = "text"
    headings: tuple[str, ...] = ()
    section: tuple[Span, ...] = ()
    terms: frozenset[str] = frozenset()
    words: float = 0.0

    @property
    def said(self) -> str:
        """Its own words."""
        return self.passage.citation.quotes[self.part].text[self.span.start : self.span.end]

    @property
    def text(self) -> str:
        """Its words, with those that it needs to be understood."""
        whole = self.passage.citation.quotes[self.part].text
        return "\n".join(whole[span.start : span.end] for span in (*self.heads, self.span))

    @property
    def above(self) -> str:
        """Its titles, on one line; may be empty."""
        citation = self.passage.citation
        return " > ".join(dict.fromkeys(filter(None, (citation.title, *citation.section_path, *self.headings))))

    def grown(self, longest: int) -> QuoteCandidate:
        """Return it with what follows it in its section, up to a length; it stays at the beginning."""
        place = self.section.index(self.span)
        end = self.span.end
        room = longest - len(self.text)
        for span in self.section[place + 1 :]:
            if span.end - end > room:
                break
            room -= span.end - end
            end = span.end
        return replace(self, span=Span(self.span.start, end))

    @property
    def sentences(self) -> tuple[Span, ...]:
        """The sentences of a paragraph, in its quote; empty for anything else, which is not cut."""
        said = self.said
        if self.kind != "text" or self.heads or [block.kind for block in parse_markdown(said)] != ["paragraph"]:
            return ()
        start = self.span.start
        return tuple(Span(start + each.span.start, start + each.span.end) for each in sentences_of(said))

    def beginning_with(self, sentence: Span) -> QuoteCandidate:
        """Return it without what stands before one of its sentences."""
        return replace(self, span=Span(sentence.start, self.span.end))

    @property
    def quoted_from(self) -> tuple[int, int]:
        """The number of its passage, and which quote of that: what its spans are of."""
        return self.passage.citation.number, self.part

    def quoted(self, span: Span) -> Quote:
        """Return a stretch of the quote that it is in."""
        return self.passage.citation.quotes[self.part].part(span.start, span.end)


def candidates(pack: ContextPack, analyzer: Analyzer, query: str, *, most: int = MOST) -> tuple[QuoteCandidate, ...]:
    """Return the blocks of a pack that most likely answer a question, best first, none twice.

    Likely is what has many of the question's words, rare ones before common ones, in a passage that stands early in
    the pack. Headings, pictures, lists of links, questions and fragments are left out, unless there is nothing else.

    Args:
        pack: Its citations' quotes are divided; what the passages' texts have beside them is never taken.
        analyzer: Makes the terms that are compared.
        query: The question.
        most: The most that are returned, at least 1.
    """
    once: dict[tuple[str, Span | str], QuoteCandidate] = {}
    for candidate in islice(_divided(pack), MOST_READ):
        once.setdefault(_identity(candidate), candidate)
    read = [replace(one, terms=frozenset(analyzer.terms(one.said))) for one in once.values()]
    worded = [candidate for candidate in read if candidate.terms]
    chosen = [candidate for candidate in worded if _says_something(candidate, analyzer)] or worded
    weights = _weights(frozenset(analyzer.query_terms(query)), chosen)
    titles = {title: frozenset(analyzer.terms(title)) for title in {candidate.above for candidate in chosen}}
    scored = [replace(one, words=_share(one.terms, weights, titles[one.above])) for one in chosen]
    return tuple(nsmallest(most, scored, key=lambda one: (-one.words * _standing(one), one.passage.citation.number)))


def _divided(pack: ContextPack) -> Iterator[QuoteCandidate]:
    for passage in pack.passages:
        for part, quote in enumerate(passage.citation.quotes):
            candidates = [QuoteCandidate(passage, part, *unit) for unit in units_of(quote.text)]
            for (_, is_whole), together in groupby(candidates, lambda one: (one.headings, _is_whole(one))):
                own = list(together)
                section = tuple(one.span for one in own) if is_whole else ()
                yield from (replace(one, section=section or (one.span,)) for one in own)


def _is_whole(candidate: QuoteCandidate) -> bool:
    """Whether it is neither a fragment nor the introduction of something that is not there."""
    return candidate.kind != "rest" and not any(open_end.search(candidate.said) for open_end in (ASKS, INTRODUCES))


def _identity(candidate: QuoteCandidate) -> tuple[str, Span | str]:
    citation, own = candidate.passage.citation, candidate.span
    place = citation.quotes[candidate.part].span
    if place is None:
        return citation.document_id, candidate.said
    return citation.document_id, Span(place.start + own.start, place.start + own.end)


def _says_something(candidate: QuoteCandidate, analyzer: Analyzer) -> bool:
    """Whether it is more than a fragment, and neither a question nor a list of links."""
    text = candidate.said
    if not _is_whole(candidate):
        return False
    unlinked = LINK.sub(" ", text)
    terms = candidate.terms if unlinked == text else frozenset(analyzer.terms(unlinked))
    return len(terms) >= FEWEST_TERMS or any(mark in text for mark in ("```", "|"))


def _weights(query: frozenset[str], among: Sequence[QuoteCandidate]) -> dict[str, float]:
    """Return how much each term of a question tells: much where few sentences have it."""
    counts = Counter(term for candidate in among for term in candidate.terms & query)
    return {term: log(1 + len(among) / counts[term]) for term in sorted(counts)}


def _share(terms: frozenset[str], weights: dict[str, float], titles: frozenset[str]) -> float:
    """Return the part of a question's weight that a sentence has; what only its titles have counts half."""
    whole = fsum(weights.values())
    if not whole:
        return 0.0
    own = fsum(weight for term, weight in weights.items() if term in terms)
    return (own + OF_TITLES * fsum(weight for term, weight in weights.items() if term in titles - terms)) / whole


def _standing(candidate: QuoteCandidate) -> float:
    return RANK_OFFSET / (RANK_OFFSET + candidate.passage.citation.number - 1)
