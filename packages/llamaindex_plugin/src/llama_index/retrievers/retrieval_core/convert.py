"""Lossless conversions between hits or chunks and nodes.

A node's metadata are the user's own fields and the provenance, the fields of
:func:`retrieval_core.index.serialization.hit_to_json` that are not ``None`` or empty. LLMs and embedders do not see
provenance. Where both have a field of one name, the user's is in the metadata, as it is for filters, and the provenance
in :data:`SHADOWED`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from llama_index.core.schema import (
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    ObjectType,
    RelatedNodeInfo,
    TextNode,
)

from retrieval_core.errors import InvalidParameterError
from retrieval_core.index.serialization import chunk_to_json, hit_to_json
from retrieval_core.types import Chunk, Hit, Origin, PageSpan, Scores, Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from llama_index.core.schema import BaseNode

OF_A_CHUNK = frozenset(
    {
        "document_id", "title", "source", "section_path", "page_span", "row_range", "item_range", "span",
        "chunk_index", "total_chunks", "parent_id", "timestamp", "embedding_model", "citation",
    }
)  # fmt: skip
"""Provenance of every node made from a chunk."""
TOLD_OF_A_HIT = ("relevance_reason", "evidence", "found_by", "excerpts", "source_index")
"""Optional provenance of a hit."""
PROVENANCE = OF_A_CHUNK | {"rank", "scores", *TOLD_OF_A_HIT, "degraded", "neighbor_of"}
"""All keys of a node's metadata that are not the user's."""
SHADOWED = "retrieval_core_shadowed"
"""The key of the provenance whose own keys the user's metadata use."""


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a chunk in its document, from 0."""

    document_id: str
    index: int


def node_from_hit(hit: Hit, rank: int, degraded: Sequence[str] = ()) -> NodeWithScore:
    """Return a hit as a node with its score.

    Args:
        rank: In the result, from 1.
        degraded: The query's degradations, one sentence each.
    """
    written = hit_to_json(hit, rank)
    scores = {name: value for name, value in written["scores"].items() if value is not None}
    told = {name: written.get(name) for name in TOLD_OF_A_HIT}
    node = node_from_chunk(hit.chunk, rank=rank, scores=scores, degraded=list(degraded), **told)
    return NodeWithScore(node=node, score=hit.score)


def node_from_chunk(chunk: Chunk, **facts: Any) -> TextNode:
    """Return a chunk as a node.

    Args:
        chunk: Its id becomes the node's, its span ``start_char_idx`` and ``end_char_idx``.
        facts: Further provenance: ``rank``, ``scores``, ``degraded`` or ``neighbor_of``.
    """
    own: dict[str, Any] = _thawed(chunk.metadata)
    provenance = {name: value for name, value in chunk_to_json(chunk).items() if name in OF_A_CHUNK} | facts
    shadowed = {name: provenance.pop(name, None) for name in PROVENANCE & own.keys()}
    # None and empty lists say nothing; a rank or position of 0 does.
    provenance = {name: value for name, value in provenance.items() if value not in (None, [], {})}
    if SHADOWED in own:
        shadowed[SHADOWED] = own[SHADOWED]
    if shadowed:
        provenance[SHADOWED] = shadowed
    return TextNode(
        id_=chunk.id,
        text=chunk.text,
        metadata={**own, **provenance},
        excluded_llm_metadata_keys=sorted(provenance),
        excluded_embed_metadata_keys=sorted(provenance),
        relationships=dict(_relationships(chunk)),
        start_char_idx=chunk.span.start if chunk.span else None,
        end_char_idx=chunk.span.end if chunk.span else None,
    )


def chunk_from_node(node: BaseNode) -> Chunk:
    """Return a node as a chunk: the one it was made from or, for another retriever's node, as much as the node has.

    Raises:
        InvalidParameterError: The metadata hold something that JSON cannot express, or changed provenance that cannot
            be read.
    """
    facts, own = _told_apart(node.metadata)
    text = node.get_content(metadata_mode=MetadataMode.NONE)
    if facts is None:
        return _foreign_chunk(node, text)
    try:
        return Chunk(
            id=node.node_id,
            document_id=facts["document_id"],
            text=text,
            chunk_index=facts["chunk_index"],
            total_chunks=facts["total_chunks"],
            page_span=PageSpan(*facts["page_span"]) if facts["page_span"] else None,
            section_path=tuple(facts["section_path"] or ()),
            span=Span(*facts["span"]) if facts["span"] else None,
            parent_id=facts["parent_id"],
            row_range=_pair(facts["row_range"]),
            item_range=_pair(facts["item_range"]),
            title=facts["title"],
            source=facts["source"],
            timestamp=datetime.fromisoformat(facts["timestamp"]) if facts["timestamp"] else None,
            embedding_model=facts["embedding_model"],
            metadata=own,
        )
    except (TypeError, ValueError) as error:
        msg = f"node {node.node_id!r:.80}: its metadata cannot be read back ({error})"
        raise InvalidParameterError(msg) from error


def hit_from_node(item: NodeWithScore) -> Hit:
    """Return a node with its score as a hit; a node without a score has score 0.

    Raises:
        InvalidParameterError: As of :func:`chunk_from_node`.
    """
    chunk = chunk_from_node(item.node)
    facts, _ = _told_apart(item.node.metadata)
    try:
        known: dict[str, Any] = {"final": item.score} if facts is None else facts["scores"] or {}
        scores = Scores(**known)
        facts = facts or {}
        found_by = tuple(Origin(**origin) for origin in facts.get("found_by") or ())
        excerpts = tuple(Span(*span) for span in facts.get("excerpts") or ())
    except TypeError as error:
        msg = f"node {item.node.node_id!r:.80}: its scores cannot be read back, or what found it ({error})"
        raise InvalidParameterError(msg) from error
    score = item.score if item.score is not None else 0.0
    return Hit(chunk, score, scores, found_by=found_by, excerpts=excerpts, source_index=facts.get("source_index"))


def position_of(node: BaseNode) -> Position | None:
    """Return a node's position by its metadata or by an id ``<document>#<i>``; to be checked against the store.

    Nodes of other retrievers may look the same by chance.
    """
    facts, _ = _told_apart(node.metadata)
    if facts is not None:
        return Position(facts["document_id"], facts["chunk_index"])
    document_id, mark, digits = node.node_id.rpartition("#")
    # More digits than any position has, or digits of other scripts, are part of somebody else's id.
    if mark and digits.isascii() and digits.isdecimal() and len(digits) < 10:
        return Position(document_id, int(digits))
    return None


def _relationships(chunk: Chunk) -> Iterable[tuple[NodeRelationship, RelatedNodeInfo]]:
    yield NodeRelationship.SOURCE, RelatedNodeInfo(node_id=chunk.document_id, node_type=ObjectType.DOCUMENT)
    if chunk.parent_id is not None:
        yield NodeRelationship.PARENT, RelatedNodeInfo(node_id=chunk.parent_id, node_type=ObjectType.TEXT)
    if chunk.id != f"{chunk.document_id}#{chunk.chunk_index}":
        return  # the ids of its neighbours cannot be told from its own
    if chunk.chunk_index > 0:
        before = f"{chunk.document_id}#{chunk.chunk_index - 1}"
        yield NodeRelationship.PREVIOUS, RelatedNodeInfo(node_id=before, node_type=ObjectType.TEXT)
    if chunk.chunk_index + 1 < chunk.total_chunks:
        after = f"{chunk.document_id}#{chunk.chunk_index + 1}"
        yield NodeRelationship.NEXT, RelatedNodeInfo(node_id=after, node_type=ObjectType.TEXT)


def _told_apart(metadata: Mapping[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return provenance, ``None`` where a node was not made here, and the user's own metadata."""
    found = metadata.get(SHADOWED)
    shadowed = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    facts = {name: shadowed[name] if name in shadowed else metadata.get(name) for name in PROVENANCE}
    ours = (
        isinstance(facts["document_id"], str)
        and type(facts["chunk_index"]) is int
        and type(facts["total_chunks"]) is int
        and isinstance(facts["citation"], str)
    )
    if not ours:
        return None, dict(metadata)
    own = {
        name: value
        for name, value in metadata.items()
        if name != SHADOWED and (name not in PROVENANCE or name in shadowed)
    }
    if SHADOWED in shadowed:
        own[SHADOWED] = shadowed[SHADOWED]
    return facts, own


def _foreign_chunk(node: BaseNode, text: str) -> Chunk:
    start, end = getattr(node, "start_char_idx", None), getattr(node, "end_char_idx", None)
    parent = node.relationships.get(NodeRelationship.PARENT)
    source = node.relationships.get(NodeRelationship.SOURCE)
    return Chunk(
        id=node.node_id,
        document_id=source.node_id if isinstance(source, RelatedNodeInfo) else node.node_id,
        text=text,
        span=Span(start, end) if start is not None and end is not None else None,
        parent_id=parent.node_id if isinstance(parent, RelatedNodeInfo) else None,
        metadata=node.metadata,
    )


def _pair(value: Sequence[int] | None) -> tuple[int, int] | None:
    if value is None:
        return None
    first, last = value
    return first, last


def _thawed(value: Any) -> Any:
    """Return frozen JSON as what users of LlamaIndex may change: plain dictionaries and lists."""
    if isinstance(value, Mapping):
        return {key: _thawed(item) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_thawed(item) for item in cast("Sequence[Any]", value)]
    return value
