"""The context pack of the postprocessor and of the core."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.core.schema import MetadataMode, NodeWithScore

from llama_index.postprocessor.retrieval_core import ContextPackPostprocessor
from llama_index.retrievers.retrieval_core import RetrievalCoreRetriever
from retrieval_core import ContextConfig, load_config, open_index
from retrieval_core.ports import TokenCounter, as_plugin
from retrieval_core.testing.fakes import FakeEmbedder
from support.llamaindex_models import both

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retrieval_core import Index
QUESTION = "how old are the rocks of the moon"
PARTS = {
    "moon.md": {"Distance": "far away", "Rocks": "old grey rocks", "Air": "no air at all"},
    "sun.md": {"Heat": "very hot", "Light": "bright light"},
}


def words(text: str) -> int:
    return len(text.split())


def shown(item: NodeWithScore) -> str:
    return item.node.get_content(metadata_mode=MetadataMode.LLM)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    folder = tmp_path_factory.mktemp("pack")
    for name, parts in PARTS.items():
        lines = [f"# {name[:-3].title()}", ""]
        for heading, fact in parts.items():
            sentences = [f"Sentence {number} about {heading} says {fact}." for number in range(30)]
            lines += [f"## {heading}", "", " ".join(sentences[:15]), "", " ".join(sentences[15:]), ""]
        (folder / name).write_text("\n".join(lines))
    settings_of_index = load_config(overrides={"chunking.max_tokens": 120, "chunking.min_tokens": 16})
    with open_index(folder / "index.db", embedder=FakeEmbedder(), config=settings_of_index) as opened:
        opened.ingest(folder)
        yield opened


@pytest.mark.parametrize(
    "settings_of_pack",
    [
        ContextConfig(),
        ContextConfig(window=1),
        ContextConfig(include_parents=False, neighbor_same_page=0, neighbor_cross_page=0),
        ContextConfig(template="<{number} {role}>{text}</{citation}>"),
    ],
)
@pytest.mark.parametrize("budget", [60, 400, 12_000])
def test_what_models_see_is_the_cores_pack(index: Index, settings_of_pack: ContextConfig, budget: int) -> None:
    """To the letter, for the same hits, settings and budget."""
    from retrieval_core.pipeline.context import make_context
    from retrieval_core.run.runner import Run
    from retrieval_core.run.threads import ThreadPool

    nodes = RetrievalCoreRetriever(index, top_k=3).retrieve(QUESTION)
    result = index.retrieve(QUESTION, top_k=3)
    run = Run(ThreadPool("test", 1, patience=1))
    bound = settings_of_pack.model_copy(update={"max_tokens": budget})
    pack = index.sync.run(
        make_context(run, result, bound, as_plugin(words, TokenCounter), primaries=3, stores={"": index.store})
    )
    postprocessor = ContextPackPostprocessor(
        index.store, settings=settings_of_pack, max_tokens=budget, token_counter=words
    )
    found = both(postprocessor, nodes, QUESTION)
    assert pack.passages
    assert "\n\n".join(map(shown, found)) == pack.context_pack
    assert words(pack.context_pack) <= budget
    assert [item.node.metadata["citation"] for item in found] == list(pack.citations)
    assert [item.score for item in found] == [passage.score for passage in pack.passages]
    assert [item.node.node_id for item in found] == [passage.id for passage in pack.passages]
