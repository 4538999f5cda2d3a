"""Nodes of whole documents as chunks that know their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from llama_index.core.schema import BaseNode, NodeRelationship, RelatedNodeInfo

from llama_index.retrievers.retrieval_core.convert import chunk_from_node
from retrieval_core.types import Chunk


def chunks_from_nodes(nodes: Sequence[BaseNode]) -> list[Chunk]:
    """Return nodes as chunks, each with its place in its document.

    The nodes of a document are ordered by their relationships ``PREVIOUS`` and ``NEXT``. Chains of such nodes, and
    nodes without these relationships, are ordered by ``start_char_idx`` if every node of the document has one.
    Otherwise they keep the given order. Nodes that were chunks of an index keep their position.

    Args:
        nodes: All nodes of each document.

    Returns:
        One chunk for each node, in the order of ``nodes``, see
        :func:`~llama_index.retrievers.retrieval_core.chunk_from_node`.

    Raises:
        InvalidParameterError: As of ``chunk_from_node``.
    """
    chunks = [chunk_from_node(node) for node in nodes]
    documents: dict[str, list[int]] = {}
    for number, chunk in enumerate(chunks):
        if (chunk.chunk_index, chunk.total_chunks) == (0, 1):  # what chunk_from_node says where it does not know
            documents.setdefault(chunk.document_id, []).append(number)
    for numbers in documents.values():
        places = in_order([nodes[number] for number in numbers])
        for index, place in enumerate(places):
            number = numbers[place]
            chunks[number] = replace(chunks[number], chunk_index=index, total_chunks=len(places))
    return chunks


def in_order(nodes: Sequence[BaseNode]) -> list[int]:
    """Return the positions of one document's nodes in the order of the document."""
    starts: list[int | None] = [getattr(node, "start_char_idx", None) for node in nodes]
    known = [start for start in starts if start is not None]
    places = list(range(len(nodes)))
    if len(known) == len(nodes):
        places.sort(key=known.__getitem__)
    following = _links(nodes)
    followers = set(following.values())
    order: dict[int, None] = {}  # a set that keeps its order
    # Chains begin where nothing comes before; what is left then goes in a circle, and may begin anywhere.
    for place in (*(place for place in places if place not in followers), *places):
        current: int | None = place
        while current is not None and current not in order:
            order[current] = None
            current = following.get(current)
    return list(order)


def _links(nodes: Sequence[BaseNode]) -> dict[int, int]:
    """Return the position that comes next, by position, where a node or the one after it says so."""
    place_of = {node.node_id: place for place, node in enumerate(nodes)}
    following: dict[int, int] = {}
    for place, node in enumerate(nodes):
        before, after = (_linked(node, kind) for kind in (NodeRelationship.PREVIOUS, NodeRelationship.NEXT))
        if after in place_of:
            following[place] = place_of[after]
        if before in place_of:
            following.setdefault(place_of[before], place)
    return following


def _linked(node: BaseNode, kind: NodeRelationship) -> str:
    related = node.relationships.get(kind)
    return related.node_id if isinstance(related, RelatedNodeInfo) else ""
