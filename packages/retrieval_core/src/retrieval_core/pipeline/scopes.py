"""Ids of several indexes: whose they are is part of every id in a context, since ids are an index's own.

In a context, and in its citations, ``docs:guide.md`` is the document ``guide.md`` of the index ``docs``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from retrieval_core.pipeline.stages.expand import Surroundings

if TYPE_CHECKING:
    from retrieval_core.types import Chunk, Citation

BORDER = ":"
"""Between an index's name, which never has it, and an id."""


def scoped(name: str, chunk: Chunk) -> Chunk:
    """Return a chunk with ids that say which index it is from."""
    parent = None if chunk.parent_id is None else f"{name}{BORDER}{chunk.parent_id}"
    return replace(
        chunk, id=f"{name}{BORDER}{chunk.id}", document_id=f"{name}{BORDER}{chunk.document_id}", parent_id=parent
    )


def scoped_surroundings(name: str, part: Surroundings, others: Surroundings) -> Surroundings:
    """Return the surroundings of an index's hits, with such ids, together with those of other indexes."""
    chunks = {chunk.id: chunk for chunk in (scoped(name, chunk) for chunk in part.chunks.values())}
    parents = {chunk.id: chunk for chunk in (scoped(name, chunk) for chunk in part.parents.values())}
    texts = {f"{name}{BORDER}{document}": text for document, text in part.texts.items()}
    return Surroundings({**others.chunks, **chunks}, {**others.parents, **parents}, {**others.texts, **texts})


def index_of(citation: Citation) -> str:
    """Return the name of the index that a citation is from."""
    return citation.document_id.partition(BORDER)[0]


def unscoped(name: str, citation: Citation) -> Citation:
    """Return a citation with the ids that its index knows."""
    prefix = f"{name}{BORDER}"
    chunk_ids = tuple(chunk_id.removeprefix(prefix) for chunk_id in citation.chunk_ids)
    return replace(citation, document_id=citation.document_id.removeprefix(prefix), chunk_ids=chunk_ids)
