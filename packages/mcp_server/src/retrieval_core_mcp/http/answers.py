"""Answers that the specification has no table for."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from retrieval_core.compat.service import (  # noqa: TC001 - pydantic reads them
    ChunkMetadata,
    CollectionInfo,
    ExecutionMetadata,
)


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class ErrorAnswer(_Answer):
    """Why a request has no answer."""

    status: Literal["error"]
    results: Annotated[tuple[()], Field(json_schema_extra={"type": "array", "maxItems": 0})] = ()
    execution: ExecutionMetadata
    errors: Annotated[tuple[str, ...], Field(min_length=1)]
    """For people, the first one first."""
    query: str | None = None
    """The question as it came, where one arrived."""


class ContextAnswer(_Answer):
    """What a language model should be shown to answer a question."""

    model_config = ConfigDict(frozen=True, extra="allow")

    query: str
    status: Literal["success"]
    context_pack: str
    """The passages as one text, with numbers to cite them by."""
    token_count: int
    max_tokens: int
    citations: tuple[str, ...]
    execution: ExecutionMetadata
    errors: tuple[str, ...] = ()


class ChunkAnswer(_Answer):
    """A passage as it is stored."""

    text: str
    metadata: ChunkMetadata
    fields: dict[str, Any]
    """All else that is known of it."""


class IndexesAnswer(_Answer):
    """All indexes of the service."""

    indexes: tuple[CollectionInfo, ...]


class WrittenAnswer(_Answer):
    """Documents that were written."""

    written: tuple[str, ...]
    """Their ids."""


class RemovedAnswer(_Answer):
    """Documents that were removed."""

    removed_chunks: dict[str, int]
    """How many passages of each went, by its id; 0 where there was none."""


class Health(_Answer):
    """The process lives."""

    status: Literal["ok"]


class Readiness(_Answer):
    """Whether every index can be searched."""

    status: Literal["ready", "waiting"]
    waiting: dict[str, str]
    """By the name of an index, the error that keeps it from being searched."""
