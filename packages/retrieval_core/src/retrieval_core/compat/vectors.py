"""Vector search in several stores, each with another vector of the same chunks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import Field, ValidationError

from retrieval_core.config.base import Settings, problems_of
from retrieval_core.errors import InvalidParameterError
from retrieval_core.ports import Candidate, Store, as_store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.ports import Change, Fetched, FetchRequest, SearchRequest, StoreInfo

VectorRule: TypeAlias = Literal["mean", "max"]


class _Fusion(Settings):
    """How the cosines of several stores become one score."""

    weights: dict[str, Annotated[float, Field(gt=0, le=1000)]] = Field(default_factory=dict)
    """Weight of the cosines of each other store; those of the first one have 1."""
    rule: VectorRule = "max"
    """``max`` takes the highest weighted cosine of a chunk, ``mean`` the weighted mean."""


class SeveralVectors(Store):
    """A store whose vector search asks other stores too, and combines the cosines; the rest is the first store's.

    Args:
        store: Has the chunks.
        stores: The other stores, by name.
        fusion: ``weights`` and ``rule``.

    Raises:
        InvalidParameterError: A weight has no store, or a value is outside its range.
    """

    def __init__(self, store: Store, stores: Mapping[str, Store], fusion: Mapping[str, Any]) -> None:
        try:
            self._fusion = _Fusion.model_validate(fusion)
        except ValidationError as error:
            msg = f"fusion_config has weights and rule: {'; '.join(problems_of(error, noun='key'))}"
            raise InvalidParameterError(msg) from error
        if unknown := self._fusion.weights.keys() - stores.keys():
            msg = f"weights names {min(unknown)!r:.80}, and stores has {', '.join(stores) or 'none'}"
            raise InvalidParameterError(msg)
        self._store = as_store(store)
        self._others = {name: as_store(one) for name, one in stores.items()}
        self._searched = (self._store, *(self._others[name] for name in self._fusion.weights))

    @property
    def id(self) -> str:
        """Names the rule and the weights."""
        return f"{self._fusion.rule} {sorted(self._fusion.weights.items())}"

    @property
    def has_versions(self) -> bool:
        """Whether all stores that are searched report their versions."""
        return all("version" in store.capabilities for store in self._searched)

    async def _version(self) -> str | None:
        versions = [await store.version() for store in self._searched] if self.has_versions else [None]
        return None if None in versions else " ".join(map(str, versions))

    async def _describe(self) -> StoreInfo:
        return await self._store.describe()

    async def _upsert(self, change: Change) -> None:
        await self._store.upsert(change)

    async def _delete(self, document_ids: Sequence[str]) -> int:
        return await self._store.delete(document_ids)

    async def _search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        if request.vector is None or len(self._searched) == 1:
            return await self._store.search(request)
        found = await asyncio.gather(*(store.search(request) for store in self._searched))
        sides = list(zip(found, (1.0, *self._fusion.weights.values()), strict=True))
        return combine(sides, self._fusion.rule)[: request.limit]

    async def _fetch(self, request: FetchRequest) -> Fetched:
        return await self._store.fetch(request)

    async def _close(self) -> None:
        for store in (self._store, *self._others.values()):
            await store.aclose()


def combine(sides: Sequence[tuple[Sequence[Candidate], float]], rule: VectorRule) -> tuple[Candidate, ...]:
    """Return the candidates of several vector searches, each chunk once, best first; equal ones are ordered by ID.

    Args:
        sides: The candidates of each search, best first, and its weight above 0.
        rule: ``max`` takes a chunk's highest weighted cosine. ``mean`` takes the weighted mean; a search that did not
            find the chunk counts with its lowest score.
    """
    chunks = {item.chunk_id: item.chunk for side, _ in sides for item in side if item.chunk is not None}
    scores = [({item.chunk_id: item.score for item in side}, weight) for side, weight in sides]
    lowest = [min(cosines.values(), default=0.0) for cosines, _ in scores]
    total = sum(weight for _, weight in sides)

    def combined(name: str) -> float:
        if rule == "max":
            return max(weight * cosines[name] for cosines, weight in scores if name in cosines)
        weighted = (weight * cosines.get(name, low) for (cosines, weight), low in zip(scores, lowest, strict=True))
        return sum(weighted) / total

    names = {name for cosines, _ in scores for name in cosines}
    candidates = [Candidate(name, combined(name), chunks.get(name)) for name in names]
    return tuple(sorted(candidates, key=lambda item: (-item.score, item.chunk_id)))
