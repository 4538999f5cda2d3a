"""The nodes of a document store of LlamaIndex, as chunks in memory, with a keyword index."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

from llama_index.core.schema import Document, ImageNode, IndexNode
from llama_index.core.storage.docstore import SimpleDocumentStore

from llama_index.retrievers.retrieval_core.adapters._words import WordIndex
from llama_index.retrievers.retrieval_core.convert import chunk_with_node
from llama_index.retrievers.retrieval_core.order import in_order
from retrieval_core.errors import InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from llama_index.core.schema import BaseNode
    from llama_index.core.storage.docstore.types import BaseDocumentStore

    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import Chunk

REFRESH_SECONDS = 60.0
"""How long nodes of a docstore in another process are used before it is asked what changed."""
_Known: TypeAlias = "tuple[str, Chunk | None]"
"""A node's hash and chunk; no chunk if it is a whole document, or cannot be read."""
MOST_WASTE = 0.5
"""The part of a keyword index that may be of removed nodes; then it is built anew."""


class DocstoreNodes:
    """Reads the nodes of a docstore, and later those that changed.

    Documents, and nodes with children, are skipped, unless they are listed: LlamaIndex keeps them in docstores without
    searching them. Documents that the vector store has are nodes too, see :meth:`unskip`.

    Args:
        docstore: Of any kind.
        analyzer: Turns texts into terms.
        listed: Returns the ids of the index's nodes; ``None`` for all nodes.
        keeps_text: Whether the vector store keeps text. LlamaIndex then lists images and references only. If nothing
            else is listed, all nodes of the docstore are read.
        refresh_seconds: How long nodes are used before the docstore is asked what changed. By default a docstore in
            this process is asked each time, and any other once in :data:`REFRESH_SECONDS`.
        now: Returns the time in seconds.

    Attributes:
        chunks: By id, which is the node's. The mapping never changes; another one takes its place.
        unreadable: Why nodes could not be read, by their ids.
        has_text: Whether there are nodes besides images and references.
        documents: Ids of skipped documents.
    """

    def __init__(
        self,
        docstore: BaseDocumentStore,
        analyzer: Analyzer,
        listed: Callable[[], Sequence[str] | None],
        *,
        keeps_text: bool = False,
        refresh_seconds: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._docstore = docstore
        self._analyzer = analyzer
        self._listed = listed
        self._keeps_text = keeps_text
        is_near = isinstance(docstore, SimpleDocumentStore)
        self._refresh = (0.0 if is_near else REFRESH_SECONDS) if refresh_seconds is None else refresh_seconds
        self._now = now
        self._lock = Lock()
        self._asked_at: float | None = None
        self._state: object = None
        self._known: dict[str, _Known] = {}
        self._of_document: Mapping[str, Sequence[Chunk]] = {}
        self.words = WordIndex(analyzer)
        self.chunks: Mapping[str, Chunk] = {}
        self.unreadable: dict[str, str] = {}
        self.has_text = False
        self.documents: set[str] = set()
        self._embedded: set[str] = set()

    def read(self, names: Iterable[str]) -> dict[str, Chunk]:
        """Return those of the docstore's nodes that exist and can be read; it blocks."""
        nodes = self._docstore.get_nodes(list(names), raise_error=False)
        return {chunk.id: chunk for node in nodes if (chunk := self._converted(node)) is not None}

    def of_document(self, document_id: str) -> Mapping[str, Chunk]:
        """Return the chunks of a document."""
        chunks = self.chunks
        return {each.id: chunks[each.id] for each in self._of_document.get(document_id, ()) if each.id in chunks}

    def without(self, names: Iterable[str]) -> list[str]:
        """Return those of the ids that the docstore did not have when it was read."""
        return [name for name in names if name not in self._known]

    def unskip(self, documents: set[str]) -> None:
        """Record documents that the vector store has; the next :meth:`refresh` reads them as nodes."""
        with self._lock:
            self.documents -= documents
            self._embedded |= documents
            self._known |= dict.fromkeys(documents, ("", None))
            self._state = self._asked_at = None

    def refresh(self) -> None:
        """Read what changed; it blocks. The first call reads all nodes."""
        with self._lock:
            now = self._now()
            if self._asked_at is None or now - self._asked_at >= self._refresh:
                listed, hashes = self._listed(), self._docstore.get_all_document_hashes()
                if (listed, hashes) != self._state:
                    self._update(listed, {name: value for value, name in hashes.items()})
                    self._state = (listed, hashes)
                self._asked_at = now

    def _update(self, listed: Sequence[str] | None, hashes: Mapping[str, str]) -> None:
        before, after = self._known, self._current(listed, hashes)
        if self._keeps_text and not any(map(_is_text, after.values())):
            after = self._current(None, hashes)
        new, gone = _without(after, before), _without(before, after)
        chunks: dict[str, Chunk] = {}
        documents = defaultdict[str, list["Chunk"]](list)
        for _, chunk in after.values():
            if chunk is not None:
                chunks[chunk.id] = chunk if chunk.id in new else self.chunks[chunk.id]
                documents[chunk.document_id].append(chunk)
        for document in {chunk.document_id for chunk in (*new.values(), *gone.values())}:
            chunks |= _placed(documents.get(document, ()))
        self.words.update(gone, {name: chunk.indexed_text for name, chunk in new.items()})
        if self.words.waste > MOST_WASTE:
            self.words = WordIndex(self._analyzer)
            self.words.update((), {name: chunk.indexed_text for name, chunk in chunks.items()})
        self._known, self._of_document, self.chunks = after, documents, chunks
        self.has_text = any(map(_is_text, after.values()))
        self.unreadable = {name: reason for name, reason in self.unreadable.items() if name in after}

    def _current(self, listed: Sequence[str] | None, hashes: Mapping[str, str]) -> dict[str, _Known]:
        """Return what the docstore has now; what did not change is the same object."""
        known, read = self._known, dict[str, "BaseNode"]()
        if listed is None and not known:
            read = self._docstore.docs
            names = list(read)
        else:
            names = list(dict.fromkeys((*known, *hashes))) if listed is None else listed
            # Of nodes with the same hash it names one; the others are read to find out.
            stale = {name for name in names if name not in known or known[name][0] != hashes.get(name)}
            read = {node.node_id: node for node in self._docstore.get_nodes(list(stale), raise_error=False)}
            names = [name for name in names if name in read or name not in stale]
        current: dict[str, _Known] = {}
        for name in names:
            node = read.get(name)
            if node is None or (name in known and known[name][0] == node.hash):
                current[name] = known[name]
            else:
                is_document = isinstance(node, Document) and name not in self._embedded
                is_whole = listed is None and (is_document or bool(node.child_nodes))
                current[name] = node.hash, None if is_whole else self._converted(node)
                if is_whole and is_document and name not in known:
                    self.documents.add(name)
        return current

    def _converted(self, node: BaseNode) -> Chunk | None:
        self.unreadable.pop(node.node_id, None)
        try:
            return chunk_with_node(node)
        except InvalidParameterError as error:
            self.unreadable[node.node_id] = str(error)
            return None


def _without(these: Mapping[str, _Known], those: Mapping[str, _Known]) -> dict[str, Chunk]:
    """Return the chunks that are not the same in others."""
    changed = [item[1] for name, item in these.items() if those.get(name) is not item]
    return {chunk.id: chunk for chunk in changed if chunk is not None}


def _is_text(item: _Known) -> bool:
    return item[1] is not None and not isinstance(getattr(item[1], "node", None), (ImageNode, IndexNode))


def _placed(chunks: Sequence[Chunk]) -> dict[str, Chunk]:
    """Return a document's chunks with their places, if their nodes are linked, unless they know them."""
    nodes = [node for chunk in chunks if (node := getattr(chunk, "node", None)) is not None]
    is_linked = len(nodes) == len(chunks) and all(node.prev_node or node.next_node for node in nodes)
    if not is_linked or any((each.chunk_index, each.total_chunks) != (0, 1) for each in chunks):
        return {chunk.id: chunk for chunk in chunks}
    return {
        chunks[place].id: replace(chunks[place], chunk_index=index, total_chunks=len(chunks))
        for index, place in enumerate(in_order(nodes))
    }
