"""Vector stores of LlamaIndex as their makers' quickstarts set them up, and nodes for them; nothing of this library.

Clients are the vendors' own: in memory, in a folder, or against the few endpoints of Pinecone that are imitated here.
"""

# LlamaIndex's and the vendors' types are unknown in parts, and JSON is.
# pyright: reportCallIssue=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import json
import re
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import parse_qs, urlsplit
from zlib import crc32

import numpy as np
import pytest
from llama_index.core import Document
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import (
    BaseNode,
    ImageNode,
    IndexNode,
    MediaResource,
    Node,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
    TransformComponent,
)
from llama_index.core.vector_stores import SimpleVectorStore

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from llama_index.core.vector_stores.types import BasePydanticVectorStore

DIMENSION = 48


class Hashed(BaseEmbedding):
    """Gives each text a vector by its words; no two texts are equally similar, and lengths vary as models' do."""

    model_name: str = "hashed"

    def vector(self, text: str) -> list[float]:
        text = text.strip()  # as models do
        total = np.zeros(DIMENSION)
        for word in [*re.findall(r"\w+", text.lower()), text]:
            seed = np.random.default_rng(crc32(word.encode()))
            total += seed.standard_normal(DIMENSION) * (0.2 if word is text else 1.0)
        length = 0.5 + 1.5 * crc32(text[::-1].encode()) / 2**32
        return (total / np.linalg.norm(total) * length).astype(np.float32).tolist()

    def _get_query_embedding(self, query: str) -> list[float]:
        return self.vector(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self.vector(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self.vector(text)


# --- nodes -----------------------------------------------------------------------------------------------------------

TEXTS: dict[str, str] = {
    "notes/moon.md": (
        "The moon circles the earth in 27 days. Its mean distance is 384,400 km. "
        "Apollo 11 brought home 21.5 kg of rocks."
    ),
    "notes/sun (2024).md": (
        "The sun is a star of type G2V. Its light needs eight minutes to reach us. The probe XQ-77 looks at its corona."
    ),
    "faq#2": "How do I return a lamp? Refunds take five working days. Batteries are not covered by the warranty.",
    "gedichte/" + "l" * 180: (
        "Über allen Gipfeln ist Ruh, sagt der Dichter. Größe und Maß sind Wörter mit ß. Der Mond heißt hier Trabant."
    ),
    "poems/east.txt": "低头思故乡，举头望明月。 العلم نور والجهل ظلام. 🚀 Мороз и солнце; день чудесный.",  # noqa: RUF001
}
FACTS: dict[str, dict[str, Any]] = {
    "notes/moon.md": {"kind": "moon", "year": 1969, "rating": 4.5, "lang": "en"},
    "notes/sun (2024).md": {"kind": "star", "year": 2024, "rating": 3.0, "lang": "en"},
    "faq#2": {"kind": "faq", "year": 2021, "rating": 2.25, "lang": "en"},
    "gedichte/" + "l" * 180: {"kind": "Gedicht", "year": 1780, "rating": 5.0, "lang": "de"},
    "poems/east.txt": {"kind": "诗", "year": 726, "rating": 4.75, "lang": "zh"},
}
MOON = "notes/moon.md"
FAQ = "faq#2"


@dataclass(frozen=True)
class Limits:
    """What a store takes.

    Attributes:
        ids: ``uuid`` only, ``ascii`` only, or ``any``.
        lists: Whether metadata may hold lists of text.
        nested: Whether metadata may hold objects.
        none: Whether metadata may hold ``None``.
    """

    ids: Literal["uuid", "ascii", "any"] = "any"
    lists: bool = False
    nested: bool = False
    none: bool = True


def sentences(text: str) -> list[str]:
    return re.findall(r"[^.?。]+(?:[.?。]\s*|$)", text) or [text]


def documents() -> list[Document]:
    """Return documents as a reader makes them, with templates and excluded keys."""
    return [
        Document(
            id_=name,
            text=text,
            metadata={"file_name": name.rpartition("/")[2], **FACTS[name]},
            excluded_llm_metadata_keys=["rating"],
            excluded_embed_metadata_keys=["file_name", "rating"],
            metadata_separator=" | ",
            metadata_template="{key} = {value}",
            text_template="<{metadata_str}>\n{content}",
        )
        for name, text in TEXTS.items()
    ]


def name_of(label: str, limits: Limits) -> str:
    """Return an id that the store takes: as long and as odd as it may be."""
    if limits.ids == "uuid":
        return str(uuid.uuid5(uuid.NAMESPACE_OID, label))
    return f"{label} {'x' * 200}" if limits.ids == "ascii" else f"{label} — № {'ü' * 200}"


def split(given: Iterable[Document], limits: Limits) -> list[BaseNode]:
    """Return nodes as LlamaIndex's splitter makes them."""
    splitter = SentenceSplitter(
        chunk_size=30,
        chunk_overlap=0,
        tokenizer=str.split,
        chunking_tokenizer_fn=sentences,
        id_func=lambda number, document: name_of(f"{document.node_id[:20]}-{number}", limits),
    )
    return list(splitter.get_nodes_from_documents(list(given)))


class Splits(TransformComponent):
    """Splits documents in another process too: LlamaIndex's own splitter fetches a tokenizer when it is unpickled."""

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> Sequence[BaseNode]:
        return split(cast("Sequence[Document]", nodes), Limits())


def nodes(limits: Limits) -> list[BaseNode]:
    """Return nodes of every kind: split ones, with and without metadata, twice the same, images, references."""
    made = split(documents(), limits)
    assert len(made) > len(TEXTS)

    def text(label: str, content: str, **settings: Any) -> TextNode:
        return TextNode(id_=name_of(label, limits), text=content, **settings)

    made += [text(f"twin {n}", "Lamps are shipped on Mondays.", metadata={"kind": "faq", "year": 2021}) for n in "ab"]
    made.append(text("bare", "A text without any metadata, and of no document."))
    made.append(
        text(
            "hidden",
            "Nobody is shown where this comes from.",
            metadata={"kind": "secret", "year": 1, "file_name": "s.txt"},
            excluded_llm_metadata_keys=["kind", "year", "file_name"],
            excluded_embed_metadata_keys=["kind", "year", "file_name"],
            text_template="{content} // {metadata_str}",
            start_char_idx=7,
            end_char_idx=45,
            mimetype="text/markdown",
        )
    )
    if limits.none:
        made.append(text("unknown", "The author of this line is not known.", metadata={"kind": "line", "author": None}))
    if limits.lists:
        for label, tags in (("old", ["rocks", "old"]), ("new", ["new"]), ("both", ["old", "new"])):
            made.append(text(f"tags {label}", f"Tagged as {label}.", metadata={"kind": "tagged", "tags": tags}))
    if limits.nested:
        deep = {"kind": "nested", "author": {"name": "Zoë", "born": 1980, "prizes": [{"year": 2001}]}, "empty": {}}
        made.append(text("nested", "Its metadata has objects in lists in objects.", metadata=deep))
    image = ImageNode(
        id_=name_of("image", limits),
        text="a picture of comet Halley",
        image_url="https://pictures.test/halley.png",
        metadata={"kind": "image", "year": 1986},
    )
    reference = IndexNode(
        id_=name_of("reference", limits), text="everything about volcanoes", index_id="volcanoes", metadata={"year": 79}
    )
    made += [image, reference]
    whole = Document(id_=name_of("whole", limits), text="A short document that nobody split.", metadata={"year": 2000})
    made.append(whole)
    made.append(
        Node(
            id_=name_of("media", limits),
            text_resource=MediaResource(text="A node with a text resource about tides."),
            metadata={"kind": "media", "year": 2023},
        )
    )
    parent = RelatedNodeInfo(node_id=name_of("parent", limits), metadata={"level": 1})
    child = text("child", "The crater Tycho is 85 km wide.", metadata={"kind": "moon", "year": 1969})
    child.relationships[NodeRelationship.PARENT] = parent
    child.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=MOON)
    made.append(child)
    return made


# --- stores ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A vector store of LlamaIndex with its client.

    Attributes:
        name: As the page shows it.
        opened: Opens an empty one in a folder, with a metric.
        limits: What it takes.
        metrics: Names that ``opened`` knows; the first one is that of the maker's quickstart.
        cosine: Which of them LlamaIndex's similarities are cosines for.
        is_async_only: Whether LlamaIndex's synchronous methods fail with this client.
        has_async: Whether LlamaIndex's asynchronous methods work.
    """

    name: str
    opened: Callable[[Path, str], AbstractContextManager[BasePydanticVectorStore]]
    limits: Limits
    metrics: tuple[str, ...] = ("cosine",)
    cosine: str | None = "cosine"
    is_async_only: bool = False
    has_async: bool = True

    @property
    def keeps_text(self) -> bool:
        return self.name != "SimpleVectorStore"

    def __repr__(self) -> str:
        return self.name


@contextmanager
def _simple(folder: Path, metric: str) -> Generator[BasePydanticVectorStore]:
    yield SimpleVectorStore()


def _qdrant_options(metric: str) -> dict[str, Any]:
    models: Any = pytest.importorskip("qdrant_client.models")
    distance = {"cosine": "COSINE", "dot": "DOT", "euclid": "EUCLID"}[metric]
    # Without it LlamaIndex makes a collection that compares by cosine.
    return (
        {}
        if metric == "cosine"
        else {"dense_config": models.VectorParams(size=DIMENSION, distance=models.Distance[distance])}
    )


@contextmanager
def _qdrant(folder: Path, metric: str) -> Generator[BasePydanticVectorStore]:
    clients: Any = pytest.importorskip("qdrant_client")
    stores: Any = pytest.importorskip("llama_index.vector_stores.qdrant")
    client = clients.QdrantClient(":memory:")
    yield stores.QdrantVectorStore("nodes", client=client, **_qdrant_options(metric))
    client.close()


@contextmanager
def _qdrant_async(folder: Path, metric: str) -> Generator[BasePydanticVectorStore]:
    clients: Any = pytest.importorskip("qdrant_client")
    stores: Any = pytest.importorskip("llama_index.vector_stores.qdrant")
    client = clients.AsyncQdrantClient(":memory:")
    yield stores.QdrantVectorStore("nodes", aclient=client, **_qdrant_options(metric))


@contextmanager
def _chroma(folder: Path, metric: str) -> Generator[BasePydanticVectorStore]:
    chromadb: Any = pytest.importorskip("chromadb")
    stores: Any = pytest.importorskip("llama_index.vector_stores.chroma")
    client = chromadb.EphemeralClient(chromadb.config.Settings(anonymized_telemetry=False))
    name = f"nodes-{uuid.uuid4()}"
    collection = client.create_collection(name, metadata=None if metric == "l2" else {"hnsw:space": metric})
    yield stores.ChromaVectorStore(chroma_collection=collection)
    client.delete_collection(name)


@contextmanager
def _lancedb(folder: Path, metric: str) -> Generator[BasePydanticVectorStore]:
    stores: Any = pytest.importorskip("llama_index.vector_stores.lancedb")
    yield stores.LanceDBVectorStore(uri=str(folder / "lance"), table_name="nodes")


@contextmanager
def _pinecone(folder: Path, metric: str) -> Generator[BasePydanticVectorStore]:
    sdk: Any = pytest.importorskip("pinecone")
    stores: Any = pytest.importorskip("llama_index.vector_stores.pinecone")
    with FakePinecone(metric) as host:
        client = sdk.Pinecone(api_key="key").Index(host=host)
        yield stores.PineconeVectorStore(pinecone_index=client, insert_kwargs={"show_progress": False})
        client.close()


FLAT = Limits()
SIMPLE = Kind("SimpleVectorStore", _simple, Limits(lists=True, nested=True))
QDRANT = Kind(
    "Qdrant",
    _qdrant,
    Limits("uuid", lists=True, nested=True),
    metrics=("cosine", "dot", "euclid"),
    has_async=False,
)
QDRANT_ASYNC = Kind(
    "Qdrant, async client",
    _qdrant_async,
    Limits("uuid", lists=True, nested=True),
    metrics=("cosine", "dot", "euclid"),
    is_async_only=True,
)
CHROMA = Kind("Chroma", _chroma, FLAT, metrics=("l2", "cosine", "ip"), cosine=None)
LANCEDB = Kind("LanceDB", _lancedb, FLAT, metrics=("l2",), cosine=None)
PINECONE = Kind(
    "Pinecone",
    _pinecone,
    Limits("ascii", lists=True, none=False),
    metrics=("cosine", "dotproduct", "euclidean"),
)
KINDS = (SIMPLE, QDRANT, QDRANT_ASYNC, CHROMA, LANCEDB, PINECONE)


# --- Pinecone's endpoints, as its API reference describes them -------------------------------------------------------


@dataclass
class FakePinecone:
    """Serves the endpoints of one index that LlamaIndex calls, at a free port of this machine."""

    metric: str
    records: dict[str, dict[str, Any]] = field(default_factory=dict[str, "dict[str, Any]"])

    def __enter__(self) -> str:
        answer = self._answer

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1  # head and body leave together

            def do_GET(self) -> None:
                self._reply({})

            def do_POST(self) -> None:
                self._reply(json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"{}"))

            def _reply(self, body: dict[str, Any]) -> None:
                parts = urlsplit(self.path)
                try:
                    status, reply = 200, answer(parts.path, body, parse_qs(parts.query))
                except ValueError as error:
                    status, reply = 400, {"code": 3, "message": str(error), "details": []}
                data = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        return f"http://127.0.0.1:{self._server.server_port}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, path: str, body: dict[str, Any], query: dict[str, list[str]]) -> dict[str, Any]:
        if path == "/vectors/upsert":
            for vector in body["vectors"]:
                self._check(vector)
            self.records |= {vector["id"]: vector for vector in body["vectors"]}
            return {"upsertedCount": len(body["vectors"])}
        if path == "/query":
            return {"matches": self._query(body), "namespace": "", "usage": {"readUnits": 1}}
        if path == "/vectors/delete":
            names = body.get("ids") or [
                name for name, item in self.records.items() if _passes(body["filter"], item.get("metadata", {}))
            ]
            for name in names:
                self.records.pop(name, None)
            return {}
        if path == "/describe_index_stats":
            count = len(self.records)
            return {"namespaces": {"": {"vectorCount": count}}, "dimension": DIMENSION, "totalVectorCount": count}
        raise ValueError(f"no such endpoint: {path} {query}")

    def _check(self, vector: dict[str, Any]) -> None:
        name = vector["id"]
        if not name.isascii() or not 1 <= len(name) <= 512:
            raise ValueError(f"Vector ID must be ASCII, of 1 to 512 characters, got {name}")
        for key, value in vector.get("metadata", {}).items():
            is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
            if not (is_list or isinstance(value, (str, int, float, bool))):
                raise ValueError(f"Metadata value must be a string, number, boolean or list of strings, got {key}")

    def _query(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        if not 1 <= body["topK"] <= 10_000:
            raise ValueError("topK must be between 1 and 10000")
        asked = np.array(body["vector"], dtype=np.float64)
        if not asked.any():
            raise ValueError("Dense vectors must contain at least one non-zero value")
        scored: list[tuple[float, str, dict[str, Any]]] = []
        for name, item in self.records.items():
            if _passes(body.get("filter") or {}, item.get("metadata", {})):
                scored.append((self._score(asked, np.array(item["values"])), name, item))
        scored.sort(key=lambda entry: entry[0], reverse=self.metric != "euclidean")
        return [
            {
                "id": name,
                "score": score,
                "values": item["values"] if body.get("includeValues") else [],
                **({"metadata": item.get("metadata", {})} if body.get("includeMetadata") else {}),
            }
            for score, name, item in scored[: body["topK"]]
        ]

    def _score(self, asked: np.ndarray, kept: np.ndarray) -> float:
        if self.metric == "euclidean":
            return float(np.square(asked - kept).sum())
        product = float(asked @ kept)
        if self.metric == "dotproduct":
            return product
        return product / float(np.linalg.norm(asked) * np.linalg.norm(kept))


def _passes(condition: dict[str, Any], metadata: dict[str, Any]) -> bool:
    """Evaluate Pinecone's filter language; a field that is absent matches nothing."""
    for key, value in condition.items():
        if key in {"$and", "$or"}:
            parts = [_passes(part, metadata) for part in value]
            if not (all(parts) if key == "$and" else any(parts)):
                return False
            continue
        tests = value if isinstance(value, dict) else {"$eq": value}
        if key not in metadata or not all(_test(metadata[key], name, than) for name, than in tests.items()):
            return False
    return True


_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda held, than: than in held,
    "$ne": lambda held, than: than not in held,
    "$in": lambda held, than: any(item in than for item in held),
    "$nin": lambda held, than: not any(item in than for item in held),
    "$gt": lambda held, than: _is_number(held[0], than) and held[0] > than,
    "$gte": lambda held, than: _is_number(held[0], than) and held[0] >= than,
    "$lt": lambda held, than: _is_number(held[0], than) and held[0] < than,
    "$lte": lambda held, than: _is_number(held[0], than) and held[0] <= than,
}


def _is_number(*values: Any) -> bool:
    return all(isinstance(value, (int, float)) for value in values)


def _test(value: Any, name: str, than: Any) -> bool:
    if name not in _TESTS:
        raise ValueError(f"unknown operator {name}")
    return _TESTS[name](value if isinstance(value, list) else [value], than)
