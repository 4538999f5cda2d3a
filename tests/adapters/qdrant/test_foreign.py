"""Collections that other programs filled are read."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("qdrant_client", reason="the extra 'qdrant' is not installed")
pytest.importorskip("jsonschema", reason="the group 'test-qdrant' is not installed")

from qdrant_client import models

from retrieval_core.errors import (
    DimensionMismatchError,
    IncompleteSearchError,
    IndexFormatError,
    InvalidParameterError,
    StoreError,
    UnsupportedSearchError,
)
from retrieval_core.ports import Change, ChunkRange, CollectionState, FetchRequest, SearchRequest
from retrieval_core.testing.store_kit import DIMENSION
from retrieval_core.testing.store_kit.base import chunk, put, unit
from retrieval_core.types import PageSpan
from retrieval_core.types.filters import And, Contains, Eq, Gte, Lt, Ne, Text
from support.qdrant_collections import COLLECTIONS, ID, OTHER, TEXT, Collection, filled
from support.qdrant_service import QdrantService
from support.qdrant_support import run
from support.wire_server import WireServer

if TYPE_CHECKING:
    from retrieval_core.adapters.stores.qdrant import QdrantStore

pytestmark = pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")


@pytest.mark.parametrize("program", COLLECTIONS)
def test_a_collection_of_another_program_is_read(program: str) -> None:
    """With the mapping alone: texts, metadata, documents, vectors and filters."""
    collection = COLLECTIONS[program]

    async def test(store: QdrantStore) -> None:
        info = await store.describe()
        assert (info.chunks, info.documents, info.manifest, info.sides) == (2, 0, None, {"dense"})
        assert (
            info.collection == await store.describe_collection() == CollectionState(DIMENSION, "Cosine", 2, 2, "green")
        )
        found = await store.search(SearchRequest(2, vector=unit(0), with_vectors=True))
        assert [item.chunk_id for item in found] == [ID, OTHER]
        passage = found[0].chunk
        assert passage is not None
        assert (passage.text, passage.document_id, passage.source) == (TEXT, collection.document_id, "guide.md")
        assert dict(passage.metadata) == {**collection.metadata, "tags": ("net", "ufw")}
        assert found[0].score == pytest.approx(1)
        np.testing.assert_allclose(np.asarray(found[0].vector), unit(0), atol=1e-6)
        assert found[1].chunk is not None
        assert found[1].chunk.text == "Bare"
        for condition, expected in (
            (Eq("source", "guide.md"), [ID]),
            (Eq("page", 3.0), [ID]),
            (And((Gte("page", 3), Lt("page", 4), Contains("tags", "ufw"))), [ID]),
            (Ne("tags", "ufw"), [OTHER]),
            (Text("source", "GUIDE"), [ID]),
            (Eq("id", OTHER), [OTHER]),
            (Eq("source", "other.md"), []),
            (Eq("document_id", collection.document_id), [ID, OTHER] if program == "LlamaIndex" else [ID]),
        ):
            found = await store.search(SearchRequest(5, vector=unit(0), filter=condition))
            assert [item.chunk_id for item in found] == expected, condition
        fetched = await store.fetch(FetchRequest((ID, "no id", "7"), with_vectors=True))
        assert set(fetched.chunks) == {ID} == set(fetched.vectors)
        assert not (await store.fetch(FetchRequest((ID,), filter=Eq("page", 4)))).chunks
        fields = await store.fields(100)
        assert fields["page"].passages == 1
        assert await store.sample_fields() == (fields.keys(), 2)
        assert await store.count_chunks(Eq("page", 3)) == 1
        assert await store.version() is None
        assert dict(await store.sources()) == {}
        assert dict(await store.documents_of("guide.md")) == {}

    with WireServer(filled(collection)) as server:
        run(server, test, collection="docs", fields=collection.fields)


def test_a_collection_of_ones_own_making() -> None:
    """Its fields are listed where none of them is mapped; of several vectors one has to be chosen."""
    collection = Collection("small", {"n": 1, "body": "Text"}, {"body": "More"}, {})

    async def unmapped(store: QdrantStore) -> None:
        expected = (
            r"no text in 'text', 'content' or 'review_text'; its fields are body(, n)?\. .*default, langchain.*doctor"
        )
        for call in (store.describe(), store.search(SearchRequest(5, vector=unit(0), filter=Eq("source", "x")))):
            with pytest.raises(IndexFormatError, match=expected):
                await call

    async def ambiguous(store: QdrantStore) -> None:
        with pytest.raises(IndexFormatError, match=r"has the vectors 'small', 'large'; set store.qdrant.vector"):
            await store.describe()

    async def wrong(store: QdrantStore) -> None:
        with pytest.raises(IndexFormatError, match=r"store.qdrant.vector is 'huge'"):
            await store.describe()

    async def chosen(store: QdrantStore) -> None:
        found = await store.search(SearchRequest(5, vector=unit(0)))
        assert [item.chunk.text for item in found if item.chunk] == ["Text", "More"]

    with WireServer(filled(collection, more=("large",))) as server:
        run(server, unmapped, collection="docs", vector="small")
        run(server, ambiguous, collection="docs")
        run(server, ambiguous, collection="docs", fields={"text": "body"})
        run(server, wrong, collection="docs", fields={"text": "body"}, vector="huge")
        run(server, chosen, collection="docs", fields={"text": "body"}, vector="small")


def test_a_text_inside_the_metadata_is_no_metadata() -> None:
    """Each chunk has its text once; other fields beside it are metadata."""
    collection = Collection("", {"doc": {"body": TEXT, "topic": "ports"}}, {"doc": {"body": "Bare"}}, {})

    async def test(store: QdrantStore) -> None:
        found = await store.search(SearchRequest(5, vector=unit(0)))
        chunks = [(item.chunk.text, dict(item.chunk.metadata)) for item in found if item.chunk]
        assert chunks == [(TEXT, {"topic": "ports"}), ("Bare", {})]

    with WireServer(filled(collection)) as server:
        run(server, test, collection="docs", fields={"text": "doc.body", "metadata": "doc"})


def test_without_a_mapping_the_default_one_is_used() -> None:
    """Whether there is keyword search is known once the collection was opened."""
    payload = {"content": TEXT, "source_url": "https://example.com", "chunk_index": 1}
    service = filled(Collection("", payload, {"text": "Bare"}, {}))

    async def test(store: QdrantStore) -> None:
        assert store.sides == {"dense", "lexical"}
        found = await store.search(SearchRequest(5, vector=unit(0)))
        assert [(item.chunk.text, item.chunk.source) for item in found if item.chunk] == [
            (TEXT, "https://example.com"),
            ("Bare", None),
        ]
        assert store.sides == {"dense"} == (await store.describe()).sides
        with pytest.raises(UnsupportedSearchError, match="no keyword search: another program filled it"):
            await store.search(SearchRequest(5, text="ports"))

    with WireServer(service) as server:
        run(server, test, collection="docs")


def test_an_own_index_that_lost_its_state_is_not_read_as_another_programs() -> None:
    """Its points would be readable, and are not what they seem."""

    async def fill(store: QdrantStore) -> None:
        await put(store, chunk("a"))

    async def test(store: QdrantStore) -> None:
        with pytest.raises(IndexFormatError, match="is an index of this library, but says nothing of itself"):
            await store.describe()

    service = QdrantService()
    with WireServer(service) as server:
        run(server, fill)
        (name,) = (one.name for one in service.client.get_collections().collections)
        own, _ = service.client.scroll(name, limit=100)
        state = [point.id for point in own if point.payload and point.payload["_rc"]["kind"] == "state"]
        service.client.delete(name, models.PointIdsList(points=state))
        run(server, test)


def test_json_as_text_is_read_by_a_mapping() -> None:
    """Any field with JSON can be mapped, and paths lead into it."""
    data = json.dumps({"body": "One", "where": {"url": "https://example.com", "pg": "7"}, "meta": {"lang": "en"}})
    names = {"json": "data", "text": "data.body", "source": "data.where.url", "page": "data.where.pg"}

    async def test(store: QdrantStore) -> None:
        for condition in (None, Eq("lang", "en"), Eq("source", "https://example.com"), Eq("page", 7)):
            (found,) = await store.search(SearchRequest(5, vector=unit(0), filter=condition))
            assert found.chunk is not None
            assert (found.chunk.text, found.chunk.source) == ("One", "https://example.com")
            assert found.chunk.page_span == PageSpan(7, 7)
            assert dict(found.chunk.metadata) == {"lang": "en"}
        assert not await store.search(SearchRequest(5, vector=unit(0), filter=Eq("lang", "de")))

    service = filled(Collection("", {"data": data}, {"data": "{"}, {}))
    service.client.delete("docs", models.PointIdsList(points=[OTHER]))
    with WireServer(service) as server:
        run(server, test, collection="docs", fields={**names, "metadata": "data.meta"})


def test_ranges_of_a_document_need_its_positions() -> None:
    """Neighbours are found where the mapping tells document and position, and nowhere else."""
    collection = Collection(
        "", {"body": "One", "doc": "d", "at": {"n": 1}}, {"body": "Two", "doc": "d", "at": {"n": 2.0}}, {}
    )
    names = {"text": "body", "document_id": "doc", "chunk_index": "at.n"}

    async def mapped(store: QdrantStore) -> None:
        found = await store.fetch(FetchRequest(ranges=(ChunkRange("d", 2, 9), ChunkRange("e", 0, 9))))
        assert [(item.text, item.chunk_index) for item in found.chunks.values()] == [("Two", 2)]

    async def unmapped(store: QdrantStore) -> None:
        assert not (await store.fetch(FetchRequest(ranges=(ChunkRange("d", 0, 9),)))).chunks

    with WireServer(filled(collection)) as server:
        run(server, mapped, collection="docs", fields=names)
        run(server, unmapped, collection="docs", fields={"text": "body"})


def test_points_without_a_text_are_left_out() -> None:
    """What is readable is found, and the search says what is missing; with nothing readable it is an error."""
    collection = COLLECTIONS["LangChain"]

    async def some(store: QdrantStore) -> None:
        with pytest.raises(
            IncompleteSearchError, match=f"1 of the best points were left out: record '{OTHER}'"
        ) as caught:
            await store.search(SearchRequest(5, vector=unit(0)))
        assert [item.chunk_id for item in caught.value.found] == [ID]
        (best,) = await store.search(SearchRequest(1, vector=unit(0)))  # better than the other one in any case
        assert best.chunk_id == ID

    async def none(store: QdrantStore) -> None:
        with pytest.raises(IndexFormatError, match=rf"record '{OTHER}' .*\[store.qdrant.fields\] text"):
            await store.search(SearchRequest(5, vector=unit(0)))

    service = filled(collection)
    service.client.overwrite_payload("docs", {"metadata": {}}, points=[OTHER])
    with WireServer(service) as server:
        run(server, some, collection="docs", fields=collection.fields)
        run(server, none, collection="docs", fields={"text": "nowhere"})


def test_what_is_not_ours_is_not_written() -> None:
    """Neither indexing nor deleting touches a collection of another program; words are not searched."""

    async def test(store: QdrantStore) -> None:
        for write in (lambda: put(store, chunk("a")), lambda: store.delete(["guide"]), lambda: store.upsert(Change())):
            with pytest.raises(StoreError, match="filled by another program and is only read"):
                await write()
        with pytest.raises(UnsupportedSearchError, match="has no keyword search"):
            await store.search(SearchRequest(5, text="ports"))
        assert (await store.describe()).chunks == 2

    with WireServer(filled(COLLECTIONS["LangChain"])) as server:
        run(server, test, collection="docs", fields=COLLECTIONS["LangChain"].fields)


def test_a_mapping_is_for_collections_of_others() -> None:
    """An index of this library needs none, and the error says so."""

    async def fill(store: QdrantStore) -> None:
        await put(store, chunk("a"))
        assert store.sides == {"dense", "lexical"}

    async def test(store: QdrantStore) -> None:
        with pytest.raises(IndexFormatError, match=r"is an index of this library; leave store\.qdrant\.fields out"):
            await store.describe()
        assert store.sides == {"dense"}

    with WireServer(QdrantService()) as server:
        run(server, fill)
        run(server, test, fields={"text": "text"})


def test_vectors_that_cannot_be_compared_are_refused() -> None:
    """Another distance, and another length."""
    collection = COLLECTIONS["LangChain"]

    async def distance(store: QdrantStore) -> None:
        with pytest.raises(IndexFormatError, match="compares its vectors by Euclid"):
            await store.search(SearchRequest(5, vector=unit(0)))

    async def length(store: QdrantStore) -> None:
        with pytest.raises(DimensionMismatchError):
            await store.describe()

    with WireServer(filled(collection, distance="Euclid")) as server:
        run(server, distance, collection="docs", fields=collection.fields)
    with WireServer(filled(collection)) as server:
        run(server, length, collection="docs", fields=collection.fields, dimension=DIMENSION + 1)


def test_an_empty_collection_is_an_empty_index() -> None:
    """It holds nothing, and can be filled if its vectors are right."""

    async def test(store: QdrantStore) -> None:
        assert (await store.describe()).chunks == 0
        for request in (SearchRequest(5, vector=unit(0)), SearchRequest(5, text="word")):
            assert await store.search(request) == ()
        with pytest.raises(IndexFormatError, match="made for other vectors"):
            await put(store, chunk("a"))

    service = QdrantService()
    parameters = models.VectorParams(size=DIMENSION, distance=models.Distance.COSINE)
    service.client.create_collection("docs", vectors_config=parameters)
    with WireServer(service) as server:
        run(server, test, collection="docs")


def test_unknown_fields_are_refused() -> None:
    """The error names what can be mapped."""
    from retrieval_core.adapters.stores.qdrant import QdrantStore

    with pytest.raises(InvalidParameterError, match=r"headline cannot be mapped; choose from .*metadata"):
        QdrantStore(url="http://localhost", fields={"headline": "x"})
    for fields in ("elasticsearch", {"preset": "elasticsearch"}):
        with pytest.raises(InvalidParameterError, match=r"no preset 'elasticsearch'; choose from .*llamaindex"):
            QdrantStore(url="http://localhost", fields=fields)


@pytest.mark.parametrize("fields", ["llamaindex", {"preset": "llamaindex"}, {"text": "_node_content"}])
def test_a_mapping_may_be_named(fields: Any) -> None:
    """As a preset, or as version 0.1 did for LlamaIndex."""
    collection = COLLECTIONS["LlamaIndex"]

    async def test(store: QdrantStore) -> None:
        found = await store.search(SearchRequest(1, vector=unit(0)))
        assert found[0].chunk is not None
        assert found[0].chunk.text == TEXT

    with WireServer(filled(collection)) as server:
        run(server, test, collection="docs", fields=fields)


def test_closing(tmp_path: Any) -> None:
    """An unused store is closed at once."""
    from retrieval_core.adapters.stores.qdrant import QdrantStore

    asyncio.run(QdrantStore(path=str(tmp_path)).aclose())
    assert not list(tmp_path.iterdir())
