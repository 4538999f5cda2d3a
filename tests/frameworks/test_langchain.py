"""LangChain's retriever and document compressor over an index and its rerankers."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import open_index
from retrieval_core.errors import ConfigurationError, FilterError, InvalidParameterError
from retrieval_core.ports import Reranker, RerankScores
from support.frameworks import ANSWER, QUERY, index_of_notes

pytest.importorskip("langchain_core", reason="the extra 'langchain' is not installed")

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.load import dumpd
from langchain_core.runnables import ConfigurableField, Runnable, RunnableLambda

from retrieval_core.integrations.langchain import RetrievalCoreReranker, RetrievalCoreRetriever

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from retrieval_core import Index


def first_text(documents: list[Document]) -> str:
    return documents[0].page_content


async def in_chain(chain: Runnable[str, str]) -> str:
    return await chain.ainvoke(QUERY)


class TestRetriever:
    """The retriever."""

    def test_documents_say_where_they_are_from(self, index: Index) -> None:
        """The index's own fields and those of the document."""
        first, *_ = RetrievalCoreRetriever(index).invoke(QUERY)
        (hit, *_) = index.retrieve(QUERY).hits
        assert (first.id, first.page_content) == (hit.id, ANSWER)
        assert first.metadata == {
            "source": "notes/moon.md",
            "title": "The moon",
            "lines": [1, 1],
            "document_id": "notes/moon.md",
            "chunk_id": hit.id,
            "citation": "Doc: notes/moon.md:1",
            "score": hit.score,
            "team": "night",
            "year": 1969,
        }
        assert json.loads(json.dumps(first.metadata)) == first.metadata

    def test_a_field_of_the_document_keeps_its_name(self, tmp_path: Path) -> None:
        """As in filters."""
        from retrieval_core import Chunk

        with open_index(tmp_path / "notes.db", config="lexical") as index:
            index.add([Chunk("a", "a", "A thin phone.", metadata={"score": 5, "title": "Review", "tags": ["new"]})])
            (document,) = RetrievalCoreRetriever(index).invoke("phone")
        fields = {"score": 5, "title": "Review", "tags": ["new"]}
        assert {name: document.metadata[name] for name in fields} == fields
        assert document.metadata["source"] == "a"

    def test_a_call_changes_options_of_the_constructor(self, index: Index) -> None:
        retriever = RetrievalCoreRetriever(index, k=2, filters={"team": "night"}, mode="keyword")

        def found(**options: Any) -> list[str]:
            return [document.metadata["source"] for document in retriever.invoke(QUERY, **options)]

        assert found() == ["notes/moon.md", "notes/mars.md"]
        assert found(k=1) == ["notes/moon.md"]
        assert found(filters={"team": "day"}) == ["notes/sun.md"]
        assert found(filters=None, top_k=3)[:1] == ["notes/moon.md"]
        assert RetrievalCoreRetriever(index, search_kwargs={"top_k": 1}).invoke(QUERY)[1:] == []
        with pytest.raises(InvalidParameterError):
            found(mode="vector")
        with pytest.raises(TypeError, match="did you mean 'mode'"):
            found(mod="keyword")
        with pytest.raises(TypeError, match="did you mean 'filters'"):
            found(filter={"team": "day"})
        with pytest.raises(TypeError, match="use one of k, filters, top_k, mode"):
            found(where={"team": "day"})

    @pytest.mark.parametrize(
        ("fields", "error"),
        [
            ({"index": 1}, InvalidParameterError),
            ({"k": 0}, InvalidParameterError),
            ({"k": 5000}, InvalidParameterError),
            ({"mode": "mmr"}, InvalidParameterError),
            ({"search_kwargs": {"score_threshold": 3}}, InvalidParameterError),
            ({"search_kwargs": {"filter": {"team": "day"}}}, TypeError),
            ({"filters": {"a": {"$near": 1}}}, FilterError),
            ({"top": 3}, TypeError),
        ],
    )
    def test_wrong_fields_are_refused(self, index: Index, fields: dict[str, Any], error: type[Exception]) -> None:
        given: dict[str, Any] = {"index": index, **fields}
        with pytest.raises(error):
            RetrievalCoreRetriever(**given)

    def test_it_works_as_a_runnable(self, index: Index) -> None:
        """In batches, in chains, with configurable fields, and on an event loop."""
        retriever = RetrievalCoreRetriever(index, k=1)
        assert retriever.batch([QUERY, "the sun"])[1][0].metadata["source"] == "notes/sun.md"
        chain: Runnable[str, str] = retriever | RunnableLambda(first_text)
        assert chain.invoke(QUERY) == ANSWER
        assert asyncio.run(in_chain(chain)) == ANSWER
        configurable = retriever.configurable_fields(k=ConfigurableField("k"))
        assert len(configurable.invoke(QUERY, {"configurable": {"k": 3}})) == 3

    def test_callbacks_follow_it(self, index: Index) -> None:
        """The documents, or the error; and the retriever's tags."""
        seen: list[Any] = []

        class Handler(BaseCallbackHandler):
            def on_retriever_start(self, serialized: dict[str, Any] | None, query: str, **kwargs: Any) -> None:
                seen.append((query, kwargs["tags"]))

            def on_retriever_end(self, documents: Sequence[Document], **_: Any) -> None:
                seen.append([document.id for document in documents])

            def on_retriever_error(self, error: BaseException, **_: Any) -> None:
                seen.append(type(error).__name__)

        retriever = RetrievalCoreRetriever(index, k=1, tags=["sky"])
        (document,) = retriever.invoke(QUERY, {"callbacks": [Handler()]})
        with pytest.raises(ValueError, match="the query is empty"):
            asyncio.run(retriever.ainvoke("", {"callbacks": [Handler()]}))
        assert seen == [(QUERY, ["sky"]), [document.id], ("", ["sky"]), "QueryValidationError"]
        assert dumpd(retriever)["id"][-1] == "RetrievalCoreRetriever"

    def test_of_a_path_it_can_be_pickled(self, tmp_path: Path) -> None:
        index_of_notes(tmp_path).close()
        retriever = RetrievalCoreRetriever(tmp_path / "notes.db", k=1, filters={"team": "day"})
        again = pickle.loads(pickle.dumps(retriever))
        assert [document.id for document in again.invoke(QUERY)] == [
            document.id for document in retriever.invoke(QUERY)
        ]
        with again.index, retriever.index, pytest.raises(TypeError, match="path of the index"):
            pickle.dumps(RetrievalCoreRetriever(retriever.index))

    def test_it_takes_the_documents_of_a_splitter(self, tmp_path: Path) -> None:
        """A piece that a splitter makes twice is one chunk, and adding it again changes nothing."""
        page = {"source": "mars.html", "title": "Mars", "page": 3}
        pieces = [
            Document("Mars is red.", metadata=page),
            Document("A header."),
            Document("Mars is red.", metadata=page),
        ]
        named = Document("Mars has two moons.", id="moons", metadata=page)
        with open_index(tmp_path / "mars.db", config="lexical") as index:
            retriever = RetrievalCoreRetriever(index, k=1)
            ids = retriever.add_documents(iter(pieces))
            assert ids[0] == ids[2] != ids[1]
            assert asyncio.run(retriever.aadd_documents([*pieces, named])) == [*ids, "moons"]
            assert [document.id for document in index.documents()] == [ids[1], "mars.html"]
            (found,) = retriever.invoke("moons", filters={"page": 3})
            assert (found.id, found.page_content) == ("moons", named.page_content)
            assert found.metadata.items() >= page.items()
            assert found.metadata["citation"] == "Doc: mars.html"  # lines of a piece aren't those of the file
            with pytest.raises(InvalidParameterError, match="metadata values must be JSON"):
                retriever.add_documents([Document("Today.", metadata={"when": date(2026, 1, 1)})])
            assert index.delete("mars.html") == 2

    def test_another_document_is_named_with_its_module(self, index: Index) -> None:
        """Both classes are called Document."""
        given: Any = [Document("Mars is red.")]
        with pytest.raises(InvalidParameterError, match=r"langchain_core\S+Document"):
            index.add_documents(given)

    def test_documents_say_what_failed(self, index: Index) -> None:
        """Of a search that fell back."""
        with open_index(index.store.location, config="lexical", reranker=Broken(ValueError("refused"))) as other:
            (document, *_) = RetrievalCoreRetriever(other).invoke(QUERY)
        (told,) = document.metadata["degraded"]
        assert "refused" in told


class Backwards(Reranker):
    """Prefers the documents that came last, and counts what it is given."""

    id = "backwards"
    batch_size = 100
    seen: tuple[str, ...] = ()

    async def _score(self, query: str, passages: Sequence[str]) -> RerankScores:
        self.seen = tuple(passages)
        return RerankScores(tuple((number + 1) / 10 for number in range(len(passages))))


class Broken(Reranker):
    """Fails with an error."""

    id = "broken"
    batch_size = 100

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def _score(self, query: str, passages: Sequence[str]) -> RerankScores:
        raise self.error


GIVEN = [Document("one", id="1", metadata={"title": "Numbers"}), Document("two", id="2"), Document("three", id="3")]


class TestReranker:
    """The document compressor."""

    def test_the_best_documents_come_first(self) -> None:
        reranker = Backwards()
        compressor = RetrievalCoreReranker(reranker, top_n=2)
        best = compressor.compress_documents(GIVEN, QUERY)
        assert [(item.page_content, item.metadata["relevance_score"]) for item in best] == [
            ("three", 0.3),
            ("two", 0.2),
        ]
        assert reranker.seen == ("Numbers\none", "two", "three")
        assert asyncio.run(compressor.acompress_documents(GIVEN, QUERY)) == best
        assert [document.metadata for document in GIVEN] == [{"title": "Numbers"}, {}, {}]
        assert len(RetrievalCoreReranker(reranker, top_n=None).compress_documents(GIVEN, QUERY)) == 3
        assert list(compressor.compress_documents([], QUERY)) == []

    def test_one_that_fails_is_followed_by_the_next(self, caplog: pytest.LogCaptureFixture) -> None:
        """If all fail, the documents stay in their order, and the log has the reason."""
        broken = Broken(ValueError("out of memory"))
        with caplog.at_level(logging.WARNING, "retrieval_core"):
            (best,) = RetrievalCoreReranker([broken, Backwards()], top_n=1).compress_documents(GIVEN, QUERY)
            assert best.id == "3"
            assert RetrievalCoreReranker(broken, top_n=2).compress_documents(GIVEN, QUERY) == GIVEN[:2]
        assert "out of memory" in caplog.text

    def test_a_wrong_setting_is_raised(self) -> None:
        with pytest.raises(ConfigurationError):
            RetrievalCoreReranker(Broken(ConfigurationError("no key"))).compress_documents(GIVEN, QUERY)

    @pytest.mark.parametrize("arguments", [{"reranker": 1}, {"reranker": []}, {"top_n": 0}])
    def test_wrong_arguments_are_refused(self, arguments: dict[str, Any]) -> None:
        given: dict[str, Any] = {"reranker": Backwards(), **arguments}
        with pytest.raises(InvalidParameterError):
            RetrievalCoreReranker(**given)

    @pytest.mark.model
    def test_without_one_a_local_model_reads(self) -> None:
        pytest.importorskip("onnxruntime", reason="the extra 'local' is not installed")
        documents = [Document("Bread is baked."), Document(ANSWER)]
        (best,) = RetrievalCoreReranker(top_n=1).compress_documents(documents, QUERY)
        assert best.page_content == ANSWER

    @pytest.mark.model
    def test_a_document_without_text_is_last(self) -> None:
        """For a query of one word, the model takes a blank page for the best."""
        pytest.importorskip("onnxruntime", reason="the extra 'local' is not installed")
        documents = [Document(" \n", metadata={"page": 0}), Document(ANSWER)]
        first, last = RetrievalCoreReranker().compress_documents(documents, "moon")
        assert (first.page_content, last.metadata["relevance_score"]) == (ANSWER, 0)

    def test_it_can_be_pickled(self) -> None:
        """After it was used, too."""
        compressor = RetrievalCoreReranker([Backwards()], top_n=2)
        best = compressor.compress_documents(GIVEN, QUERY)
        again = pickle.loads(pickle.dumps(compressor))
        assert again.compress_documents(GIVEN, QUERY) == best
        assert pickle.loads(pickle.dumps(RetrievalCoreReranker(top_n=1))).top_n == 1


def test_the_specifications_classes_of_langchain_work_with_it(index: Index) -> None:
    """``ContextualCompressionRetriever`` and ``LLMChainFilter``, which are in ``langchain_classic`` now."""
    classic: Any = pytest.importorskip("langchain_classic.retrievers")
    from langchain_classic.retrievers.document_compressors import LLMChainFilter
    from langchain_core.language_models import FakeListChatModel

    retriever = RetrievalCoreRetriever(index)
    compression = classic.ContextualCompressionRetriever
    reranked = compression(base_compressor=RetrievalCoreReranker(Backwards(), top_n=1), base_retriever=retriever)
    everything = retriever.invoke(QUERY)
    assert [document.id for document in reranked.invoke(QUERY)] == [everything[-1].id]
    assert [document.id for document in asyncio.run(reranked.ainvoke(QUERY))] == [everything[-1].id]
    filters: Any = LLMChainFilter
    judge = filters.from_llm(FakeListChatModel(responses=["YES", *["NO"] * (len(everything) - 1)]))
    judged = compression(base_compressor=judge, base_retriever=retriever)
    assert [document.page_content for document in judged.invoke(QUERY)] == [ANSWER]
