"""What LlamaIndex users ask for and no other test shows; see ``docs/dev/llamaindex-issues.md``."""

# LlamaIndex's own types are unknown in parts.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.core import Settings
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores import FilterOperator, MetadataFilter, MetadataFilters

from llama_index.retrievers.retrieval_core import RetrievalCoreRetriever
from llama_index.retrievers.retrieval_core.adapters import from_index, pipeline_from
from retrieval_core import open_index
from retrieval_core.errors import EmbeddingError
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Chunk
from support.llamaindex_parts import index_of
from support.pdf_files import make_chapters

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

TEXTS = {
    "chinese": "低头思故乡",
    "chinese, another line": "举头望明月",
    "japanese": "古池や蛙飛びこむ水の音",
    "russian": "Мороз и солнце; день чудесный",
    "arabic": "العلم نور والجهل ظلام",
    "german": "Über allen Gipfeln ist Ruh",
    "english": "A frog jumps into an old pond",
}
METADATA = {
    "chinese": {"published": "2023-02-08T10:49:00Z"},
    "japanese": {"published": "2024-01-31T10:14:31Z"},
    "russian": {"published": "2024-02-01T00:00:00Z"},
}


def chunks() -> list[Chunk]:
    return [Chunk(name, name, text, metadata=METADATA.get(name, {})) for name, text in TEXTS.items()]


@pytest.fixture(params=["from_index", "from_index_file"])
def retriever(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RetrievalCoreRetriever]:
    """A retriever over the texts, in a stock index and in an index file."""
    if request.param == "from_index":
        nodes = [TextNode(id_=name, text=text, metadata=METADATA.get(name, {})) for name, text in TEXTS.items()]
        with from_index(index_of(nodes=nodes)) as pipeline:
            yield RetrievalCoreRetriever(pipeline)
        return
    path, embedder = tmp_path / "i.db", FakeEmbedder()
    with open_index(path, embedder=embedder) as index:
        index.add(chunks())
    with RetrievalCoreRetriever.from_index_file(path, embedder=embedder) as opened:
        yield opened


def ids(nodes: Sequence[NodeWithScore]) -> list[str]:
    return [item.node.node_id for item in nodes]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("故乡", "chinese"),
        ("明月", "chinese, another line"),
        ("水の音", "japanese"),
        ("СОЛНЦЕ", "russian"),
        ("نور", "arabic"),
        ("über", "german"),
        ("gipfeln", "german"),
    ],
)
def test_keyword_search_finds_words_of_any_script(retriever: RetrievalCoreRetriever, query: str, wanted: str) -> None:
    """Also if no space separates them; texts without the words aren't found."""
    assert ids(retriever.bound(mode="lexical").retrieve(query)) == [wanted]


@pytest.mark.parametrize("mode", ["lexical", "dense", "hybrid"])
def test_dates_are_filtered_by_range(retriever: RetrievalCoreRetriever, mode: Any) -> None:
    """Dates are text in ISO 8601, in one time zone; nodes without a date don't pass."""

    def between(first: str, last: str) -> MetadataFilters:
        return MetadataFilters(
            filters=[
                MetadataFilter(key="published", value=first, operator=FilterOperator.GT),
                MetadataFilter(key="published", value=last, operator=FilterOperator.LTE),
            ]
        )

    query = " ".join(TEXTS.values())
    bound = retriever.bound(mode=mode)
    found = bound.retrieve_with(query, filters=between("2023-02-08T10:49:00Z", "2024-01-31T10:14:31Z"))
    assert ids(found) == ["japanese"]
    assert sorted(ids(bound.retrieve_with(query, filters=between("2024", "2025")))) == ["japanese", "russian"]
    assert bound.retrieve_with(query, filters=between("2025", "2026")) == []


def test_a_retriever_whose_asynchronous_method_blocks_is_called_in_a_thread() -> None:
    """``aretrieve`` of most retrievers calls the synchronous search on the event loop."""
    threads: list[str] = []

    class Blocking(BaseRetriever):
        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            threads.append(threading.current_thread().name)
            return [NodeWithScore(node=TextNode(id_="a", text=query_bundle.query_str), score=1.0)]

    async def ask() -> None:
        async with pipeline_from(retriever=Blocking()) as pipeline:
            assert ids(await RetrievalCoreRetriever(pipeline).aretrieve("frog")) == ["a"]

    asyncio.run(Blocking().aretrieve("frog"))
    assert threads == [threading.main_thread().name]
    threads.clear()
    asyncio.run(ask())
    assert threads
    assert threading.main_thread().name not in threads


def test_no_model_of_the_settings_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """``Settings`` makes OpenAI's models if it has none."""
    index = index_of()
    path, embedder = tmp_path / "i.db", FakeEmbedder()
    with open_index(path, embedder=embedder) as ours:
        ours.add(chunks())

    def used(_settings: object) -> NoReturn:
        pytest.fail("a model of Settings was used")

    for name in ("llm", "embed_model"):
        monkeypatch.setattr(type(Settings), name, property(used))
    with from_index(index) as pipeline:
        assert ids(RetrievalCoreRetriever(pipeline).retrieve("XQ-77"))[0] == "sea-5"
    with RetrievalCoreRetriever.from_index_file(path, embedder=embedder) as opened:
        assert ids(opened.retrieve("frog pond"))[0] == "english"


def test_a_file_that_cannot_be_embedded_keeps_its_former_text(tmp_path: Path) -> None:
    """An update that fails takes nothing away, and the next run makes up for it."""
    notes = tmp_path / "notes"
    notes.mkdir()
    file = notes / "moon.md"
    file.write_text("The moon is old.")
    embedder = FakeEmbedder()
    with open_index(tmp_path / "i.db", embedder=embedder) as index:
        retriever = RetrievalCoreRetriever(index)
        index.ingest(notes)
        file.write_text("The moon is new.")
        embedder.failure = EmbeddingError("the model is gone")
        with pytest.raises(EmbeddingError, match="the model is gone"):
            index.ingest(notes)
        embedder.failure = None
        assert [item.node.get_content() for item in retriever.retrieve("moon")] == ["The moon is old."]
        index.ingest(notes)
        assert [item.node.get_content() for item in retriever.retrieve("moon")] == ["The moon is new."]


def test_an_index_file_has_its_words_when_it_is_opened(tmp_path: Path) -> None:
    """Nothing is embedded or read again."""
    with open_index(tmp_path / "i.db", embedder=FakeEmbedder()) as index:
        index.add(chunks())
    embedder = FakeEmbedder()
    with RetrievalCoreRetriever.from_index_file(tmp_path / "i.db", embedder=embedder, mode="lexical") as opened:
        assert ids(opened.retrieve("frog")) == ["english"]
    assert embedder.queries == embedder.batches == []


def test_a_passage_of_a_pdf_has_its_page(tmp_path: Path) -> None:
    """In the metadata and in the citation, which is what a model is shown."""
    make_chapters(tmp_path / "valves.pdf", 3)
    with open_index(tmp_path / "i.db", embedder=FakeEmbedder()) as index:
        index.ingest(tmp_path / "valves.pdf")
        best = RetrievalCoreRetriever(index).retrieve("row 4 of page 2, valve number 24")[0].node
    assert "valve number 24" in best.get_content()
    assert (best.metadata["first_page"], best.metadata["last_page"]) == (2, 2)
    assert "Page: 2" in best.get_content(MetadataMode.LLM).splitlines()[0]
