"""Collections that LangChain, LlamaIndex and Haystack wrote to Qdrant, Pinecone and PostgreSQL, read by presets."""

from __future__ import annotations

import json
import tomllib
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("qdrant_client", reason="the extra 'qdrant' is not installed")
pytest.importorskip("pinecone", reason="the extra 'pinecone' is not installed")

from qdrant_client import QdrantClient, models

from retrieval_core import load_config, open_index, parse_filter
from retrieval_core.cli.doctor import examine_parts
from retrieval_core.errors import DimensionMismatchError
from retrieval_core.evaluate.suite import CaseStatus, IndexTarget, parse_suite, run_suite
from retrieval_core.ports import ChunkRange, FetchRequest
from retrieval_core.service.checking import IntegrityRequest, check_integrity
from retrieval_core.service.reading import NeighborsRequest, read_neighbors
from retrieval_core.service.served import OpenedIndex, ServedIndexes
from retrieval_core.service.service_context import ServiceContext
from retrieval_core.types.filters import matches
from support import foreign_writers
from support.foreign_writers import COLLECTION, DIMENSION, FLAT, NESTED, OTHER
from support.pinecone_service import KEY, PineconeService
from support.wire_server import WireServer

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping
    from pathlib import Path

    from support.postgres_server import PostgresServer

pytestmark = pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")

NEEDS = {
    ("langchain", "qdrant"): ("langchain_qdrant", "langchain_text_splitters"),
    ("langchain", "pinecone"): ("langchain_text_splitters",),
    ("llamaindex", "qdrant"): ("llama_index.vector_stores.qdrant",),
    ("llamaindex", "pinecone"): ("llama_index.vector_stores.pinecone",),
    ("haystack", "qdrant"): ("haystack_integrations.document_stores.qdrant",),
    ("haystack", "pinecone"): ("haystack_integrations.document_stores.pinecone",),
    ("langchain", "postgres"): ("psycopg", "langchain_postgres", "langchain_text_splitters"),
    ("langchain_table", "postgres"): ("psycopg", "langchain_postgres", "langchain_text_splitters"),
    ("llamaindex", "postgres"): ("psycopg", "llama_index.vector_stores.postgres"),
    ("haystack", "postgres"): ("psycopg", "haystack_integrations.document_stores.pgvector"),
}
FAKE = {"embedder.kind": "retrieval_core.testing.fakes:FakeEmbedder", "embedder.custom.dimension": DIMENSION}
QUERY = "Which rule refused a packet?"
ANSWER = "Logs say which rule refused a packet."
FILTERS: tuple[dict[str, Any], ...] = (
    {"year": 2020},
    {"year": {"$ne": 2020}},
    {"year": {"$gt": 2020}},
    {"day": {"$gte": "2020-01-01"}},
    {"day": {"$exists": False}},
    {"tags": {"$contains": "ufw"}},
    {"tags": "disk"},
    {"ok": False},
    {"ok": {"$in": [True]}},
    {"source": "manual.md"},
    {"none": {"$exists": True}},
    {"numbers": {"$contains": 2}},
    {"author.name": "Ann"},
    {"author.age": {"$lt": 50}},
    {"$or": [{"year": 2021}, {"$not": {"tags": {"$contains": "net"}}}]},
)


class Written:
    """A collection that a library wrote, and the settings that reach it."""

    def __init__(self, library: str, kind: str, settings: dict[str, Any], texts: list[str]) -> None:
        self.library, self.kind, self.texts = library, kind, texts
        self.settings = {**FAKE, **settings, "cache.kind": "none"}
        self.environment = {"PINECONE_API_KEY": KEY}

    def config(self, **fields: Any) -> Any:
        """Return the configuration; the preset is that of the library."""
        own = {f"store.{self.kind}.{name}": value for name, value in (fields or {"fields": self.library}).items()}
        return load_config(overrides={**self.settings, **own}, environment=self.environment)

    def open(self, **fields: Any) -> Any:
        """Open the collection."""
        return open_index(config=self.config(**fields))

    def doctor(self, **fields: Any) -> tuple[str, str]:
        """Return what the doctor reports of the index."""
        config = self.config(**fields) if fields else load_config(overrides=self.settings, environment=self.environment)
        (found,) = (one for one in examine_parts(config) if one.subject == "index")
        return found.verdict, found.detail


def write_to_qdrant(library: str, folder: Path, **options: Any) -> Written:
    """Let a library write to a folder, by the local mode of Qdrant's client."""
    writer, place = getattr(foreign_writers, f"{library}_qdrant"), str(folder / "qdrant")
    with warnings.catch_warnings(action="ignore"):  # theirs
        if library == "haystack":
            texts = writer(place, **options)
        else:
            client = QdrantClient(path=place)
            texts = writer(client, **options)
            client.close()
    settings = {"store.kind": "qdrant", "store.qdrant.path": place, "store.qdrant.collection": COLLECTION}
    return Written(library, "qdrant", settings, texts)


def write_to_postgres(library: str, url: str, **options: Any) -> Written:
    """Let a library make a table in an empty database."""
    with warnings.catch_warnings(action="ignore"):  # theirs
        table, texts = getattr(foreign_writers, f"{library}_postgres")(url, **options)
    settings = {"store.kind": "postgres", "store.postgres.url": url, "store.postgres.table": table}
    return Written(library, "postgres", settings, texts)


@contextmanager
def new_database(server: PostgresServer, name: str) -> Generator[str]:
    """Yield the address of a database, as these libraries have fixed names of tables."""
    import psycopg

    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}_wrote".encode())
        try:
            yield server.url.replace("/postgres?", f"/{name}_wrote?", 1)
        finally:
            connection.execute(f"DROP DATABASE {name}_wrote (FORCE)".encode())


@pytest.fixture(params=NEEDS, ids="-".join)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Written]:
    """Yield a collection of each library at each service."""
    library, kind = request.param
    for module in NEEDS[request.param]:
        pytest.importorskip(module, reason="the group 'test-foreign' or 'test-llamaindex' is not installed")
    if kind == "qdrant":
        yield write_to_qdrant(library, tmp_path)
        return
    if kind == "postgres":
        with new_database(request.getfixturevalue("postgres"), library) as url:
            yield write_to_postgres(library, url)
        return
    with WireServer(PineconeService(DIMENSION)) as server:
        with warnings.catch_warnings(action="ignore"):
            texts = getattr(foreign_writers, f"{library}_pinecone")(server.url, KEY)
        settings = {"store.kind": "pinecone", "store.pinecone.host": server.url}
        yield Written(library, "pinecone", settings, texts)


def metadata_of(hit: Any, written: Written) -> dict[str, Any]:
    """Return the metadata that was given to the library for the document of a hit."""
    first: Mapping[str, Any] = NESTED if written.kind != "pinecone" else FLAT
    return {**first} if hit.chunk.source == first["source"] else {**OTHER}


def test_texts_documents_and_metadata_come_back(written: Written) -> None:
    """Search, fetch by ID, list and grep find what the library was given."""
    with written.open() as index:
        result = index.retrieve(QUERY, top_k=20)
        assert not result.degraded
        assert sorted(hit.chunk.text for hit in result.hits) == sorted(written.texts)
        assert result.hits[0].chunk.text.endswith(ANSWER)
        for hit in result.hits:
            given = json.loads(json.dumps(metadata_of(hit, written)))
            kept = json.loads(json.dumps(dict(hit.chunk.metadata)))
            assert {name: kept.get(name) for name in given} == given
        documents = {hit.chunk.document_id for hit in result.hits}
        assert len(documents) == 2
        assert {each.id: each.chunks for each in index.documents()} == {
            name: sum(hit.chunk.document_id == name for hit in result.hits) for name in documents
        }
        ids = tuple(hit.id for hit in result.hits)
        assert {*index.sync.run(index.store.fetch(FetchRequest(ids))).chunks} == {*ids}
        (document,) = index.grep("refused").documents
        assert document.id in documents
        assert any(ANSWER in passage.text for passage in index.context(QUERY).passages)


def test_filters_mean_what_they_mean_everywhere(written: Written) -> None:
    """The store and our own evaluation find the same, also for fields that some or all records lack."""
    with written.open() as index:
        everything = index.retrieve(QUERY, top_k=20).hits
        fields = {hit.id: {"source": hit.chunk.source, **hit.chunk.metadata} for hit in everything}
        for filters in FILTERS:
            condition = parse_filter(filters)
            expected = {name for name in fields if matches(condition, fields[name])}
            assert {hit.id for hit in index.retrieve(QUERY, filters, top_k=20).hits} == expected, filters


def test_the_doctor_shows_a_record_and_changes_nothing(written: Written) -> None:
    """It names what is missing; the proposed lines, put into the configuration, read the collection."""
    _, detail = written.doctor()
    assert "\nA record: {" in detail
    proposed = tomllib.loads(detail[detail.index("[store.") :])["store"][written.kind]
    assert proposed == {"fields": written.library}
    verdict, detail = written.doctor(**proposed)
    assert verdict == "ok"
    assert f" {len(written.texts)} chunks" in detail
    assert "[store." not in detail
    assert ("Missing: positions" in detail) == (written.library != "haystack")


def test_neighbors_are_those_before_and_after(written: Written) -> None:
    """Haystack's splitter numbers its chunks; where nobody does, a chunk has no neighbors instead of wrong ones."""
    with written.open() as index:
        (own,) = (hit.chunk for hit in index.retrieve(QUERY, top_k=1).hits)
        context = ServiceContext(ServedIndexes(OpenedIndex(index)))
        found = index.sync.run(read_neighbors(context, NeighborsRequest(id=own.id, before=1, after=1)))
        texts = [chunk.text for chunk in found.chunks]
    place = written.texts.index(own.text)
    assert texts == (written.texts[place - 1 : place + 1] if written.library == "haystack" else [own.text])


def test_suites_run_and_chunks_cannot_be_verified(written: Written) -> None:
    """There is nothing to compare a collection with, which is reported in place of differences."""
    suite = parse_suite(
        json.dumps(
            {
                "name": "rules",
                "cases": [
                    {"name": "packet", "query": QUERY, "expect": {"keywords": ["packet"]}},
                    {"name": "night", "query": "Backups", "filter": {"year": 2021}, "expect": {"phrases": ["Backups"]}},
                ],
            }
        ),
        is_json=True,
    )
    with written.open() as index:
        result = index.sync.run(run_suite(IndexTarget(index), suite))
        assert [case.status for case in result.results] == [CaseStatus.PASSED] * 2
        context = ServiceContext(ServedIndexes(OpenedIndex(index)))
        report = index.sync.run(check_integrity(context, IntegrityRequest()))
        assert (report.verdict, report.unverifiable) == ("unverifiable", len(written.texts))


def test_haystack_ids_are_in_the_metadata(tmp_path: Path) -> None:
    """A point's ID is a hash of Haystack's own, which filters find too."""
    pytest.importorskip(NEEDS["haystack", "qdrant"][0], reason="the group 'test-foreign' is not installed")
    written = write_to_qdrant("haystack", tmp_path)
    with written.open() as index:
        (hit,) = index.retrieve(QUERY, top_k=1).hits
        own = hit.chunk.metadata["chunk_id"]
        assert own != hit.id
        assert [found.id for found in index.retrieve(QUERY, {"chunk_id": own}).hits] == [hit.id]


def test_sparse_vectors_of_unknown_making_are_not_read(tmp_path: Path) -> None:
    """The one dense vector is searched without a setting, and the doctor says that the other kind is not."""
    pytest.importorskip(NEEDS["haystack", "qdrant"][0], reason="the group 'test-foreign' is not installed")
    written = write_to_qdrant("haystack", tmp_path, use_sparse_embeddings=True)
    verdict, detail = written.doctor(fields="haystack")
    assert verdict == "ok"
    assert "Missing: how the sparse vectors 'text-sparse' were made" in detail
    with written.open() as index:
        result = index.retrieve(QUERY, top_k=1)
        assert (result.hits[0].chunk.text.strip(), result.degraded) == (ANSWER, ())


def points(client: QdrantClient, *, count: int, sizes: Mapping[str, int]) -> None:
    """Write points of the specification's payload, with vectors by name."""
    made = {name: models.VectorParams(size=size, distance=models.Distance.COSINE) for name, size in sizes.items()}
    client.create_collection(COLLECTION, made.get("", made))
    text, title = foreign_writers.embed(["Ports are opened", "Firewall"])
    for number in range(count):
        vectors = {"text": text, "title": title}
        vector: Any = vectors["text"] if "" in sizes else {name: vectors[name][:size] for name, size in sizes.items()}
        payload = {
            "content": "Ports are opened",
            "source_url": "https://a/b",
            "api_key": "sk-1234",
            "chunk_index": number,
        }
        client.upsert(COLLECTION, [models.PointStruct(id=number, vector=vector, payload=payload)])


def at_qdrant(folder: Path, *, count: int, sizes: Mapping[str, int]) -> Written:
    """Write points to a folder."""
    client = QdrantClient(path=str(folder / "qdrant"))
    points(client, count=count, sizes=sizes)
    client.close()
    at = {"store.kind": "qdrant", "store.qdrant.path": str(folder / "qdrant"), "store.qdrant.collection": COLLECTION}
    return Written("default", "qdrant", at, [])


def test_of_several_vectors_one_is_chosen(tmp_path: Path) -> None:
    """The doctor proposes one that fits the embedder, and shows no secret; the setting chooses."""
    written = at_qdrant(tmp_path, count=2, sizes={"title": 8, "text": DIMENSION})
    verdict, detail = written.doctor()
    assert verdict == "wrong"
    assert "sk-1234" not in detail
    proposed = tomllib.loads(detail[detail.index("[store.") :])["store"]["qdrant"]
    assert proposed == {"fields": "default", "vector": "text"}
    assert written.doctor(**proposed)[0] == "ok"
    with written.open(vector="text") as index:
        assert index.retrieve("Ports are opened").hits[0].scores.dense == pytest.approx(1.0)


@pytest.mark.parametrize("count", [0, 2])
def test_another_dimension_is_an_error_with_both_numbers(count: int, tmp_path: Path) -> None:
    """The doctor and the first query report it, for an empty collection too."""
    written = at_qdrant(tmp_path, count=count, sizes={"text": 8})
    verdict, detail = written.doctor()
    assert verdict == "wrong"
    assert f"expected a vector of 8 components and got {DIMENSION}" in detail
    with written.open(fields="default") as index, pytest.raises(DimensionMismatchError, match=f"8 .*{DIMENSION}"):
        index.describe()


def test_an_empty_collection_is_in_order(tmp_path: Path) -> None:
    written = at_qdrant(tmp_path, count=0, sizes={"": DIMENSION})
    verdict, detail = written.doctor()
    assert verdict == "ok"
    assert "0 documents, 0 chunks" in detail
    with written.open(fields="default") as index:
        assert index.retrieve(QUERY).hits == ()
        assert list(index.documents()) == []


@pytest.fixture
def langchain_twice(request: pytest.FixtureRequest) -> Iterator[tuple[Written, dict[str, str]]]:
    """Yield the table of LangChain's two collections, and the collections' IDs by their names."""
    for module in NEEDS["langchain", "postgres"]:
        pytest.importorskip(module, reason="the group 'test-foreign' is not installed")
    import psycopg

    with new_database(request.getfixturevalue("postgres"), "langchain") as url:
        written = write_to_postgres("langchain", url)
        with psycopg.connect(url, autocommit=True) as connection:
            sql = (
                "INSERT INTO langchain_pg_collection (uuid, name) VALUES (gen_random_uuid(), 'a \"name') RETURNING uuid"
            )
            row = connection.execute(sql).fetchone()
            assert row is not None
            moved = "UPDATE langchain_pg_embedding SET collection_id = %s WHERE document LIKE 'Backups%%'"
            connection.execute(moved, row)
            found = connection.execute("SELECT name, uuid::text FROM langchain_pg_collection").fetchall()
        yield written, dict(found)


def test_one_of_several_collections_is_chosen(langchain_twice: tuple[Written, dict[str, str]]) -> None:
    """LangChain writes all collections to one table: the doctor lists them, and the setting chooses."""
    written, ids = langchain_twice
    _, detail = written.doctor(fields="langchain")
    proposed = tomllib.loads(detail[detail.index("[store.") :])["store"]["postgres"]
    assert proposed == {"rows": {"collection_id": ids['a "name']}}
    assert f'# or: rows = {{ collection_id = "{ids[COLLECTION]}" }}  # "{COLLECTION}"' in detail
    with written.open(fields="langchain", **proposed) as index:
        assert [hit.chunk.source for hit in index.retrieve(QUERY).hits] == ["manual.md"]
    assert "collection_id = " not in written.doctor(fields="langchain", **proposed)[1]


def test_a_document_of_llamaindex_is_read_by_its_index(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the nodes of the document are read, and none that names another one."""
    for module in NEEDS["llamaindex", "postgres"]:
        pytest.importorskip(module, reason="the group 'test-foreign' is not installed")
    from retrieval_core.adapters.stores.postgres.session import View

    plans: list[str] = []
    read = View.rows

    async def explained(self: View, statement: str, parameters: Any = None) -> list[Any]:
        if statement.startswith("SELECT t."):
            plans.append("\n".join(line for (line,) in await read(self, f"EXPLAIN {statement}", parameters)))
        return await read(self, statement, parameters)

    with new_database(request.getfixturevalue("postgres"), "llamaindex") as url:
        written = write_to_postgres("llamaindex", url)
        cheap = {"enable_seqscan": "off", "enable_indexscan": "off"}  # the table is small
        with written.open(fields="llamaindex", session=cheap) as index:
            monkeypatch.setattr(View, "rows", explained)
            fetched = index.sync.run(index.store.fetch(FetchRequest(ranges=(ChunkRange("manual", 0, 5),))))
    assert {chunk.document_id for chunk in fetched.chunks.values()} == {"manual"}
    assert "Bitmap Index Scan on docs_idx" in plans[-1]
