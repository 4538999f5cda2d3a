"""Nodes of LlamaIndex as chunks of an index, and back.

A chunk holds a node's id, text and metadata, and what :func:`chunk_from_node` makes of these. The rest (relationships,
templates, excluded keys, the kind of node) is JSON below one key of the chunk's metadata, :data:`RESERVED`, which no
node shows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from llama_index.core.schema import Document, ImageDocument, ImageNode, IndexNode, Node, TextNode

from llama_index.retrievers.retrieval_core.convert import PROVENANCE, RESERVED, node_from_chunk, thawed
from llama_index.retrievers.retrieval_core.order import chunks_from_nodes
from retrieval_core.errors import IndexFormatError, InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from llama_index.core.schema import BaseNode

    from retrieval_core.types import Chunk

NO_DOCUMENT = "None"
"""What LlamaIndex writes for the document of a node that is of none."""
DOCUMENT_PATH = f"{RESERVED}.ref_doc_id"
"""Where filters find a node's document."""
_KINDS: Mapping[str, type[BaseNode]] = {
    kind.class_name(): kind for kind in (TextNode, IndexNode, ImageNode, Node, Document, ImageDocument)
}


@dataclass(frozen=True, slots=True)
class WrittenNode:
    """What is below :data:`RESERVED`.

    Attributes:
        ref_doc_id: Of the node's document, :data:`NO_DOCUMENT` without one.
        node: The node's other fields, as JSON.
    """

    ref_doc_id: str
    node: str


def written_node_of(chunk: Chunk) -> WrittenNode | None:
    """Return what a chunk keeps of its node; ``None`` for one that was not written from a node."""
    written = chunk.metadata.get(RESERVED)
    if not isinstance(written, Mapping):
        return None
    ref_doc_id, node = written.get("ref_doc_id"), written.get("node")
    return WrittenNode(ref_doc_id, node) if isinstance(ref_doc_id, str) and isinstance(node, str) else None


def chunks_of(nodes: Sequence[BaseNode]) -> list[Chunk]:
    """Return nodes as chunks from which :func:`node_of` makes equal ones, in the given order.

    Nodes of other classes than LlamaIndex's own come back as its ``TextNode``.

    Raises:
        InvalidParameterError: Metadata hold something that JSON cannot express, or the reserved key.
    """
    return [_written(node, chunk) for node, chunk in zip(nodes, chunks_from_nodes(nodes), strict=True)]


def node_of(chunk: Chunk) -> BaseNode:
    """Return a chunk as a node: the one it was written from, or one with the passage's provenance.

    Raises:
        IndexFormatError: What the chunk keeps of its node cannot be read.
    """
    written = written_node_of(chunk)
    if written is None:
        return node_from_chunk(chunk)
    own = thawed(chunk.metadata)
    try:
        data = json.loads(written.node)
        kind = _KINDS.get(data.pop("class_name"), TextNode)
        if "text" in kind.model_fields:
            data["text"] = chunk.text
        elif "text_resource" in data:
            data["text_resource"]["text"] = chunk.text
        for related in _related(data):
            if related.get("metadata") is True:
                related["metadata"] = own
        return kind.from_dict({**data, "id_": chunk.id, "metadata": own})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        msg = f"chunk {chunk.id!r:.80}: its node cannot be read back ({error!s:.200}); write the node again"
        raise IndexFormatError(msg) from error


def place_nodes(staying: Iterable[Chunk], nodes: Sequence[BaseNode] = ()) -> list[Chunk]:
    """Return the nodes of documents as chunks with their places: those that are there, then the new ones.

    Args:
        staying: All chunks of these documents. Those that were not written from nodes keep their places, and are not
            returned; nodes come behind them.

    Raises:
        InvalidParameterError: As of :func:`chunks_of`.
    """
    former: dict[str, Chunk] = {}
    behind: dict[str, int] = {}
    for chunk in sorted(staying, key=lambda chunk: (chunk.document_id, chunk.chunk_index, chunk.id)):
        if written_node_of(chunk) is not None:
            former[chunk.id] = chunk
        else:
            behind[chunk.document_id] = max(behind.get(chunk.document_id, 0), chunk.chunk_index + 1)
    placed: list[Chunk] = []
    for new in chunks_of([*map(node_of, former.values()), *nodes]):
        by = 0 if written_node_of(new) is None else behind.get(new.document_id, 0)
        chunk = former.get(new.id, new)
        placed.append(replace(chunk, chunk_index=new.chunk_index + by, total_chunks=new.total_chunks + by))
    return placed


def _written(node: BaseNode, chunk: Chunk) -> Chunk:
    if RESERVED in node.metadata:
        msg = f"node {node.node_id!r:.80}: the metadata key {RESERVED} is reserved; leave it out"
        raise InvalidParameterError(msg)
    if _is_passage(node, chunk):
        return chunk
    written = {"ref_doc_id": node.ref_doc_id or NO_DOCUMENT, "node": json.dumps(_rest(node), ensure_ascii=False)}
    return replace(chunk, id=node.node_id, metadata={**node.metadata, RESERVED: written})


def _is_passage(node: BaseNode, chunk: Chunk) -> bool:
    """Whether a node is an unchanged passage of an index, all of which its chunk holds."""
    again = node_from_chunk(chunk)
    added = node.metadata.keys() - again.metadata.keys()  # by the query that found it
    return (
        (again.node_id, again.relationships) == (node.node_id, node.relationships)
        and added <= PROVENANCE
        and all(node.metadata.get(name) == value for name, value in again.metadata.items())
    )


def _rest(node: BaseNode) -> dict[str, Any]:
    """Return a node's fields that differ from their defaults and are not a chunk's, as JSON values."""
    kind = _KINDS.get(node.class_name(), TextNode)
    dumped = node.model_dump(mode="json", exclude={"embedding"}, exclude_defaults=True)
    names = kind.model_fields.keys() - {"id_", "metadata", "text", "embedding"}
    data = {name: value for name, value in dumped.items() if name in names}
    if isinstance(data.get("text_resource"), dict):
        data["text_resource"].pop("text", None)
    # What splits documents copies their metadata into every relationship.
    own = json.loads(json.dumps(node.metadata))
    for related in _related(data):
        related.pop("class_name", None)
        if related.get("metadata") == own:
            related["metadata"] = True
    return {**data, "class_name": kind.class_name()}


def _related(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the related nodes of a node's JSON."""
    relationships: Mapping[str, Any] = data.get("relationships", {})
    related: list[dict[str, Any]] = []
    for item in relationships.values():
        related += cast("list[dict[str, Any]]", item) if isinstance(item, list) else [item]
    return related
