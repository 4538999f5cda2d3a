"""The nodes of a document store of LlamaIndex, as passages in memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING, cast

from llama_index.core.schema import Document, ImageNode, IndexNode
from llama_index.core.storage.docstore import SimpleDocumentStore

from llama_index.retrievers.retrieval_core.adapters._words import WordIndex
from llama_index.retrievers.retrieval_core.convert import chunk_with_node
from retrieval_core.adapters.stores.fields import FieldCounter
from retrieval_core.errors import InvalidParameterError
from retrieval_core.types.filters import chunk_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from llama_index.core.schema import BaseNode
    from llama_index.core.storage.docstore.types import BaseDocumentStore

    from retrieval_core.ports import FieldInfo
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import Chunk

REFRESH_SECONDS = 60.0
"""How long nodes of a docstore in another process are used before it is asked what changed."""


@dataclass(frozen=True)
class Passages:
    """The passages of a docstore at one moment.

    Attributes:
        chunks: By id, which is the node's.
        terms: How often each has each term.
        unreadable: Why nodes could not be read, by their ids.
        is_whole: Whether it holds text, and not only the images and references that LlamaIndex always keeps there.
    """

    analyzer: Analyzer
    chunks: Mapping[str, Chunk] = field(default_factory=dict[str, "Chunk"])
    terms: Mapping[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    unreadable: Mapping[str, str] = field(default_factory=dict[str, str])
    is_whole: bool = False

    @cached_property
    def words(self) -> WordIndex:
        """The index for searching them by words."""
        return WordIndex(self.analyzer, self.terms)

    @cached_property
    def by_document(self) -> Mapping[str, Sequence[Chunk]]:
        """The chunks of each document, by its id."""
        groups: defaultdict[str, list[Chunk]] = defaultdict(list)
        for chunk in self.chunks.values():
            groups[chunk.document_id].append(chunk)
        return groups

    @cached_property
    def fields(self) -> Mapping[str, FieldInfo]:
        """The fields that filters can name."""
        counter = FieldCounter()
        for chunk in self.chunks.values():
            counter.add(chunk_fields(chunk))
        return counter.catalogue()


@dataclass(frozen=True, slots=True)
class _Read:
    """A node that was read, with the hash that tells whether it changed."""

    hash: str | None
    chunk: Chunk | None
    terms: Counter[str]
    before: str | None
    after: str | None
    is_text: bool
    problem: str = ""


class DocstorePassages:
    """Reads the nodes of a docstore, and reads again those that changed.

    Where no ids are given, these are all its nodes but documents and nodes with children, which LlamaIndex keeps in
    docstores too and searches by neither vectors nor words.

    Args:
        docstore: Of any kind.
        analyzer: Turns passages into terms.
        node_ids: Returns the ids of the nodes that belong to the index; ``None`` for those said above.
        lists_text: Whether these ids are of all its nodes. For a vector store that keeps text LlamaIndex lists images
            and references only: if no other nodes are among them, all nodes of the docstore are read.
        refresh_seconds: How long nodes are used before the docstore is asked what changed. By default a docstore in
            this process is asked each time, and any other once in :data:`REFRESH_SECONDS`.
        now: Tells the time in seconds.
    """

    def __init__(
        self,
        docstore: BaseDocumentStore,
        analyzer: Analyzer,
        node_ids: Callable[[], Collection[str] | None],
        refresh_seconds: float | None,
        now: Callable[[], float],
        *,
        lists_text: bool = True,
    ) -> None:
        self._docstore = docstore
        self._analyzer = analyzer
        self._node_ids = node_ids
        self._lists_text = lists_text
        is_near = isinstance(docstore, SimpleDocumentStore)
        self._refresh = (0.0 if is_near else REFRESH_SECONDS) if refresh_seconds is None else refresh_seconds
        self._now = now
        self._lock = Lock()
        self._asked_at: float | None = None
        self._state: object = None
        self._read: dict[str, _Read] = {}
        self._passages = Passages(analyzer)

    def current(self) -> Passages:
        """Return the passages as they are now; it blocks while the docstore is read."""
        with self._lock:
            now = self._now()
            if self._asked_at is None or now - self._asked_at >= self._refresh:
                self._update()
                self._asked_at = now
            return self._passages

    def _update(self) -> None:
        listed = self._node_ids()
        wanted = None if listed is None else frozenset(listed)
        hashes = self._docstore.get_all_document_hashes()
        if (wanted, hashes) == self._state:
            return
        self._read = self._readings(wanted, hashes)
        if wanted is not None and not self._lists_text and not any(item.is_text for item in self._read.values()):
            self._read = self._readings(None, hashes)
        self._passages = _passages(self._analyzer, self._read)
        self._state = (wanted, hashes)

    def _readings(self, wanted: Collection[str] | None, hashes: Mapping[str, str]) -> dict[str, _Read]:
        # Of nodes that are the same it names one; the others are read again.
        hash_of = {name: value for value, name in hashes.items()}
        nodes = self._docstore.docs if wanted is None else None
        names = wanted if nodes is None else [name for name, node in nodes.items() if _is_passage(node)]
        known = {
            name: item for name in names or () if (item := self._read.get(name)) and hash_of.get(name) == item.hash
        }
        missing = [name for name in names or () if name not in known or known[name].hash is None]
        fresh = self._docstore.get_nodes(missing, raise_error=False) if nodes is None else map(nodes.get, missing)
        read = {node.node_id: self._reading(node, hash_of.get(node.node_id)) for node in fresh if node is not None}
        return known | read

    def _reading(self, node: BaseNode, value: str | None) -> _Read:
        chunk, terms, problem = None, Counter[str](), ""
        try:
            chunk = chunk_with_node(node)
            terms = Counter(self._analyzer.terms(chunk.indexed_text))
        except InvalidParameterError as error:
            problem = str(error)
        before, after = node.prev_node, node.next_node
        return _Read(
            value,
            chunk,
            terms,
            before=None if before is None else before.node_id,
            after=None if after is None else after.node_id,
            is_text=not isinstance(node, (ImageNode, IndexNode)),
            problem=problem,
        )


def _is_passage(node: BaseNode) -> bool:
    return not isinstance(node, Document) and not node.child_nodes


def _passages(analyzer: Analyzer, read: Mapping[str, _Read]) -> Passages:
    groups: defaultdict[str, dict[str, _Read]] = defaultdict(dict)
    for name, item in read.items():
        if item.chunk is not None:
            groups[item.chunk.document_id][name] = item
    return Passages(
        analyzer,
        chunks={chunk.id: chunk for chunk in chain.from_iterable(map(_placed, groups.values()))},
        terms={name: item.terms for name, item in read.items() if item.chunk is not None},
        unreadable={name: item.problem for name, item in read.items() if item.chunk is None},
        is_whole=any(item.is_text for item in read.values()),
    )


def _placed(group: Mapping[str, _Read]) -> Iterable[Chunk]:
    """Return the chunks of one document with their places in it, where these follow from the order of its nodes."""
    chunks = {name: cast("Chunk", item.chunk) for name, item in group.items()}
    if len(group) == 1 or any(chunk.chunk_index or chunk.total_chunks != 1 for chunk in chunks.values()):
        return chunks.values()
    firsts = [name for name, item in group.items() if item.before not in group]
    order: list[str] = []
    name: str | None = firsts[0] if len(firsts) == 1 else None
    while name is not None and name in group and len(order) < len(group):
        order.append(name)
        name = group[name].after
    if len(set(order)) < len(group):
        return chunks.values()
    return [replace(chunks[name], chunk_index=place, total_chunks=len(order)) for place, name in enumerate(order)]
