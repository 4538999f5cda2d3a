"""Damage by the vendors' own clients to indexes in LanceDB, Qdrant and Pinecone is reported by name and repaired."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import load_config, open_index
from retrieval_core.testing.fakes import FakeEmbedder
from support.pinecone_service import KEY, PineconeService
from support.wire_server import WireServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from retrieval_core import Index

pytestmark = pytest.mark.slow

DIMENSION = 32
QUERIES = ("moon distance", "light of the sun", "tides of the sea")
MOON, SUN = "docs/moon.md#1", "docs/sun.md#0"
TEXTS = {
    "moon.md": "# The moon\n\nIt goes round the earth.\n\n## Distance\n\nIts distance is 384,400 km.\n\n"
    "## Tides\n\nIt lifts the tides of the sea.\n",
    "sun.md": "# The sun\n\nIts light takes eight minutes.\n\n## Mass\n\nIt has a mass of 333,000 earths.\n",
}


class Place:
    """A folder with two files and their index in one of the stores."""

    def __init__(self, folder: Path, **overrides: Any) -> None:
        self.folder = folder
        self.overrides = {"chunking.min_tokens": 0, "cache.kind": "none", **overrides}
        (folder / "docs").mkdir()
        for name, text in TEXTS.items():
            (folder / "docs" / name).write_text(text, encoding="utf-8")
        with self.opened() as index:
            assert index.ingest(folder / "docs").documents == 2
            assert index.check_integrity().verdict == "clean"
            self.before = found(index)

    def opened(self) -> Index:
        """Open the index."""
        config = load_config(overrides=self.overrides)
        return open_index(config=config, embedder=FakeEmbedder(DIMENSION))

    def check(self, problem: str, chunk_id: str = MOON) -> None:
        """Check that the damage is told, by the report and for the chunk alone, and that a repair undoes it."""
        with self.opened() as index:
            told = {each.chunk_id: each.mismatch_details or "" for each in index.check_integrity().mismatches}
            assert problem in told[chunk_id]
            alone = index.validate(chunk_id)
            assert alone is None or problem in (alone.mismatch_details or "")
            assert index.check_integrity(repair=True).verdict == "clean"
            assert found(index) == self.before


def found(index: Index) -> list[Any]:
    """Return what the queries find."""
    results = [index.retrieve(query) for query in QUERIES]
    assert not any(result.degraded for result in results)
    return [
        [(hit.chunk.id, hit.chunk.text, hit.chunk.title, hit.chunk.source) for hit in each.hits] for each in results
    ]


@pytest.fixture
def lance(tmp_path: Path) -> Place:
    """Return an index in LanceDB."""
    pytest.importorskip("lancedb")
    return Place(tmp_path, **{"store.kind": "lancedb", "index": str(tmp_path / "lance")})


LANCE: dict[str, tuple[dict[str, Any], str]] = {
    "text": ({"text": "Nothing."}, "its text was changed"),
    "title": ({"title": "The sea"}, "its title was changed"),
    "metadata": ({"metadata": '{"a":1}'}, "its metadata was changed"),
    "section": ({"section_path": '["x"]'}, "its section was changed"),
    "page": ({"page_first": 7, "page_last": 7}, "its page was changed"),
    "vector": ({"vector": [1.0] + [0.0] * (DIMENSION - 1)}, "its vector was changed"),
    "no vector": ({"vector": None}, "its vector is missing"),
    "terms": ({"terms": "sea"}, "its postings were changed"),
    "no terms": ({"terms": None}, "its postings are missing"),
}


@pytest.mark.parametrize("name", LANCE)
@pytest.mark.parametrize("again", [False, True])
def test_lancedb(lance: Place, name: str, again: bool) -> None:
    """By ``--repair``, and by indexing again."""
    lancedb: Any = pytest.importorskip("lancedb")

    values, problem = LANCE[name]
    table = lancedb.connect(lance.folder / "lance").open_table("text_pages")
    table.update(where=f"record = 'chunk' AND id = '{MOON}'", values=values)
    if name in {"no vector", "no terms"}:
        with lance.opened() as index:
            reasons = "; ".join(entry.reason for entry in index.retrieve("moon distance").degraded)
            assert "retrieval verify --repair" in reasons
    if not again:
        lance.check(problem)
        return
    with lance.opened() as index:
        index.ingest(lance.folder / "docs")
        assert index.check_integrity().verdict == "clean"
        assert found(index) == lance.before


def test_lancedb_without_a_chunk(lance: Place) -> None:
    """The text that it had is in no chunk."""
    lancedb: Any = pytest.importorskip("lancedb")

    table = lancedb.connect(lance.folder / "lance").open_table("text_pages")
    table.delete(f"record = 'chunk' AND id = '{MOON}'")
    lance.check("no chunk holds the text")


def test_an_old_table_of_lancedb(lance: Place) -> None:
    """It says what cannot be compared, and has checksums of what is written next."""
    lancedb: Any = pytest.importorskip("lancedb")

    lancedb.connect(lance.folder / "lance").open_table("text_pages").drop_columns(["seal", "line_first", "line_last"])
    with lance.opened() as index:
        assert found(index) == lance.before
        report = index.check_integrity()
        assert (report.verdict, report.unsealed) == ("unverifiable", report.chunks)
        assert asyncio.run(index.store.find_damage([MOON.partition("#")[0]])).unsealed == 0
        (lance.folder / "docs/sun.md").write_text("# The sun\n\nIt is far.\n")
        index.ingest(lance.folder / "docs")
        report = index.check_integrity()
        assert (report.mismatches, 0 < report.unsealed < report.chunks) == ((), True)


@pytest.fixture
def qdrant(tmp_path: Path) -> Place:
    """Return an index in the local mode of Qdrant's client."""
    pytest.importorskip("qdrant_client")
    place = {"index": str(tmp_path / "index.db"), "store.qdrant.path": str(tmp_path / "qdrant")}
    return Place(tmp_path, **{"store.kind": "qdrant", **place})


def of_qdrant(change: Callable[[Any, Any], Any]) -> Callable[[Place], None]:
    """Return damage to the point of one chunk."""

    def damage(place: Place) -> None:
        qdrant_client: Any = pytest.importorskip("qdrant_client")

        client = qdrant_client.QdrantClient(path=str(place.folder / "qdrant"))
        (name,) = (each.name for each in client.get_collections().collections)
        points, _ = client.scroll(name, limit=100)
        change((client, name), next(each.id for each in points if each.payload["id"] == MOON))
        client.close()

    return damage


def _vectors(vector: list[float]) -> Callable[[Any, Any], Any]:
    def change(at: Any, point: Any) -> None:
        qdrant_client: Any = pytest.importorskip("qdrant_client")

        at[0].update_vectors(at[1], [qdrant_client.models.PointVectors(id=point, vector={"dense": vector})])

    return change


QDRANT: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "text": (lambda at, point: at[0].set_payload(at[1], {"text": "Nothing."}, [point]), "its text was changed"),
    "title": (lambda at, point: at[0].set_payload(at[1], {"title": "x"}, [point]), "its title was changed"),
    "metadata": (lambda at, point: at[0].set_payload(at[1], {"metadata": '{"a":1}'}, [point]), "its metadata was"),
    "source": (lambda at, point: at[0].delete_payload(at[1], ["source"], [point]), "its source was changed"),
    "vector": (_vectors([1.0] + [0.0] * (DIMENSION - 1)), "its vector was changed"),
    "no vector": (lambda at, point: at[0].delete_vectors(at[1], ["dense"], [point]), "its vector is missing"),
    "no words": (lambda at, point: at[0].delete_vectors(at[1], ["words"], [point]), "its postings are missing"),
    "deleted": (lambda at, point: at[0].delete(at[1], [point]), "no chunk holds the text"),
}


@pytest.mark.parametrize("name", QDRANT)
def test_qdrant(qdrant: Place, name: str) -> None:
    """The point is written again from its file."""
    change, problem = QDRANT[name]
    of_qdrant(change)(qdrant)
    qdrant.check(problem)


def test_an_old_collection_of_qdrant(qdrant: Place) -> None:
    """Chunks without checksums are counted; records of documents without them aren't."""

    def forget_seal(at: Any, _: Any) -> None:
        for point in at[0].scroll(at[1], limit=100)[0]:
            own = next((name for name in point.payload if "seal" in str(point.payload[name])), None)
            if own is not None:
                kept = {key: value for key, value in point.payload[own].items() if key != "seal"}
                at[0].overwrite_payload(at[1], point.payload | {own: kept}, [point.id])

    of_qdrant(forget_seal)(qdrant)
    with qdrant.opened() as index:
        report = index.check_integrity()
        assert (report.verdict, report.unsealed) == ("unverifiable", report.chunks)


@pytest.fixture
def pinecone(tmp_path: Path) -> Iterator[tuple[Place, Any]]:
    """Return an index at Pinecone, and Pinecone's client for it."""
    sdk: Any = pytest.importorskip("pinecone")
    with WireServer(PineconeService(DIMENSION, "dotproduct")) as server:
        settings = {"store.pinecone.host": server.url, "store.pinecone.api_key": KEY, "store.pinecone.sparse": True}
        place = Place(tmp_path, **{"store.kind": "pinecone", "index": str(tmp_path / "index.db"), **settings})
        with sdk.Pinecone(api_key=KEY) as client, client.Index(host=server.url) as index:
            yield place, index


PINECONE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "text": (lambda record: record.metadata.update(_rc_text="Nothing."), "text"),
    "title": (
        lambda record: record.metadata.update(
            {
                key: value.replace('"title":"The moon"', '"title":"x"')
                for key, value in record.metadata.items()
                if isinstance(value, str)
            }
        ),
        "its title was changed",
    ),
    "vector": (
        lambda record: record.values.__setitem__(slice(None), [1.0] + [0.0] * (DIMENSION - 1)),
        "its vector was",
    ),
}


@pytest.mark.parametrize("name", PINECONE)
def test_pinecone(pinecone: tuple[Place, Any], name: str) -> None:
    """The record is written again from its file."""
    place, client = pinecone
    change, problem = PINECONE[name]
    record = client.fetch(ids=[MOON], namespace="").vectors[MOON]
    change(record)
    written = {"id": MOON, "values": record.values, "metadata": record.metadata}
    if record.sparse_values is not None:
        kept = record.sparse_values
        written["sparse_values"] = {"indices": kept.indices, "values": kept.values}
    client.upsert(vectors=[written], namespace="")
    place.check(problem)


def test_pinecone_without_a_record(pinecone: tuple[Place, Any]) -> None:
    """The text that it had is in no record."""
    place, client = pinecone
    client.delete(ids=[MOON], namespace="")
    place.check("no chunk holds the text")
