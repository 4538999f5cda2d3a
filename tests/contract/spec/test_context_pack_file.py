"""The fifth specification file: its example runs, its declarations hold, and its steps come in its order."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import open_index
from retrieval_core.compat import context_pack as module
from retrieval_core.compat.context_pack import (
    DefaultContextAssembler,
    OpenAIReranker,
    RerankConfig,
    RetrievalConfig,
    expand_neighbors,
    format_citation,
    retrieve,
)
from retrieval_core.config import load_config
from retrieval_core.testing.fakes_llm import FakeLLM
from retrieval_core.types import Document
from support.context_packs import TRACE_KEYS, document, judge, roles, words
from support.declarations import declared, differences

if TYPE_CHECKING:
    from pathlib import Path

DECLARED = declared("""
from dataclasses import dataclass

@dataclass
class RerankConfig:
    model: str = "gpt-4o"
    max_candidates_to_rerank: int = 50
    return_top_n: int = 15
    max_text_chars_per_candidate: int = 1200
    strict_json_output: bool = True

@dataclass
class RetrievalConfig:
    neighbor_same_page: int = 1
    neighbor_cross_page: int = 2
    include_parents: bool = True
    final_max_tokens: int = 12000
    min_primary_hits_to_keep: int = 3

@dataclass
class RerankResult:
    chunk_id: str
    relevance_score: float
    answerability: bool
    key_evidence: str

class OpenAIReranker:
    def rerank(self, query, candidates): ...

class DefaultContextAssembler:
    def assemble(self, query, reranked, cfg, doc_id, candidate_metadata, all_chunks): ...
""")
EXAMPLE = """
from retrieval_core.compat.context_pack import RetrievalConfig, retrieve

config = RetrievalConfig.from_env()

result = retrieve(
    "What is the main topic?",
    filters={"doc_id": "doc_1"},
    cfg=config,
    all_chunks=[],
    llm_config=None
)

print(f"Retrieved {len(result.selected_chunks)} chunks")
print(f"Citations: {result.citations}")
print(f"Context pack: {result.context_pack}")
"""
"""The specification's, as it stands there but for the import."""


@pytest.mark.parametrize("name", DECLARED)
def test_what_the_file_declares_is_there(name: str) -> None:
    """Every class has the fields, arguments and defaults that the file gives it."""
    assert differences(DECLARED[name], module) == []


@pytest.mark.skipif(
    find_spec("onnxruntime") is None, reason="the local embedder counts: pip install 'retrieval-core[local]'"
)
def test_the_example_of_the_specification(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it stands there but for the import, it asks the index of the current folder."""
    config = load_config(overrides={"embedder.kind": "none", "search.mode": "lexical"})
    with open_index(tmp_path / ".retrieval/index.db", config=config) as index:
        text = "# Topic\n\nThe main topic is copper.\n\n# Aside\n\nThe harbour is another topic."
        index.add_documents([Document(name, text, name, f"hash of {name}") for name in ("doc_1", "doc_2")])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RETRIEVAL_EMBEDDER__KIND", "none")
    monkeypatch.setenv("RETRIEVAL_SEARCH__MODE", "lexical")
    monkeypatch.setenv("FINAL_MAX_TOKENS", "200")

    names: dict[str, Any] = {}
    exec(EXAMPLE, names)

    result = names["result"]
    assert result.max_tokens == 200
    assert result.degraded == ()
    shown = capsys.readouterr().out
    assert "Retrieved 1 chunks" in shown
    assert "Doc: doc_1" in shown
    assert "The main topic is copper." in shown


def test_rerank_then_assemble() -> None:
    """The reranker's results, best first, become primaries with their parents, then neighbours, within the budget."""
    chunks = document()
    cfg = RetrievalConfig(include_parents=False, rerank=RerankConfig(return_top_n=2))
    with OpenAIReranker(cfg.rerank, FakeLLM(judge({"harbour": 95, "copper": 70, "number": 40}))) as reranker:
        reranked = reranker.rerank("which one", chunks[:8])
    assert [result.relevance_score for result in reranked] == sorted(
        (result.relevance_score for result in reranked), reverse=True
    )
    assert (reranked[0].chunk_id, reranked[0].answerability, reranked[0].key_evidence) == ("doc_1#7", True, "harbour")
    pack = DefaultContextAssembler(words).assemble("which one", reranked, cfg, "doc_1", {}, chunks)
    assert roles(pack)[:2] == [("doc_1#7", "primary"), ("doc_1#2", "primary")]
    order = ["primary", "sibling", "cross_page"]
    assert [role for _, role in roles(pack)] == sorted((role for _, role in roles(pack)), key=order.index)
    assert pack.trace.keys() == TRACE_KEYS
    assert words(pack.context_pack) == pack.trace["final_token_count"]


def test_retrieve_over_a_list() -> None:
    """The main function does the same for a list of chunks, in one call."""
    llm = FakeLLM(judge({"harbour": 95}))
    pack = retrieve("harbour", {"doc_id": "doc_1"}, RetrievalConfig(), document(), llm, token_counter=words)
    assert pack.query == "harbour"
    assert str(pack.selected_chunks[0]["text"]) in pack.context_pack
    assert pack.citations[0].startswith("Doc: doc_1 | Page: 4 | Section: ")


def test_expand_neighbors_and_format_citation() -> None:
    """The original chunk is among its neighbours; a citation has the file's format."""
    chunks = document()
    assert chunks[3] in expand_neighbors(chunks[3], chunks, RetrievalConfig())
    assert format_citation(chunks[3]) == "Doc: doc_1 | Page: 2 | Section: Part > 0"
