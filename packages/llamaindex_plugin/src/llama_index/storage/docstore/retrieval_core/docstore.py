"""LlamaIndex's port for document stores, as a view of an index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from llama_index.core.schema import BaseNode, Document, NodeRelationship, ObjectType, RelatedNodeInfo
from llama_index.core.storage.docstore.types import BaseDocumentStore, RefDocInfo

from llama_index.retrievers.retrieval_core.convert import node_from_chunk, thawed
from llama_index.vector_stores.retrieval_core.nodes import node_of
from llama_index.vector_stores.retrieval_core.reading import all_chunks, chunks_of_documents
from retrieval_core.errors import StoreError
from retrieval_core.ports import FetchRequest, Store, as_store
from retrieval_core.run.sync import SyncBridge
from retrieval_core.types import Chunk, Section
from retrieval_core.types import Document as IndexedDocument


class RetrievalCoreDocumentStore(BaseDocumentStore):
    """The chunks, sections and documents of an index, as nodes that LlamaIndex can look up by their ids.

    With it ``AutoMergingRetriever`` and ``PrevNextNodePostprocessor`` work on the nodes of ``RetrievalCoreRetriever``
    and of ``RetrievalCoreVectorStore``. A section is the parent of its passages: a node with its whole text, and with
    the relationship ``CHILD`` to them. It is a view: whatever would write raises ``StoreError``.

    If an id has several, a chunk comes before a section, and a section before a document.

    Args:
        store: For instance ``retriever.pipeline.store`` or ``vector_store.client``; you close it.

    Raises:
        InvalidParameterError: ``store`` is not a store.
    """

    def __init__(self, store: Store) -> None:
        self._store = as_store(store)
        self._bridge = SyncBridge()

    def __getstate__(self) -> dict[str, Any]:
        msg = "a RetrievalCoreDocumentStore cannot be pickled, because its store cannot; make a new one instead"
        raise TypeError(msg)

    @property
    def docs(self) -> dict[str, BaseNode]:
        """All passages as nodes, by their ids."""
        return self._bridge.run(self._adocs())

    async def _adocs(self) -> dict[str, BaseNode]:
        return {chunk.id: node_of(chunk) for chunk in await all_chunks(self._store)}

    def get_nodes(self, node_ids: list[str], raise_error: bool = True) -> list[BaseNode]:
        """Return nodes by their ids; see :meth:`aget_nodes`."""
        return self._bridge.run(self.aget_nodes(node_ids, raise_error))

    async def aget_nodes(self, node_ids: list[str], raise_error: bool = True) -> list[BaseNode]:
        """Return nodes in the order of their ids, read together.

        Raises:
            ValueError: One is not there, and ``raise_error`` is true.
            StoreError: The index cannot be read.
        """
        found = await self._found(node_ids)
        if raise_error and (missing := [name for name in node_ids if name not in found]):
            msg = f"Node {missing[0]} not found: the index has no passage, section or document of this id"
            raise ValueError(msg)
        return [found[name] for name in node_ids if name in found]

    def get_document(self, doc_id: str, raise_error: bool = True) -> BaseNode | None:
        """Return a passage, section or document as a node; see :meth:`aget_document`."""
        return self._bridge.run(self.aget_document(doc_id, raise_error))

    async def aget_document(self, doc_id: str, raise_error: bool = True) -> BaseNode | None:
        """Return a passage, section or document as a node; ``None`` if there is none and ``raise_error`` is false.

        Raises:
            ValueError: There is none, and ``raise_error`` is true.
            StoreError: The index cannot be read.
        """
        nodes = await self.aget_nodes([doc_id], raise_error)
        return nodes[0] if nodes else None

    def document_exists(self, doc_id: str) -> bool:
        """Whether there is a passage, section or document of this id."""
        return self._bridge.run(self.adocument_exists(doc_id))

    async def adocument_exists(self, doc_id: str) -> bool:
        """Whether there is a passage, section or document of this id."""
        return bool(await self._found([doc_id]))

    def get_document_hash(self, doc_id: str) -> str | None:
        """Return a node's hash; see :meth:`aget_document_hash`."""
        return self._bridge.run(self.aget_document_hash(doc_id))

    async def aget_document_hash(self, doc_id: str) -> str | None:
        """Return a node's hash.

        Raises:
            StoreError: There is no such node. LlamaIndex asks for the hash of a new document before it embeds and then
                writes it, and nothing can be written here.
        """
        node = await self.aget_document(doc_id, raise_error=False)
        return self._refuse() if node is None else node.hash

    def get_all_document_hashes(self) -> dict[str, str]:
        """Return the ids of all passages by the hashes of their nodes."""
        return self._bridge.run(self.aget_all_document_hashes())

    async def aget_all_document_hashes(self) -> dict[str, str]:
        """Return the ids of all passages by the hashes of their nodes."""
        return {node.hash: name for name, node in (await self._adocs()).items()}

    def get_ref_doc_info(self, ref_doc_id: str) -> RefDocInfo | None:
        """Return a document's metadata and the ids of its chunks, or ``None``."""
        return self._bridge.run(self.aget_ref_doc_info(ref_doc_id))

    async def aget_ref_doc_info(self, ref_doc_id: str) -> RefDocInfo | None:
        """Return a document's metadata and the ids of its chunks in their order, or ``None``."""
        return (await self._infos([ref_doc_id])).get(ref_doc_id)

    def get_all_ref_doc_info(self) -> dict[str, RefDocInfo]:
        """Return what :meth:`get_ref_doc_info` does, by the documents' ids."""
        return self._bridge.run(self.aget_all_ref_doc_info())

    async def aget_all_ref_doc_info(self) -> dict[str, RefDocInfo]:
        """Return what :meth:`get_ref_doc_info` does, by the documents' ids."""
        return await self._infos(dict.fromkeys(chunk.document_id for chunk in await all_chunks(self._store)))

    async def _infos(self, document_ids: Iterable[str]) -> dict[str, RefDocInfo]:
        names = tuple(document_ids)
        chunks = await chunks_of_documents(self._store, names)
        documents = (await self._store.fetch(FetchRequest(document_ids=names))).documents
        node_ids: dict[str, list[str]] = {}
        for chunk in chunks:
            node_ids.setdefault(chunk.document_id, []).append(chunk.id)
        metadata = {name: _metadata(document) for name, document in documents.items()}
        return {name: RefDocInfo(node_ids=ids, metadata=metadata.get(name, {})) for name, ids in node_ids.items()}

    async def _found(self, names: Sequence[str]) -> dict[str, BaseNode]:
        """Return the nodes of all that is there, by id."""
        wanted = tuple(dict.fromkeys(names))
        fetched = await self._store.fetch(FetchRequest(chunk_ids=wanted, section_ids=wanted, document_ids=wanted))
        nodes = {name: node_of(chunk) for name, chunk in fetched.chunks.items()}
        sections = [section for name, section in fetched.sections.items() if name not in nodes]
        if sections:
            owners = tuple(dict.fromkeys(section.document_id for section in sections))
            chunks = await chunks_of_documents(self._store, owners)
            documents = (await self._store.fetch(FetchRequest(document_ids=owners))).documents
            for section in sections:
                children = [chunk for chunk in chunks if chunk.parent_id == section.id]
                nodes[section.id] = _section_node(section, children, documents.get(section.document_id))
        return {**{name: _document_node(document) for name, document in fetched.documents.items()}, **nodes}

    def _refuse(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Refuse to write.

        Raises:
            StoreError: Always.
        """
        msg = (
            "a RetrievalCoreDocumentStore only reads. Write to the index with RetrievalCoreVectorStore, and give "
            "LlamaIndex a separate document store for its records, such as SimpleDocumentStore"
        )
        raise StoreError(msg)

    async def _arefuse(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Refuse to write.

        Raises:
            StoreError: Always.
        """
        self._refuse()

    add_documents = delete_document = delete_ref_doc = set_document_hash = set_document_hashes = _refuse
    async_add_documents = adelete_document = adelete_ref_doc = aset_document_hash = aset_document_hashes = _arefuse

    def close(self) -> None:
        """Stop the background loop of synchronous calls, if there is one. Closing twice is fine."""
        self._bridge.close()


def _metadata(document: IndexedDocument) -> dict[str, Any]:
    told = {"source": document.source, "title": document.title}
    return {**{name: value for name, value in told.items() if value is not None}, **thawed(document.metadata)}


def _document_node(document: IndexedDocument) -> Document:
    return Document(id_=document.id, text=document.text, metadata=_metadata(document))


def _section_node(section: Section, children: Sequence[Chunk], document: IndexedDocument | None) -> BaseNode:
    """Return a section as a node with the provenance of a passage.

    Its text is that of its place in the document or, where there is no such text, of its passages.
    """
    span, text = section.span, "\n\n".join(child.text for child in children)
    inside = document is not None and document.text[span.start : span.end]
    first = children[0] if children else Chunk(section.id, section.document_id, "", total_chunks=0)
    node = node_from_chunk(
        Chunk(
            id=section.id,
            document_id=section.document_id,
            text=inside or text,
            chunk_index=first.chunk_index,
            total_chunks=first.total_chunks,
            page_span=section.page_span,
            section_path=section.path,
            span=span if inside else None,
            title=first.title,
            source=first.source,
            timestamp=first.timestamp,
            embedding_model=first.embedding_model,
            metadata={} if document is None else document.metadata,
        )
    )
    related = [RelatedNodeInfo(node_id=child.id, node_type=ObjectType.TEXT) for child in children]
    node.relationships = {**node.relationships, NodeRelationship.CHILD: list(related)}
    return node
