"""The view of one version of the table, which all that a call reads comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrieval_core.adapters.stores.lancedb.schema import any_of
from retrieval_core.errors import RetrievalError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from retrieval_core.adapters.stores.lancedb.commits import Commit
    from retrieval_core.ports import Manifest

ALL = 2**31 - 1
"""The limit that stands for none."""


class StaleViewError(RetrievalError):
    """Another thread has read a later version already; the read is repeated."""


class View:
    """A table at one version.

    Attributes:
        commit: The one that made the version.
        indexed: Columns of vectors that have an index.
        history: An object shared by all views of this process that came from one another by writes; a new one after
            another table, or an older copy, has taken the place.
    """

    def __init__(
        self, table: Any, commit: Commit, manifest: Manifest, indexed: frozenset[str], history: object
    ) -> None:
        self.table = table
        self.commit = commit
        self.manifest = manifest
        self.indexed = indexed
        self.history = history

    @property
    def version(self) -> int:
        """LanceDB's number, which grows with each commit."""
        return self.commit.version

    def select(self, where: str, columns: Sequence[str]) -> Any:
        """Return the rows for which an expression holds, as an Arrow table."""
        return self.table.search().where(where).limit(ALL).select(list(columns)).to_arrow()

    def select_named(
        self, column: str, digests: Iterable[str], columns: Sequence[str], more: str = ""
    ) -> Iterator[Any]:
        """Yield the rows that have one of these digests in a column, as Arrow tables.

        Args:
            more: An expression that must hold as well.
        """
        for where in any_of(column, digests):
            yield self.select(f"{where} AND {more}" if more else where, columns)

    def count(self, where: str) -> int:
        """Return for how many rows an expression holds."""
        return self.table.count_rows(where)
