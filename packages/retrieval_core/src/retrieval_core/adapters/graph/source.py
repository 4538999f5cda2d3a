"""A graph that is read from files, again when one of them changes."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from retrieval_core.adapters.graph.knowledge import KnowledgeGraph
from retrieval_core.adapters.graph.triples import MOST_BYTES, Triple, read_lines
from retrieval_core.errors import ConfigurationError
from retrieval_core.run.lazy import Lazy

if TYPE_CHECKING:
    from collections.abc import Iterable

    Stamp = tuple[int, int, int] | None
    """Inode, size and time of the last change; ``None`` for a file that is not there."""


class GraphFiles:
    """The graph of one or several files of :mod:`~retrieval_core.adapters.graph.triples`, one JSON object a line.

    Args:
        required: Files that must be there.
        optional: Files that need not be, such as the one that indexing makes.
    """

    def __init__(self, *required: str | Path, optional: Iterable[str | Path] = ()) -> None:
        self._required = tuple(map(Path, required))
        self._paths = (*self._required, *map(Path, optional))
        self._lock = Lock()
        self._stamps: tuple[Stamp, ...] | None = None
        self._graph: Lazy[KnowledgeGraph] = Lazy(self._read)

    def get(self) -> KnowledgeGraph:
        """Return the graph of the files, reading them again if one has changed. Blocks.

        Several threads share one reading. A change while they are read is found by the next call.

        Raises:
            ConfigurationError: A file is missing, unreadable, or holds a line that is no triple.
            MissingExtraError: The extra ``graph`` is not installed.
        """
        stamps = tuple(self._stamp(path) for path in self._paths)
        with self._lock:
            if stamps != self._stamps:
                self._stamps, self._graph = stamps, Lazy(self._read)
            graph = self._graph
        return graph.get()

    def _stamp(self, path: Path) -> Stamp:
        try:
            stamp = stamp_of(path)
        except OSError as error:
            raise _unreadable(path, error) from error
        if stamp is None and path in self._required:
            msg = f"graph.file: there is no file {path}; it holds the triples of the knowledge graph, one a line"
            raise ConfigurationError(msg)
        return stamp

    def _read(self) -> KnowledgeGraph:
        return KnowledgeGraph(triple for path in self._paths for triple in self._triples(path))

    def _triples(self, path: Path) -> Iterable[Triple]:
        try:
            data = read_file(path)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise _unreadable(path, error) from error
        return (item for item in read_lines(data, path) if isinstance(item, Triple))


def stamp_of(path: Path) -> Stamp:
    """Return a file's stamp, which differs when it changes; ``None`` where it is missing.

    Raises:
        OSError: It cannot be read.
    """
    try:
        state = path.stat()
    except FileNotFoundError:
        return None
    return state.st_ino, state.st_size, state.st_mtime_ns


def read_file(path: Path) -> bytes:
    """Return a file's content, at most :data:`MOST_BYTES` and one more.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        return file.read(MOST_BYTES + 1)


def _unreadable(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"graph.file: {path} cannot be read ({error.strerror or type(error).__name__})")
