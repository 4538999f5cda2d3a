"""Vector search in several stores that have a vector of the same chunks each."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from retrieval_core.errors import InvalidParameterError
from retrieval_core.ports import Candidate, Store, as_store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.ports import Change, Fetched, FetchRequest, SearchRequest, StoreInfo

VectorRule: TypeAlias = Literal["mean", "max"]
MOST_WEIGHT = 1000.0


def checked_fusion(given: Mapping[str, Any], stores: Mapping[str, Store]) -> dict[str, Any]:
    """Return the weights and the rule of a ``fusion_config``.

    Raises:
        InvalidParameterError: A key is unknown, a weight is out of range or has no store, or the rule is unknown.
    """
    rule, weights = given.get("rule", "max"), dict(given.get("weights") or {})
    if unknown := sorted(given.keys() - {"weights", "rule"}):
        msg = f"fusion_config has weights and rule, got {', '.join(unknown)}"
        raise InvalidParameterError(msg)
    if rule not in {"mean", "max"}:
        msg = f"rule must be 'mean' or 'max', got {rule!r:.80}"
        raise InvalidParameterError(msg)
    for name, weight in weights.items():
        if name not in stores:
            msg = f"weights names {name!r:.80}, and stores has {', '.join(stores) or 'none'}; give its store in stores"
            raise InvalidParameterError(msg)
        if not isinstance(weight, (int, float)) or not 0 < weight <= MOST_WEIGHT:
            msg = f"weights must be above 0 and at most {MOST_WEIGHT:g}, got {weight!r:.80} for {name!r:.80}"
            raise InvalidParameterError(msg)
    return {"weights": weights, "rule": rule}


class SeveralVectors(Store):
    """A store whose vector search asks other stores too, and combines the cosines; the rest is the first store's.

    Args:
        store: Has the chunks.
        stores: The other stores, by name.
        weights: Weight of the cosines of those that are searched; the first store's have 1.
        rule: See :func:`combine`.
    """

    def __init__(
        self, store: Store, stores: Mapping[str, Store], *, weights: Mapping[str, float], rule: VectorRule
    ) -> None:
        self._store = as_store(store)
        self._stores = {name: as_store(one) for name, one in stores.items()}
        self._weights = dict(weights)
        self._rule: VectorRule = rule
        self._searched = (self._store, *(self._stores[name] for name in self._weights))

    @property
    def id(self) -> str:
        """Names the rule and the weights."""
        return f"{self._rule} {sorted(self._weights.items())}"

    @property
    def has_versions(self) -> bool:
        """Whether all stores that are searched report their versions."""
        return all("version" in store.capabilities for store in self._searched)

    async def _version(self) -> str | None:
        """Return the versions of all stores that are searched; ``None`` if one has none."""
        if not self.has_versions:
            return None
        versions = [await store.version() for store in self._searched]
        return None if None in versions else " ".join(map(str, versions))

    async def _describe(self) -> StoreInfo:
        return await self._store.describe()

    async def _upsert(self, change: Change) -> None:
        await self._store.upsert(change)

    async def _delete(self, document_ids: Sequence[str]) -> int:
        return await self._store.delete(document_ids)

    async def _search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        """Return the best candidates of all stores for a vector, and of the first one for a text."""
        if request.vector is None or len(self._searched) == 1:
            return await self._store.search(request)
        found = await asyncio.gather(*(store.search(request) for store in self._searched))
        sides = list(zip(found, (1.0, *self._weights.values()), strict=True))
        return combine(sides, self._rule)[: request.limit]

    async def _fetch(self, request: FetchRequest) -> Fetched:
        return await self._store.fetch(request)

    async def _close(self) -> None:
        for store in (self._store, *self._stores.values()):
            await store.aclose()


def combine(sides: Sequence[tuple[Sequence[Candidate], float]], rule: VectorRule) -> tuple[Candidate, ...]:
    """Return the candidates of several vector searches, each chunk once, best first; equal ones are ordered by ID.

    Args:
        sides: What each search found, best first, and its weight above 0.
        rule: ``max`` takes a chunk's highest weighted cosine. ``mean`` takes the weighted mean; a search that did not
            find the chunk counts with its lowest score.
    """
    chunks = {item.chunk_id: item.chunk for side, _ in sides for item in side if item.chunk is not None}
    scores = [({item.chunk_id: item.score for item in side}, weight) for side, weight in sides]
    names = {name for cosines, _ in scores for name in cosines}
    if rule == "max":
        combined = {
            name: max(weight * cosines[name] for cosines, weight in scores if name in cosines) for name in names
        }
    else:
        total = sum(weight for _, weight in sides)
        lowest = [min(cosines.values(), default=0.0) for cosines, _ in scores]
        combined = {
            name: sum(weight * cosines.get(name, low) for (cosines, weight), low in zip(scores, lowest, strict=True))
            / total
            for name in names
        }
    order = sorted(combined, key=lambda name: (-combined[name], name))
    return tuple(Candidate(name, combined[name], chunks.get(name)) for name in order)
