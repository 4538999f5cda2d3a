"""Collections of other programs at Qdrant and Pinecone, from the doctor's lines to a suite, on the command line."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("qdrant_client", reason="the extra 'qdrant' is not installed")
pytest.importorskip("pinecone", reason="the extra 'pinecone' is not installed")

from click.testing import CliRunner
from pinecone import Pinecone
from qdrant_client import QdrantClient, models

from support import foreign_writers
from support.command_line import main
from support.foreign_writers import COLLECTION, DIMENSION, embed
from support.pinecone_service import KEY, PineconeService
from support.wire_server import WireServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")

NEEDS = {
    ("specification", "qdrant"): (),
    ("specification", "pinecone"): (),
    ("langchain", "qdrant"): ("langchain_qdrant", "langchain_text_splitters"),
    ("langchain", "pinecone"): ("langchain_text_splitters",),
    ("llamaindex", "qdrant"): ("llama_index.vector_stores.qdrant",),
    ("llamaindex", "pinecone"): ("llama_index.vector_stores.pinecone",),
    ("haystack", "qdrant"): ("haystack_integrations.document_stores.qdrant",),
    ("haystack", "pinecone"): ("haystack_integrations.document_stores.pinecone",),
}
QUERY = "Which rule refused a packet?"
QUOTE = "Logs say which rule refused a packet."
GUIDE = "https://example.com/guide"
TEXTS = (
    ("Ports are opened with the firewall command.", GUIDE, 0),
    (QUOTE, GUIDE, 1),
    ("Größe und Straße: Ρετρίβαλ, 日本語.", None, None),  # a record without a document ID and a position
)


def points() -> list[dict[str, Any]]:
    """Return payloads of the specification, which leave out what they lack."""
    made = [
        {"content": text, "source_url": url, "chunk_index": position, "embedding_model": "embed-v3", "source": url}
        for text, url, position in TEXTS
    ]
    return [{name: value for name, value in each.items() if value is not None} for each in made]


def write(program: str, kind: str, folder: Path, url: str) -> None:
    """Let a program write its collection."""
    if program != "specification":
        writer = getattr(foreign_writers, f"{program}_{kind}")
        if kind == "pinecone":
            writer(url, KEY)
        elif program == "haystack":
            writer(str(folder / "qdrant"))
        else:
            client = QdrantClient(path=str(folder / "qdrant"))
            writer(client)
            client.close()
        return
    vectors = embed([text for text, _, _ in TEXTS])
    if kind == "pinecone":
        index = Pinecone(api_key=KEY).Index(host=url)
        records = [
            {"id": f"r{n}", "values": vector, "metadata": point}
            for n, (vector, point) in enumerate(zip(vectors, points(), strict=True))
        ]
        index.upsert(vectors=records, show_progress=False)
        index.close()
        return
    client = QdrantClient(path=str(folder / "qdrant"))
    client.create_collection(COLLECTION, models.VectorParams(size=DIMENSION, distance=models.Distance.COSINE))
    made = [
        models.PointStruct(id=n, vector=vector, payload=point)
        for n, (vector, point) in enumerate(zip(vectors, points(), strict=True))
    ]
    client.upsert(COLLECTION, made)
    client.close()


class CommandLine:
    """The command ``retrieval`` with the configuration of one collection."""

    def __init__(self, folder: Path, kind: str, url: str) -> None:
        place = f'path = "{folder / "qdrant"}"\ncollection = "{COLLECTION}"' if kind == "qdrant" else f'host = "{url}"'
        self.file = folder / "settings.toml"
        self.file.write_text(
            '[embedder]\nkind = "retrieval_core.testing.fakes:FakeEmbedder"\n'
            f'[embedder.custom]\ndimension = {DIMENSION}\n[cache]\nkind = "none"\n'
            f'[store]\nkind = "{kind}"\n[store.{kind}]\n{place}\n',
            encoding="utf-8",
        )
        self._kind = kind

    def paste(self, advice: str) -> None:
        """Put the lines that the doctor proposes into the configuration."""
        if (heading := f"[store.{self._kind}]\n") in advice:
            lines = [line for line in advice.partition(heading)[2].splitlines() if " = " in line]
            with self.file.open("a", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Run a command, and return the exit code and both streams."""
        done = CliRunner(env={"PINECONE_API_KEY": KEY}).invoke(main, [*arguments, "--config", str(self.file)])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, done.stdout, done.stderr

    def read(self, *arguments: str) -> Any:
        """Run a command that has to succeed without a warning, and return its JSON."""
        code, out, errors = self.run(*arguments, "--json")
        assert (code, errors) == (0, ""), out + errors
        return json.loads(out)


@pytest.fixture(scope="module", params=NEEDS, ids="-".join)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """Yield the command line with the lines that the doctor proposed."""
    program, kind = request.param
    for module in NEEDS[request.param]:
        pytest.importorskip(module, reason="the group 'test-foreign' or 'test-llamaindex' is not installed")
    folder = tmp_path_factory.mktemp("collection")
    with WireServer(PineconeService(DIMENSION)) as server:
        with warnings.catch_warnings(action="ignore"):  # theirs
            write(program, kind, folder, server.url)
        command = CommandLine(folder, kind, server.url)
        _, advice, _ = command.run("doctor")
        command.paste(advice)
        yield command


def test_search_filter_fetch_suite_and_verify(opened: CommandLine, tmp_path: Path) -> None:
    """With nothing but the pasted lines, every command finds the chunk and its document."""
    first = opened.read("search", QUERY, "--top-k", "1")["hits"][0]
    assert first["text"].strip().endswith(QUOTE)
    document = first["document_id"]
    assert document != first["id"]
    condition = json.dumps({"document_id": document})
    hits = opened.read("search", QUERY, "--top-k", "20", "--filter", condition)["hits"]
    assert {hit["document_id"] for hit in hits} == {document}
    # A filter that nothing passes is no error.
    assert opened.read("search", QUERY, "--filter", '{"source": "nowhere"}')["hits"] == []
    code, out, _ = opened.run("fetch", first["id"])
    assert (code, QUOTE in out) == (0, True)
    code, out, _ = opened.run("verify", first["id"], "--quote", QUOTE)
    assert code == 0, out
    code, out, _ = opened.run("grep", "refused")
    assert (code, QUOTE in out) == (0, True)
    suite = {
        "name": "ports",
        "cases": [{"name": "refused", "query": QUERY, "expect": {"documents": [document], "phrases": [QUOTE]}}],
    }
    file = tmp_path / "ports.retrieval.json"
    file.write_text(json.dumps(suite), encoding="utf-8")
    code, out, errors = opened.run("suite", "run", str(file))
    assert code == 0, out + errors


def test_nothing_found_is_no_error_before_a_layout_is_named(tmp_path: Path) -> None:
    """Without the doctor's lines, the first search only learns that the collection has no keyword search."""
    write("specification", "qdrant", tmp_path, "")
    command = CommandLine(tmp_path, "qdrant", "")
    code, out, errors = command.run("search", QUERY, "--filter", '{"source": "nowhere"}', "--json")
    assert (code, json.loads(out)["hits"]) == (0, []), errors


def test_every_chunk_is_in_a_listed_document(opened: CommandLine) -> None:
    """Also a record that names no document: it is one by itself."""
    info, listed = opened.read("info"), opened.read("list")
    assert sum(each["chunks"] for each in listed["documents"]) == info["chunks"]
    for each in listed["documents"]:
        code, out, errors = opened.run("fetch", each["id"])
        assert (code, bool(out.strip())) == (0, True), errors


def test_a_copy_is_refused_since_its_embedder_is_unknown(opened: CommandLine, tmp_path: Path) -> None:
    """A chunk's field may name a model, by another name than the configured embedder has."""
    done = CliRunner(env={"PINECONE_API_KEY": KEY}).invoke(
        main, ["copy", str(opened.file), str(tmp_path / "copy" / "index.db")]
    )
    assert (done.exit_code, "another program filled it" in done.stderr) == (1, True)
