"""Cached results: their keys, looking them up and keeping them, also for a question with the same meaning.

The semantic cache keeps a question's vector and the key of its result; the results themselves stay in the cache of
results. Questions are parted by everything else that a result depends on, so a question is never compared with one that
was asked under another filter, of another index or version of it, with other settings, or, with
``cache.semantic.scope = "session"``, in another session. Within its part a question is compared with all others by one
product of matrix and vector.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from threading import Lock
from typing import TYPE_CHECKING, Protocol, cast

from retrieval_core.errors import DeadlineExceededError, InvalidParameterError, checked_count
from retrieval_core.pipeline.stages.state import digest
from retrieval_core.ports import ResultCache, Versioned
from retrieval_core.ports.plugin import as_optional
from retrieval_core.run.outcomes import Failed, Ok
from retrieval_core.run.sync import to_a_loop
from retrieval_core.text.query import plain_question
from retrieval_core.types import RetrievalResult, freeze

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from retrieval_core.config import CacheConfig, RetrievalConfig
    from retrieval_core.pipeline.stage_list import Stages
    from retrieval_core.pipeline.stages.embed import QueryEmbedder
    from retrieval_core.pipeline.stages.state import Plan
    from retrieval_core.ports import HeldIndex, Store
    from retrieval_core.run.runner import Run
    from retrieval_core.types import JSON, Degradation, Query, Vector

VERSION_SHARE = 0.2
"""The part of the deadline by which the store, transformers and retrievers must name their versions for a result to be
kept: what hangs then leaves time to answer without the cache."""
CACHE_SHARE = 0.05
"""How much of the deadline asking the cache may use up: an answer from there is only worth having at once."""
EMBED_SHARE = 0.1
"""The part of the deadline by which the question must be embedded to be compared with others; transformers have to be
done by a quarter of it, and an embedder that hangs must not take their time."""
_FORMAT = "retrieval-core result 4"
MAX_QUESTIONS = 1000
"""The most questions that are kept: comparing one with all of them takes less than a millisecond."""


@dataclass(frozen=True, slots=True)
class CacheKey:
    """The name of a result.

    Attributes:
        key: A digest of the plan, the fingerprints of the stages and the versions of the stores.
        is_lasting: Whether each store has a version. Without one, nothing shows whether it changed after a result was
            made, so the result is only shared by queries at the same time.
        partition: The same without the query; ``None`` if the query is not compared with others.
    """

    key: str
    is_lasting: bool
    partition: str | None = None

    def flight(self, run: Run) -> str:
        """Return the name of the search that all callers share who ask for this result at the same time.

        A caller that joins began later with the same time budget, so the search ends before its own time is over.
        """
        seconds = "" if run.seconds is None else f" {ceil(run.seconds)}"
        return f"{self.key} {self.partition or ''}{seconds}"


class KeptResults:
    """Finds the results of queries in a cache.

    Attributes:
        waits: Whether looking up a result may wait for something.

    Args:
        cache: Keeps results, if each store has a version; ``None`` to keep none.
        stores: The stores that are searched, by the name of the index; of one index, the name is empty.
        stages: All stages of a query.
        questions: Embeds queries; ``None`` if none does, or each of several indexes has an embedder of its own.
        config: The settings of every query.
        now: Tells the time in seconds; it never goes back.
    """

    def __init__(
        self,
        cache: ResultCache | None,
        stores: Mapping[str, Store],
        stages: Stages,
        *,
        questions: QueryEmbedder | None,
        config: RetrievalConfig,
        now: Callable[[], float],
    ) -> None:
        self.cache = cache = as_optional(cache, ResultCache)
        self._stores = stores
        self._stages = stages
        self._epoch = 0
        self._similar: SimilarQuestions | None = None
        if cache is not None and questions is not None and config.cache.is_on and config.cache.semantic.enabled:
            self._similar = SimilarQuestions(cache, questions, config.cache, now)
        self.waits = self._similar is not None or not (self.cache is None or self.cache.in_process)

    async def forget(self) -> None:
        """Forget every result that was kept.

        Raises:
            ServiceError: A shared cache cannot be reached; this process does not use its results any more.
        """
        self._epoch += 1
        if self._similar is not None:
            self._similar.known.clear()
        if self.cache is not None:
            await self.cache.clear()

    async def key(self, run: Run, query: Query, plan: Plan, held: HeldIndex | None = None) -> CacheKey | None:
        """Return the name of a query's result; ``None`` if two results can't be known to be the same."""
        if not plan.use_cache or self._fingerprint is None:
            return None
        versions = [held.version] if held is not None else await self._versions(run, plan)
        if versions is None:
            return None
        known = self._stages.knowledge(plan)
        identities = await _identities(run, known) if known else ()
        if identities is None:
            return None
        facts = (plan.key, query.truncated, self._fingerprint, versions, identities, self._epoch)
        key = digest(_FORMAT, query.text, *facts)
        is_lasting = None not in versions
        if self._similar is None or not is_lasting or not self._similar.is_for(plan):
            return CacheKey(key, is_lasting)
        return CacheKey(key, True, digest(_FORMAT, self._similar.session_of(plan), *facts))

    async def _versions(self, run: Run, plan: Plan) -> Sequence[str | None] | None:
        """Return the version of each store that is searched; ``None`` if one fails, which the search will report."""
        naming = [_version(run, name, self._stores[name]) for name in plan.indexes or self._stores]
        if len(naming) > 1:
            await to_a_loop()
        outcomes = await asyncio.gather(*naming) if len(naming) > 1 else [await naming[0]]
        versions = [outcome.value for outcome in outcomes if isinstance(outcome, Ok)]
        return versions if len(versions) == len(outcomes) else None

    async def find(self, run: Run, key: CacheKey) -> RetrievalResult | Failed | None:
        """Return the result of the same query; ``None`` if there is none."""
        return await ask_cache(run, self.cache, key.key) if self.cache is not None and key.is_lasting else None

    async def find_similar(
        self, run: Run, key: CacheKey, query: Query
    ) -> tuple[Query, RetrievalResult | Failed | None]:
        """Return the query with its vector, and the result of one with the same meaning; ``None`` if there is none."""
        if self._similar is None or key.partition is None:
            return query, None
        query = await self._similar.embed(run, query)
        if query.embedding is None:
            return query, None
        return query, await self._similar.ask(run, query, query.embedding, key.partition)

    async def keep(self, run: Run, key: CacheKey, query: Query, result: RetrievalResult) -> Failed | None:
        """Keep a result, unless something was done without."""
        cache = self.cache
        if cache is None or not key.is_lasting or any(map(_is_failure, result.degraded)):
            return None
        if cache.in_process:
            await cache.set(key.key, result)
        else:
            keeping = run.within(CACHE_SHARE).without_retries().on("cache")
            if isinstance(kept := await keeping.call("cache", cache.set, key.key, result), Failed):
                return kept
        if self._similar is not None and key.partition is not None and query.embedding is not None:
            self._similar.known.add(key.partition, query.text, query.embedding, key.key)
        return None

    @cached_property
    def _fingerprint(self) -> str | None:
        # A versioned store names itself in each of its versions.
        prints = ["" if "version" in one.capabilities else getattr(one, "id", None) for one in self._stores.values()]
        prints.append(self._stages.fingerprint)
        return None if None in prints else digest(prints)


def _is_failure(degradation: Degradation) -> bool:
    """Return whether something failed; a field that no chunk has, also of one of several indexes, is none."""
    return degradation.stage.rpartition(": ")[2] != "filter"


async def _version(run: Run, name: str, store: Store) -> Ok[str | None] | Failed:
    """Return the version of a store; ``None`` if it has none."""
    if "version" not in store.capabilities:
        return Ok(None)
    if (held := store.held()) is not None:
        return Ok(held.version)
    naming = run.until(VERSION_SHARE).without_retries().on(f"index {name}: store" if name else "store")
    return await naming.call(f"index {name}: version" if name else "version", store.version)


async def _identities(run: Run, known: Mapping[str, object]) -> tuple[JSON, ...] | None:
    """Return the id and version of each plug-in as it is now; ``None`` if one of them has none."""
    identities: list[JSON] = []
    for name, plugin in known.items():
        version: str | None = None
        if isinstance(plugin, Versioned):  # what it knows may change, as a graph's file does
            outcome = await run.until(VERSION_SHARE).without_retries().on(name).call("version", plugin.version)
            if isinstance(outcome, Failed) or outcome.value is None:
                return None
            version = outcome.value
        identity = getattr(plugin, "id", "")
        if not identity:
            return None
        identities.append((name, identity, version))
    return freeze(identities)


class SimilarQuestions:
    """Knows the questions whose results are kept, and finds one that asks the same.

    Args:
        results: Keeps the results.
        questions: Embeds the question.
        settings: Of the cache.
        now: Tells the time in seconds; it never goes back.
    """

    def __init__(
        self, results: ResultCache, questions: QueryEmbedder, settings: CacheConfig, now: Callable[[], float]
    ) -> None:
        self._results = results
        # The search, which comes next, makes the further attempts, and has a failed embedder opened anew.
        self._questions = replace(questions, recovery=None)

        wanted = settings.semantic
        self._per_session = wanted.scope == "session"
        self.known = SemanticCache(wanted.threshold, MAX_QUESTIONS, settings.ttl_seconds, now)

    def is_for(self, plan: Plan) -> bool:
        """Whether a question is embedded anyway, and its words alone say what it asks."""
        return plan.mode != "lexical" and not plan.history

    def session_of(self, plan: Plan) -> str | None:
        """Return whose questions this one may be compared with; ``None`` is a session too."""
        return plan.session_id if self._per_session else None

    async def embed(self, run: Run, query: Query) -> Query:
        """Return the query with its vector, or as it is if there is none in time."""
        outcome = await self._questions.embed(run.until(EMBED_SHARE).without_retries(), query)
        return replace(query, embedding=outcome.value) if isinstance(outcome, Ok) else query

    async def ask(self, run: Run, query: Query, vector: Vector, partition: str) -> RetrievalResult | Failed | None:
        """Return the result of a question that asks the same; ``None`` where there is none."""
        started = run.elapsed_ms
        found = self.known.find(partition, query.text, vector)
        match = found.match
        if match is None:
            refused = f"; {found.refused} as near ask something else" if found.refused else ""
            run.note("similar", started, found.compared, 0, f"none asks the same{refused}")
            return None
        run.note("similar", started, found.compared, 1, f"{match.question!r:.200}, cosine {match.similarity:.4f}")
        kept = await ask_cache(run, self._results, match.key)
        if kept is None:
            self.known.discard(partition, match.key)
        if kept is None or isinstance(kept, Failed):
            return kept
        told = {
            "query_normalized": query.text,
            "cache_matched_query": match.question,
            "cache_similarity": match.similarity,
        }
        return replace(kept, from_cache=True, trace=run.records, metadata={**kept.metadata, **told})


async def ask_cache(run: Run, cache: ResultCache, key: str) -> RetrievalResult | Failed | None:
    """Return the result of a key; ``None`` where there is none."""
    if cache.in_process:
        started = run.elapsed_ms
        result = await cache.get(key)
        run.note("cache", started, None, None)
        return result
    asking = run.within(CACHE_SHARE).without_retries()
    if not getattr(cache, "is_loaded", True):
        failure = await _load(asking, cast("_LoadedLate", cache))
        if failure is not None:
            return failure
    outcome = await asking.on("cache").call("cache", cache.get, key)
    return outcome if isinstance(outcome, Failed) else outcome.value


class _LoadedLate(Protocol):
    """A cache that has to load something first, once, and says so with an attribute ``is_loaded``."""

    async def load(self) -> None: ...


async def _load(asking: Run, cache: _LoadedLate) -> Failed | None:
    """Have a cache load what it needs; it goes on with that also when the time to ask it is over."""
    started = asking.elapsed_ms
    # Not as a call to the cache: how long this takes says nothing of its server, which need not be left alone for it.
    outcome = await asking.on("loading the cache").call("cache", cache.load)
    if not isinstance(outcome, Failed):
        return None
    if not isinstance(outcome.error, DeadlineExceededError):
        return outcome
    msg = (
        f"it was skipped: its client was still loading after {asking.elapsed_ms - started:.0f} ms, "
        f"{CACHE_SHARE:.0%} of deadline_seconds. It is loaded once per process. "
        "To load it before the first query: await cache.load()"
    )
    return replace(outcome, error=DeadlineExceededError(msg))


@dataclass(frozen=True, slots=True)
class SimilarQuestion:
    """A question that asks the same.

    Attributes:
        question: As it was searched for.
        key: The key of its result.
        similarity: Cosine of the two vectors, in [-1, 1].
    """

    question: str
    key: str
    similarity: float


@dataclass(frozen=True, slots=True)
class Lookup:
    """The result of looking for a question.

    Attributes:
        match: The nearest question that asks the same; ``None`` where there is none.
        compared: With how many questions it was compared.
        refused: How many were near enough, nearer than the match where there is one, and ask something else.
    """

    match: SimilarQuestion | None
    compared: int
    refused: int


class SemanticCache:
    """Finds a question that asks the same as another one in other words.

    It may be used from several threads and event loops: each operation is done as a whole, under a lock.

    Args:
        threshold: The least cosine of two vectors whose questions may be the same, in [-1, 1]. That they ask the same
            is for :mod:`retrieval_core.text.query` to say.
        max_size: The most questions, of all parts together, at least 1; those longest unused go first.
        ttl_seconds: A question of this age is gone; more than 0.
        now: Tells the time in seconds; it never goes back.

    Raises:
        InvalidParameterError: An argument is out of its range.
    """

    def __init__(self, threshold: float, max_size: int, ttl_seconds: float, now: Callable[[], float]) -> None:
        if not -1 <= threshold <= 1:
            msg = f"threshold must be a cosine, -1 to 1, got {threshold}"
            raise InvalidParameterError(msg)
        if not ttl_seconds > 0:
            msg = f"ttl_seconds must be more than 0, got {ttl_seconds}"
            raise InvalidParameterError(msg)
        self._threshold = threshold
        self._max_size = checked_count(max_size, "max_size")
        self._ttl = ttl_seconds
        self._now = now
        self._lock = Lock()
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()

    def find(self, partition: str, question: str, vector: Vector) -> Lookup:
        """Return the nearest question of a part that asks the same; of equally near ones, the one used last.

        Args:
            partition: Names the part: everything but the question that a result depends on.
            question: As it is searched for, normalised.
            vector: Of any length but 0, shape ``(dimension,)``; others of the part with another shape do not count.
        """
        import numpy as np  # noqa: PLC0415 - whoever has a vector has loaded it

        plain, direction = plain_question(question), _unit(vector)
        if direction is None:
            return Lookup(None, 0, 0)
        with self._lock:
            self._forget_old()
            known = [
                (key, entry)
                for (part, key), entry in [*self._entries.items()][::-1]
                if part == partition and entry.direction.shape == direction.shape
            ]
            if not known:
                return Lookup(None, 0, 0)
            cosines = np.stack([entry.direction for _, entry in known]) @ direction
            near = [int(place) for place in np.argsort(-cosines, kind="stable") if cosines[place] >= self._threshold]
            for refused, place in enumerate(near):
                key, entry = known[place]
                if entry.plain == plain:
                    self._entries.move_to_end((partition, key))
                    match = SimilarQuestion(entry.question, key, min(1.0, float(cosines[place])))
                    return Lookup(match, len(known), refused)
            return Lookup(None, len(known), len(near))

    def add(self, partition: str, question: str, vector: Vector, key: str) -> None:
        """Keep a question, in place of what was known under the same key; its age begins anew.

        A vector that has no direction is not kept.
        """
        direction = _unit(vector)
        if direction is None:
            return
        entry = _Entry(question, plain_question(question), direction, self._now())
        with self._lock:
            self._entries[partition, key] = entry
            self._entries.move_to_end((partition, key))
            if len(self._entries) > self._max_size:
                self._entries.popitem(last=False)

    def discard(self, partition: str, key: str) -> None:
        """Forget a question, because its result is gone."""
        with self._lock:
            self._entries.pop((partition, key), None)

    def clear(self) -> None:
        """Forget all questions."""
        with self._lock:
            self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def _forget_old(self) -> None:
        now = self._now()
        for place in [place for place, entry in self._entries.items() if now - entry.created_at >= self._ttl]:
            del self._entries[place]


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    question: str
    plain: str
    direction: Vector
    created_at: float


def _unit(vector: Vector) -> Vector | None:
    """Return a vector of length 1 in the same direction; ``None`` where it has none."""
    import numpy as np  # noqa: PLC0415 - whoever has a vector has loaded it

    wide = np.asarray(vector, dtype=np.float64)
    length = float(np.linalg.norm(wide))
    if wide.ndim != 1 or not 0 < length < float("inf"):
        return None
    return (wide / length).astype(np.float32)
