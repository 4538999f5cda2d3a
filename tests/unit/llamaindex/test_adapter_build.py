"""Docstores that are read again, and keyword search over nodes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.core.schema import TextNode
from llama_index.core.storage.docstore.keyval_docstore import KVDocumentStore
from llama_index.core.storage.kvstore import SimpleKVStore

from llama_index.retrievers.retrieval_core.adapters._nodes import REFRESH_SECONDS, DocstoreNodes
from llama_index.retrievers.retrieval_core.adapters._words import WordIndex
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.ports import Change, SearchRequest
from retrieval_core.text.analysis import Analyzer
from retrieval_core.types import Chunk
from support.examples import times
from support.llamaindex_parts import nodes

if TYPE_CHECKING:
    from llama_index.core.schema import BaseNode


def test_a_docstore_elsewhere_is_asked_once_in_a_while() -> None:
    """And nodes that did not change are not read again."""

    class Elsewhere(KVDocumentStore):
        def get_nodes(self, node_ids: list[str], raise_error: bool = True) -> list[BaseNode]:
            reads.append(sorted(node_ids))
            return super().get_nodes(node_ids, raise_error)

    reads: list[list[str]] = []
    seconds = [0.0]
    docstore = Elsewhere(SimpleKVStore())
    docstore.add_documents(nodes())
    names_of = [node.node_id for node in nodes()]
    read = DocstoreNodes(docstore, Analyzer(), lambda: list(names_of), now=lambda: seconds[0])
    read.refresh()
    first = read.chunks
    docstore.add_documents([TextNode(id_="new", text="A comet has a tail.")])
    names_of.append("new")
    seconds[0] = REFRESH_SECONDS - 1
    read.refresh()
    assert read.chunks is first
    seconds[0] = REFRESH_SECONDS
    read.refresh()
    assert [name for name, _ in read.words.search("comet")] == ["new"]
    assert reads == [sorted(node.node_id for node in nodes()), ["new"]]


_TEXTS = st.lists(
    st.lists(st.sampled_from(["moon", "sun", "sea", "back", "roll", "rollback", "star"]), max_size=6), max_size=6
)
_QUERIES = st.lists(st.sampled_from(["moon", "sun", "the", "roll", "back", "star", "none"]), max_size=6)


@settings(max_examples=times(100), deadline=None)
@given(
    _TEXTS, st.lists(st.sampled_from(["moon", "sun", "the", "roll", "back", "star", "none"]), max_size=6), st.booleans()
)
@example([["rollback"], ["back", "roll", "rollback"]], ["roll", "back"], True)
def test_words_score_as_in_the_reference_store(texts: list[list[str]], question: list[str], gone: bool) -> None:
    """Texts that were removed count no longer."""
    analyzer = Analyzer()
    chunks = [Chunk(f"c{number}", "d", " ".join(words)) for number, words in enumerate(texts)]
    texts_of = {chunk.id: chunk.indexed_text for chunk in chunks}
    index = WordIndex(analyzer)
    index.update((), {f"gone {name}": text for name, text in texts_of.items() if gone})
    index.update([f"gone {name}" for name in texts_of if gone], texts_of)

    async def reference() -> list[tuple[str, float]]:
        store = MemoryStore(analyzer=analyzer)
        await store.upsert(Change(tuple(chunks)))
        return [(item.chunk_id, item.score) for item in await store.search(SearchRequest(99, text=" ".join(question)))]

    expected = asyncio.run(reference())
    found = list(index.search(" ".join(question)))
    assert dict(found) == pytest.approx(dict(expected))
    assert found == sorted(found, key=lambda item: (-item[1], item[0]))
