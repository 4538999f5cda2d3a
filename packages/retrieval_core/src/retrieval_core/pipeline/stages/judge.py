"""Judging whether the hits of a query answer it: the one judgement of searches, contexts and answers.

The probability is a logistic curve of three signals:

- the best cosine of query and chunk, if the embedder is :data:`CALIBRATED_EMBEDDER`: a cosine of another model means
  something else;
- the coverage: the part of the query's words that one of the first :data:`DEPTH` hits contains, by its title, headings
  and text. A rare word weighs more than a common one, if the store counts its terms. All missing words together weigh
  no more than one that no chunk contains: a long question has words around it that no document repeats;
- whether the query has a name, such as *Terraform*, or an identifier that no chunk of the index contains, or a name
  that only other chunks than the first hits contain. Documents often replace a common word by another one, but hardly
  ever a name. See :func:`retrieval_core.text.query.names_in`.

The numbers are rounded by hand near regressions on answerable questions and others on the same subjects, see
``docs/dev/measurements.md``, which also compares them with the regressions. ``benchmarks/answerability.py`` fits them.

Beside that, a query in another language than its hits gets no probability, since its words say nothing.

If a filter let nothing pass, its fields are compared with those of the index before.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from math import log, tanh
from typing import TYPE_CHECKING, Final, cast

from retrieval_core.pipeline.stages.search import BESIDE, CALIBRATED_EMBEDDER, fetch
from retrieval_core.pipeline.stages.state import Stage
from retrieval_core.ports import FetchRequest, SearchRequest, TermCounts
from retrieval_core.run.outcomes import Failed, Ok
from retrieval_core.run.sync import to_a_loop
from retrieval_core.text.query import (
    absent_from,
    identifiers_in,
    is_of_another_language,
    may_be_of_another_language,
    names_in,
)
from retrieval_core.types import Chunk, Relevance
from retrieval_core.types.filters import chunk_fields, lookup, paths_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.stages.state import SearchResults, SearchState
    from retrieval_core.ports import Embedder, HeldIndex, Store
    from retrieval_core.run.runner import Run
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import JSON, Hit
    from retrieval_core.types.filters import Filter

DEPTH: Final = 5
"""Hits whose words count."""
FEWEST_CHUNKS: Final = 1000
"""Of a smaller index words are weighed as if it had so many chunks: in a few chunks, rare words are not yet told from
common ones."""
UNWEIGHTED_LOSS: Final = 2.0
"""The largest weight of all missing words together, if every word weighs 1."""
SHARE: Final = 0.1
"""The part of the deadline that looking up may take."""
LOOKED_AT: Final = 50
"""Chunks in which an identifier is looked for, the best of a keyword search for it."""
LOW_COVERAGE: Final = 0.5
"""The coverage below which it is asked whether the query is in another language."""
MOST_ON_LOOP: Final = 20_000
"""Code points of text whose words are compared on the event loop; more of them are compared in a thread."""
MISSING_NAME: Final = -4.5
"""Added to the log odds if the query has a name or identifier that no chunk contains."""
DISTANT_NAME: Final = -1.5
"""Added if the query has a name that the index contains, but none of the first hits."""
_PART: Final = re.compile(r"\w+")
_JOINED: Final = re.compile(r"\w[.:/]+\w")
_NAMED: Final = 5
_PROBE: Final = "xqzj"
"""A word of no language, beside which stop words are no terms of a query."""
MOST_PATHS = 10_000
"""If an index has as many fields, none is reported as unknown: it may be among those that were not read."""
FILTER_SHARE = 0.1
"""The most of the deadline that reading the names of the fields may take."""
MOST_NAMED = 3
"""Unknown fields that a message names."""
LONGEST_NAME = 60
"""Code points of a name that are shown."""


@dataclass(frozen=True, slots=True)
class Signals:
    """The signals that a probability is computed from.

    Attributes:
        cosine: The best, in [0, 1]; ``None`` without one of :data:`CALIBRATED_EMBEDDER`.
        coverage: In [0, 1]; ``None`` for a query of stop words only.
        is_weighted: Whether rare words weigh more.
        missing: Words of the query that none of the hits contains, as they are written.
        unmentioned: Names and identifiers of the query that no chunk contains.
        distant: Further names of the query that none of the first hits contains.
    """

    cosine: float | None
    coverage: float | None
    is_weighted: bool = True
    missing: tuple[str, ...] = ()
    unmentioned: tuple[str, ...] = ()
    distant: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Curve:
    """A probability as a logistic function of the signals.

    Attributes:
        start: The log odds if coverage and cosine are 0.
        coverage: What a coverage of 1 adds to them.
        cosine: What a cosine of 1 adds.
    """

    start: float
    coverage: float = 0.0
    cosine: float = 0.0

    def probability(self, signals: Signals) -> float:
        """Return a probability in [0, 1], which never falls if a signal rises."""
        covered = 1.0 if signals.coverage is None else signals.coverage  # of no words, none is missing
        height = self.start + self.coverage * covered + self.cosine * (signals.cosine or 0.0)
        height += MISSING_NAME if signals.unmentioned else 0.0
        height += DISTANT_NAME if signals.distant else 0.0
        return 0.5 + 0.5 * tanh(height / 2)


WITH_COSINE: Final = Curve(-14.5, 2.5, 18.0)
BY_WORDS: Final[Mapping[bool, Curve]] = {True: Curve(-4.0, 6.0), False: Curve(-5.4, 8.0)}
"""Without a calibrated cosine, by whether rare words weigh more."""


class Judge(Stage):
    """Judges whether the hits answer the query.

    Args:
        store: Where terms and identifiers are looked up.
        embedder: Of the index; ``None`` without one.
        settings: Of the pipeline.
    """

    name = "judge"
    deadline_share = 0

    def __init__(self, store: Store, embedder: Embedder | None, settings: RetrievalConfig) -> None:
        self._store = store
        self._embedder = embedder
        self._settings = settings

    def fingerprint(self) -> str:
        """Return a name for the settings; the embedder is named by the search."""
        return f"{self._settings.answer.abstain_below!r} {self._settings.analysis.model_dump_json()}"

    @cached_property
    def _analyzer(self) -> Analyzer:
        from retrieval_core.text.analysis import Analyzer  # noqa: PLC0415 - brings an extension module

        analysis = self._settings.analysis
        return Analyzer(analysis.language, stop_words=analysis.stop_words)

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        """Return the state with the judgement."""
        if state.found is None:
            return state
        return state.but(relevance=await self._judge(run, state, state.found))

    async def _judge(self, run: Run, state: SearchState, found: SearchResults) -> Relevance:
        """Return whether the hits answer the query. What cannot be looked up is left out, and is in the trace."""
        store, held, hits, condition = self._store, state.held, state.hits, state.plan.condition
        analyzer, abstain_below = self._analyzer, self._settings.answer.abstain_below
        embedder_id = None if self._embedder is None else self._embedder.id
        query = found.query.text
        identifiers = identifiers_in(query)
        unknown = absent_from(identifiers, [hit.chunk.indexed_text for hit in hits]) if identifiers else ()
        if unknown and state.plan.has_words:
            unknown = await _unknown(run, store, held, unknown, condition)
        elif unknown:
            unknown = ()  # nobody can tell whether a chunk that was not found contains it
        if not hits:
            # A filter that lets nothing pass says nothing about the documents, and neither does a search that failed.
            is_unlikely = condition is None and not found.failures and abstain_below > 0
            return Relevance(0.0, is_unlikely, unknown, explanation="Nothing was found.")
        for each in unknown:  # which is said of them, and says nothing about the rest
            query = query.replace(each, " ")
        terms = content_terms(query, analyzer)
        names = {each: _parts_of(each, analyzer) for each in (*unknown, *names_in(query))}
        wanted = terms.union(*(part for parts in names.values() for part in parts))
        counts = await _counts(run, store, held, sorted(wanted), condition) if wanted else None
        read = hits[:DEPTH]
        texts = [hit.chunk.indexed_text for hit in read]
        in_each = None if held is None else held.find_terms(wanted, [hit.chunk for hit in read], analyzer.id)
        if in_each is None and sum(map(len, texts)) > MOST_ON_LOOP:
            await to_a_loop()
            in_each = await asyncio.to_thread(_find_terms, texts, wanted, analyzer)
        elif in_each is None:
            in_each = _find_terms(texts, wanted, analyzer)
        cosine, margin = _cosines(found, hits) if embedder_id == CALIBRATED_EMBEDDER else (None, 0.0)
        missing_names = _missing_from(names, unknown, None if counts is None else counts.having)
        distant = _missing_from(names, unknown, dict.fromkeys(frozenset[str]().union(*in_each), 1))
        signals = Signals(
            cosine,
            coverage_of(terms, [terms & each for each in in_each], counts) if terms else None,
            counts is not None,
            _words(query, terms.difference(*in_each), analyzer),
            missing_names,
            tuple(each for each in distant if each not in missing_names and each not in unknown),
        )
        is_low = signals.coverage is not None and signals.coverage < LOW_COVERAGE
        if is_low and await _is_of_another_language(query, texts):
            told = "The query is in another language than the documents, so that its words say nothing."
            return Relevance(None, unknown=unknown, is_of_another_language=True, explanation=told)
        curve = curve_for(signals)
        if curve is None:
            return Relevance(unknown=unknown, explanation="There are neither words nor cosines to judge by.")
        value = curve.probability(signals)
        return Relevance(
            value,
            value < abstain_below,
            unknown,
            explanation=" ".join(_explained(signals, len(read))),
            coverage=signals.coverage,
            cosine=signals.cosine,
            margin=margin,
            missing_names=tuple(each for each in missing_names if each not in unknown),
        )


async def _is_of_another_language(query: str, texts: Sequence[str]) -> bool:
    if not may_be_of_another_language(query, texts):
        return False
    await to_a_loop()
    return await asyncio.to_thread(is_of_another_language, query, texts)


def coverage_of(terms: frozenset[str], held: Sequence[frozenset[str]], counts: TermCounts | None) -> float:
    """Return the part of some terms that one of several chunks contains at most, by their weight, in [0, 1].

    Args:
        terms: At least one.
        held: Which of them each chunk contains.
        counts: Weigh the terms as BM25 does; without them all weigh the same.
    """
    weights, loss = dict.fromkeys(sorted(terms), 1.0), UNWEIGHTED_LOSS
    if counts is not None:
        chunks = max(counts.chunks, FEWEST_CHUNKS)
        weights = {term: _rarity(chunks, counts.having.get(term, 0)) for term in weights}
        loss = _rarity(chunks, 0)
    found = max((sum(weights[term] for term in sorted(each)) for each in held), default=0.0)
    missing = min(max(0.0, sum(weights.values()) - found), loss)
    return found / (found + missing) if found else 0.0


def content_terms(query: str, analyzer: Analyzer) -> frozenset[str]:
    """Return the terms of the query's single words, without stop words; none if there are only these."""
    # A full stop between words keeps neighbours from becoming terms of several words, which would count words twice.
    terms = analyzer.query_terms(" . ".join((*query.split(), _PROBE)))
    return frozenset(terms) - {*analyzer.query_terms(_PROBE)}


def curve_for(signals: Signals) -> Curve | None:
    """Return the curve for the signals that there are; ``None`` without any."""
    if signals.cosine is not None:
        return WITH_COSINE
    return None if signals.coverage is None else BY_WORDS[signals.is_weighted]


async def _counts(
    run: Run, store: Store, held: HeldIndex | None, terms: Sequence[str], condition: Filter | None
) -> TermCounts | None:
    if held is not None:
        counted = run.now("terms", held.count_terms, terms, condition)
        return counted.value if isinstance(counted, Ok) and counted.value.chunks else None
    if "count_terms" not in store.capabilities:
        return None
    outcome = await run.within(SHARE).without_retries().call("terms", store.count_terms, terms, condition)
    return outcome.value if isinstance(outcome, Ok) and outcome.value.chunks else None


async def _unknown(
    run: Run, store: Store, held: HeldIndex | None, identifiers: Sequence[str], condition: Filter | None
) -> tuple[str, ...]:
    """Return which identifiers no chunk contains: neither has the best of a keyword search for it."""
    bound = run.within(SHARE).without_retries()

    async def is_unknown(identifier: str) -> bool:
        request = SearchRequest(limit=LOOKED_AT, text=identifier, filter=condition)
        if held is not None:
            outcome = bound.now("identifiers", held.search, request)
        else:
            outcome = await bound.call("identifiers", store.search, request)
        if not isinstance(outcome, Ok):
            return False
        texts = [each.chunk.indexed_text for each in outcome.value if each.chunk is not None]
        ids = tuple(each.chunk_id for each in outcome.value if each.chunk is None)
        if ids:
            fetched = await fetch(bound, store, FetchRequest(chunk_ids=ids, filter=condition), stage="identifiers")
            if not isinstance(fetched, Ok):
                return False
            texts += [chunk.indexed_text for chunk in fetched.value.chunks.values()]
        if sum(map(len, texts)) <= MOST_ON_LOOP:
            return bool(absent_from((identifier,), texts))
        await to_a_loop()
        return bool(await asyncio.to_thread(absent_from, (identifier,), texts))

    if held is None:
        await to_a_loop()
        are_unknown = await asyncio.gather(*map(is_unknown, identifiers))
    else:  # nothing to wait for
        are_unknown = [await is_unknown(each) for each in identifiers]
    return tuple(each for each, is_so in zip(identifiers, are_unknown, strict=True) if is_so)


def _parts_of(name: str, analyzer: Analyzer) -> list[frozenset[str]]:
    """Return the terms of each part of a name such as ``Joda-Time`` or ``Headers.setdefault``."""
    parts = (content_terms(part, analyzer) for part in _PART.findall(name.casefold()))  # *ETag* is more than its *Tag*
    return [terms for terms in parts if terms]


def _missing_from(
    names: Mapping[str, Sequence[frozenset[str]]], unknown: Collection[str], having: Mapping[str, int] | None
) -> tuple[str, ...]:
    """Return the names of which a part is missing.

    Args:
        names: Each with the terms of its parts.
        unknown: The identifiers among the names, none of which a chunk contains. If their parts are all there, they are
            not missing, since code writes ``Class.method`` apart, and neither are numbers: these are often the asker's
            own, such as a port or an amount.
        having: In how many chunks a term is; ``None`` if nobody knows.
    """

    def is_missing(name: str) -> bool:
        if name in unknown and not any(map(str.isalpha, name)):
            return False
        if name in unknown and not _JOINED.search(name):
            return True
        return having is not None and any(not any(having.get(term) for term in part) for part in names[name])

    return tuple(filter(is_missing, names))


def _find_terms(texts: Sequence[str], terms: frozenset[str], analyzer: Analyzer) -> list[frozenset[str]]:
    return [terms.intersection(analyzer.terms(text)) for text in texts]


def _rarity(chunks: int, having: int) -> float:
    """Return BM25's weight of a term, which is never negative."""
    return log(1 + max(0, chunks - having + 0.5) / (having + 0.5))


def _cosines(found: SearchResults, hits: Sequence[Hit]) -> tuple[float | None, float]:
    """Return the best cosine, and its margin over the mean of the first."""
    if found.dense:
        cosines = [min(1.0, max(0.0, float(each.score))) for each in found.dense[:BESIDE]]
    else:
        cosines = [hit.scores.dense for hit in hits[:BESIDE] if hit.scores.dense is not None]
    best = max(cosines, default=None)
    return best, 0.0 if best is None else best - sum(cosines) / len(cosines)


def _words(query: str, wanted: frozenset[str], analyzer: Analyzer) -> tuple[str, ...]:
    if not wanted:
        return ()
    found = (query[term.span.start : term.span.end] for term in analyzer.spans(query) if term.text in wanted)
    return tuple(dict.fromkeys(found))


def _explained(signals: Signals, read: int) -> Iterator[str]:
    """Yield sentences on what a probability rests on; ``read`` is how many hits were looked into for words."""
    if signals.cosine is not None:
        yield f"The best cosine of query and chunk is {signals.cosine:.2f}."
    if signals.coverage is None:
        yield "The query has no words but stop words and unknown identifiers, so only the cosine counts."
    else:
        first = "The first chunk" if read == 1 else f"The best of the first {read} chunks"
        weight = ", rare ones weighing more" if signals.is_weighted else ""
        yield f"{first} covers {signals.coverage:.0%} of the query's words{weight}."
    if signals.unmentioned:
        yield f"No chunk contains {' or '.join(signals.unmentioned[:_NAMED])}."
    if signals.distant:
        yield f"None of the first chunks contains {' or '.join(signals.distant[:_NAMED])}."
    if signals.missing:
        rest = " …" if len(signals.missing) > _NAMED else "."
        yield f"Missing: {', '.join(signals.missing[:_NAMED])}{rest}"
    if signals.cosine is None:
        yield "There is no calibrated cosine, so only the words count."


class CheckFilter(Stage):
    """Reports fields of the filter that no chunk has.

    Args:
        store: Whose chunks have fields.
    """

    name = "filter"
    deadline_share = 0

    def __init__(self, store: Store) -> None:
        self._store = store

    def fingerprint(self) -> str:
        """Return nothing: the filter is in the plan."""
        return ""

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        """Return the state with a note on unknown fields."""
        condition = state.plan.condition
        if state.found is None or condition is None:
            return state
        seen = (chunk_fields(hit.chunk) for hit in state.pool)
        unknown = await find_unknown_fields(run, self._store, condition, seen)
        return state if unknown is None else state.but(unknown_fields=unknown)


async def find_unknown_fields(
    run: Run,
    store: Store,
    condition: Filter,
    seen: Iterable[Mapping[str, JSON]] = (),
    *,
    known: Iterable[str] = (),
) -> str | None:
    """Return which fields of a filter no chunk has, with the closest names; ``None`` if all are known.

    The store is asked for its fields once, and only if the filter has a field that no chunk found has. If the store
    fails, or takes too long, no field is unknown.

    Args:
        seen: The fields of chunks that were found.
        known: Names that need no chunk to have them.
    """
    names = _names_to_check(condition, seen, known)
    if not names:
        return None
    # Its circuit breaker is its own: that reading the fields takes too long says nothing about searches.
    run = run.within(FILTER_SHARE).without_retries()
    if "sample_fields" in store.capabilities:
        sampled = await run.call("fields", store.sample_fields)
        if isinstance(sampled, Failed):
            return None
        if sampled.value is not None:
            fields, looked_at = sampled.value
            return _report(names, fields, f"none of the {looked_at:,} chunks looked at has")
    if "fields" not in store.capabilities:
        return None
    outcome = await run.call("fields", store.fields, MOST_PATHS)
    fields = None if isinstance(outcome, Failed) else cast("object", outcome.value)
    if not isinstance(fields, Mapping) or not all(isinstance(name, str) for name in cast("Iterable[object]", fields)):
        return None
    fields = cast("Mapping[str, object]", fields)
    return _report(names, fields, "no chunk has") if len(fields) < MOST_PATHS else None


def _names_to_check(condition: Filter, seen: Iterable[Mapping[str, JSON]], known: Iterable[str]) -> list[str]:
    names = sorted(paths_of(condition) - chunk_fields(Chunk("", "", "")).keys() - frozenset(known))
    found = list(seen) if names else []
    return [name for name in names if all(lookup(fields, name) is None for fields in found)]


def _report(names: Iterable[str], fields: Collection[str], where: str) -> str | None:
    unknown = [name for name in names if fields and name not in fields][:MOST_NAMED]
    told: list[str] = []
    has_advice = True
    for name in unknown:
        near = _nearest(name, sorted(fields))
        has_advice = has_advice and near is not None
        told.append(f"{where} a field {_quoted(name)}" + (f"; did you mean {_quoted(near)}?" if near else ""))
    if not has_advice:  # of the user's own fields, none is named to somebody who may not see all chunks
        told.append(f"fields that need no metadata: {', '.join(sorted(chunk_fields(Chunk('', '', ''))))}")
    return "; ".join(told) or None


def _nearest(name: str, fields: Iterable[str]) -> str | None:
    """Return the field whose name is most like another one; case, spaces, ``_`` and ``-`` count little."""
    alike: dict[str, str] = {}
    for field in fields:
        if len(field) <= LONGEST_NAME:
            alike.setdefault(_plain(field), field)
    if len(name) > LONGEST_NAME:
        return None
    near = get_close_matches(_plain(name), alike, n=1)
    return alike[near[0]] if near else None


def _plain(name: str) -> str:
    return name.casefold().replace("_", " ").replace("-", " ").strip()


def _quoted(name: str) -> str:
    """Return a user's name in one line, shortened, and without what steers a terminal."""
    cut = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    shown = (letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in " ".join(cut.split()))
    return f"'{''.join(shown)}'"
