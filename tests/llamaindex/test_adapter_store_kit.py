"""What the kit asks of a store for reading, over LlamaIndex's ``SimpleVectorStore`` and its docstore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.core.schema import MetadataMode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores import SimpleVectorStore

from llama_index.retrievers.retrieval_core import node_from_chunk
from llama_index.retrievers.retrieval_core.adapters import LlamaIndexStore
from retrieval_core.errors import DimensionMismatchError, StoreError
from retrieval_core.ports import check_change
from retrieval_core.testing.store_kit import DIMENSION
from retrieval_core.testing.store_kit.catalog import FieldTests
from retrieval_core.testing.store_kit.running import HostileInputTests
from retrieval_core.testing.store_kit.searching import (
    DenseSearchTests,
    FetchTests,
    FilterTests,
    LexicalSearchTests,
    SearchTests,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from retrieval_core.ports import Change


class Filled(LlamaIndexStore):
    """Is filled by LlamaIndex's own methods, as its users fill it."""

    def __init__(self) -> None:
        self.vectors, self.nodes = SimpleVectorStore(), SimpleDocumentStore()
        super().__init__(self.vectors, docstore=self.nodes)

    async def upsert(self, change: Change) -> None:
        if self._closed:
            raise StoreError("closed")
        check_change(change)
        if change.vectors is not None and change.vectors.shape[1] != DIMENSION:
            raise DimensionMismatchError(DIMENSION, change.vectors.shape[1], "the test")
        await self.delete([*change.removed_documents, *(document.id for document in change.documents)])
        made = [node_from_chunk(chunk) for chunk in change.chunks]
        for node, vector in zip(made, [] if change.vectors is None else change.vectors, strict=True):
            assert node.get_content(metadata_mode=MetadataMode.NONE) is not None
            node.embedding = vector.tolist()
        self.vectors.add(made)
        self.nodes.add_documents(made)

    async def delete(self, document_ids: Sequence[str]) -> int:
        if self._closed:
            raise StoreError("closed")
        before = len(self.nodes.docs)
        for name in document_ids:
            self.vectors.delete(name)
            self.nodes.delete_ref_doc(name, raise_error=False)
        return before - len(self.nodes.docs)


class TestSimpleVectorStore(
    SearchTests, DenseSearchTests, LexicalSearchTests, FilterTests, FieldTests, FetchTests, HostileInputTests
):
    async def open_store(self, folder: Path) -> Any:
        return Filled()

    @pytest.mark.skip(reason="nodes of the same similarity keep the vector store's order")
    def test_equal_cosines_are_ordered_by_id(self, tmp_path: Path) -> None: ...

    @pytest.mark.skip(reason="similarities are the vector store's own, rounding errors included")
    def test_scores_stay_in_range(self, tmp_path: Path) -> None: ...

    @pytest.mark.skip(reason="LlamaIndex keeps neither documents nor sections")
    def test_the_filter_guards_everything(self, tmp_path: Path) -> None: ...

    @pytest.mark.skip(reason="LlamaIndex keeps no documents; passages with such texts are among the other tests")
    def test_hostile_texts_are_stored_and_found(self, tmp_path: Path) -> None: ...
