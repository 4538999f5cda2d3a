"""Collections that other programs filled, with points as these packages write them.

The points were taken from ``langchain-qdrant`` 1.1.0, ``llama-index-vector-stores-qdrant`` 0.10.4 (with
``llama-index-core`` 0.14.25), ``qdrant-haystack`` 13.1.0 and ``mcp-server-qdrant`` 0.8.0.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from qdrant_client import models

from retrieval_core.testing.store_kit import DIMENSION
from retrieval_core.testing.store_kit.base import unit
from support.qdrant_service import QdrantService

if TYPE_CHECKING:
    from collections.abc import Mapping

TEXT = "Ports are opened with `ufw`."
ID = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"
OTHER = "0666a40d-9b66-4e49-9045-3bf479f55338"


@dataclass(frozen=True)
class Collection:
    """A collection that a package made.

    Attributes:
        vectors: The name of its vectors; blank for the one without a name.
        payload: Of a point for a text with metadata.
        bare: Of a point for a text without.
        fields: What the doctor proposes.
        document_id: What the point's document is called.
    """

    vectors: str
    payload: dict[str, Any]
    bare: dict[str, Any]
    fields: dict[str, str] | str
    document_id: str = ID
    metadata: dict[str, Any] = field(default_factory=lambda: {"source": "guide.md", "page": 3, "tags": ["net", "ufw"]})


def _node(metadata: Mapping[str, Any], text: str) -> str:
    """Return the content of a node as ``TextNode`` is written by LlamaIndex."""
    source: dict[str, Any] = {
        "node_id": "guide",
        "node_type": None,
        "metadata": {},
        "hash": None,
        "class_name": "RelatedNodeInfo",
    }
    return json.dumps(
        {
            "id_": ID,
            "embedding": None,
            "metadata": metadata,
            "excluded_embed_metadata_keys": [],
            "excluded_llm_metadata_keys": [],
            "relationships": {"1": source},
            "metadata_template": "{key}: {value}",
            "metadata_separator": "\n",
            "text": text,
            "mimetype": "text/plain",
            "start_char_idx": None,
            "end_char_idx": None,
            "text_template": "{metadata_str}\n\n{content}",
            "class_name": "TextNode",
        }
    )


_PAGE = {"source": "guide.md", "page": 3, "tags": ["net", "ufw"]}
_OF_NODE = {"_node_type": "TextNode", "document_id": "guide", "doc_id": "guide", "ref_doc_id": "guide"}
COLLECTIONS = {
    "LangChain": Collection(
        "",
        {"page_content": TEXT, "metadata": _PAGE},
        {"page_content": "Bare", "metadata": None},
        "langchain",
        document_id="guide.md",
    ),
    "LlamaIndex": Collection(
        "text-dense",
        {**_PAGE, "_node_content": _node(_PAGE, TEXT), **_OF_NODE},
        {"_node_content": _node({}, "Bare"), **_OF_NODE},
        "llamaindex",
        document_id="guide",
    ),
    "Haystack": Collection(
        "",
        {"id": "a", "content": TEXT, "blob": None, "meta": _PAGE, "score": None, "sparse_embedding": None},
        {"id": "b", "content": "Bare", "blob": None, "meta": {}, "score": None, "sparse_embedding": None},
        "haystack",
        metadata={"source": "guide.md", "page": 3, "tags": ["net", "ufw"], "chunk_id": "a"},
    ),
    "mcp-server-qdrant": Collection(
        "fast-all-minilm-l6-v2",
        {"document": TEXT, "metadata": _PAGE},
        {"document": "Bare", "metadata": None},
        {"text": "document", "metadata": "metadata"},
    ),
}


def filled(collection: Collection, *, distance: str = "Cosine", more: tuple[str, ...] = ()) -> QdrantService:
    """Return a server with a collection ``docs``."""
    service = QdrantService()
    parameters = models.VectorParams(size=DIMENSION, distance=models.Distance(distance))
    vectors = dict.fromkeys((collection.vectors, *more), parameters) if collection.vectors else parameters
    service.client.create_collection("docs", vectors_config=vectors)
    service.indexes["docs"] = {}
    for name, seed, payload in ((ID, 0, collection.payload), (OTHER, 1, collection.bare)):
        values = unit(seed).tolist()
        vector: Any = {collection.vectors: values} if collection.vectors else values
        service.client.upsert("docs", [models.PointStruct(id=name, vector=vector, payload=payload)])
    return service
