"""Mappings of fields that are proposed for other programs' collections."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("qdrant_client", reason="the extra 'qdrant' is not installed")
pytest.importorskip("jsonschema", reason="the group 'test-qdrant' is not installed")

from qdrant_client import models

from retrieval_core.cli.field_proposals import propose_fields
from retrieval_core.cli.probes import examine_parts
from retrieval_core.config import load_config
from retrieval_core.testing.store_kit import DIMENSION
from retrieval_core.testing.store_kit.base import unit
from support.qdrant_service import KEY, QdrantService
from support.wire_server import WireServer

if TYPE_CHECKING:
    from collections.abc import Mapping


pytestmark = pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")

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


@pytest.mark.parametrize("program", COLLECTIONS)
def test_the_doctor_proposes_the_mapping(program: str) -> None:
    """It says what to set; and with just that the collection is in order."""
    collection = COLLECTIONS[program]
    fake = {"embedder.kind": "retrieval_core.testing.fakes:FakeEmbedder", "embedder.custom.dimension": DIMENSION}
    with WireServer(filled(collection)) as server:
        given = {"store.kind": "qdrant", "store.qdrant.url": server.url, "store.qdrant.collection": "docs", **fake}

        def told(**more: Any) -> tuple[str, str]:
            config = load_config(overrides={**given, **more}, environment={"QDRANT_API_KEY": KEY})
            (finding,) = (one for one in examine_parts(config) if one.subject == "index")
            return finding.verdict, finding.detail

        verdict, advice = told()
        assert verdict == ("ok" if program == "Haystack" else "wrong")  # its field of the text has a default name
        proposed = tomllib.loads(advice[advice.index("[store.qdrant") :])["store"]["qdrant"]
        assert proposed == {"fields": collection.fields}
        verdict, detail = told(**{"store.qdrant": {**proposed, "url": server.url, "collection": "docs"}})
        assert (verdict, detail.endswith("0 documents, 2 chunks")) == ("ok", True)


def test_the_doctor_proposes_the_field_with_most_text() -> None:
    """Of a layout that has no preset; it proposes nothing for one that the default preset reads."""
    records = [{"n": 1, "kind": "note", "body": "Longer text"}, {"body": "More", "about": {"lang": "en"}}]
    assert propose_fields(records, "qdrant", None) == '[store.qdrant]\nfields = {text = "body", metadata = "about"}'
    assert propose_fields(records, "qdrant", {"text": "kind"}) is None
    assert propose_fields([{"text": "x", "source": "y"}], "pinecone", None) is None
    assert propose_fields([{"text": "x", "_node_content": '{"text": "x"}'}], "pinecone", None) == (
        '[store.pinecone]\nfields = "llamaindex"'
    )
    assert propose_fields([], "qdrant", None) is None
