"""Mappings of fields that are proposed for other programs' collections."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("qdrant_client", reason="the extra 'qdrant' is not installed")
pytest.importorskip("jsonschema", reason="the group 'test-qdrant' is not installed")


from retrieval_core.adapters.stores.foreign import propose_fields, show_record
from retrieval_core.cli.doctor import examine_parts
from retrieval_core.config import load_config
from retrieval_core.testing.store_kit import DIMENSION
from support.qdrant_collections import COLLECTIONS, filled
from support.qdrant_service import KEY
from support.wire_server import WireServer

if TYPE_CHECKING:
    pass


pytestmark = pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")


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
        assert (verdict, ": 2 chunks. " in detail, "[store.qdrant]" in detail) == ("ok", True, False)


def test_the_doctor_proposes_the_field_with_most_text() -> None:
    """Of a layout that has no preset; it proposes nothing for one that the default preset reads."""
    records = [{"n": 1, "kind": "note", "body": "Longer text"}, {"body": "More", "about": {"lang": "en"}}]
    assert propose_fields(records, "qdrant", None, is_flat=False) == {"text": "body", "metadata": "about"}
    assert propose_fields(records, "qdrant", {"text": "kind"}, is_flat=False) is None
    assert propose_fields([{"text": "x", "source": "y"}], "pinecone", None, is_flat=True) == "langchain"
    named = [{"text": "x", "source": "y", "document_id": "z"}]
    assert propose_fields(named, "pinecone", None, is_flat=True) is None
    node = [{"text": "x", "_node_content": '{"text": "x"}'}]
    assert propose_fields(node, "pinecone", None, is_flat=True) == "llamaindex"
    assert propose_fields([{"content": "x", "source_id": "a", "split_id": 0}], "pinecone", None, is_flat=True) == (
        "haystack"
    )
    assert propose_fields([], "qdrant", None, is_flat=False) is None


def test_the_doctor_shows_nothing_of_a_secret_field() -> None:
    """Whether its value is a text, a number, a list or an object."""
    secrets = {"password": 8675309, "credentials": {"user": "ann", "value": "8675309"}, "tokens": ["8675309"]}
    shown = show_record({"text": "x", "meta": secrets})
    assert ("8675309" in shown, shown.count("[secret]")) == (False, 3)
