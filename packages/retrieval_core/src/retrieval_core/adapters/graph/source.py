"""A graph that is read from files, and read again if one of them changes."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from retrieval_core.adapters.graph.knowledge import KnowledgeGraph
from retrieval_core.adapters.graph.triples import MOST_BYTES, read_lines
from retrieval_core.errors import ConfigurationError
from retrieval_core.run.caching import Lazy

if TYPE_CHECKING:
    Stamp = tuple[int, int, int]
    """Inode, size and time of the last change."""


class GraphFiles:
    """The graph of one or several files of :mod:`~retrieval_core.adapters.graph.triples`, one JSON object a line.

    Args:
        paths: The files.
    """

    def __init__(self, *paths: str | Path) -> None:
        self._paths = tuple(map(Path, paths))
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
        stamps = tuple(map(_stamp_of, self._paths))
        with self._lock:
            if stamps != self._stamps:
                self._stamps, self._graph = stamps, Lazy(self._read)
            graph = self._graph
        return graph.get()

    def _read(self) -> KnowledgeGraph:
        return KnowledgeGraph(triple for path in self._paths for triple in read_lines(_read_file(path), path))


def _stamp_of(path: Path) -> Stamp:
    """Return a file's stamp, which differs if the file changes."""
    try:
        state = path.stat()
    except FileNotFoundError as error:
        msg = f"graph.file: there is no file {path}. Set it to a file of triples, one JSON object a line"
        raise ConfigurationError(msg) from error
    except OSError as error:
        raise _unreadable(path, error) from error
    return state.st_ino, state.st_size, state.st_mtime_ns


def _read_file(path: Path) -> bytes:
    """Return a file's content, at most :data:`MOST_BYTES` and one more."""
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"graph.file: {path} cannot be read ({error.strerror or type(error).__name__})")
