"""The view of one version of the table, which all that a call reads comes from."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from retrieval_core.adapters.stores.lancedb.schema import any_of
from retrieval_core.errors import RetrievalError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from retrieval_core.ports import Manifest

ALL = 2**31 - 1
"""The limit that stands for none."""
_LAST = 2**64 - 1


class StaleViewError(RetrievalError):
    """Another thread has read a later version already; the read is repeated."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a table, identified by the file that it leaves; a copy of the table shares it.

    Attributes:
        version: LanceDB's number. A table that was restored from a copy counts on from its own, so it may recur.
        token: Hash of the file that LanceDB writes for each commit, which holds a random name.
    """

    table: Path
    version: int
    token: str = field(init=False)
    _stamp: tuple[int, int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_stamp", self._stamp_now())
        object.__setattr__(self, "token", self._token_now())

    @property
    def is_there(self) -> bool:
        """Whether the table still has this very commit; costs one look at a file's status."""
        try:
            return self._stamp_now() == self._stamp or self._token_now() == self.token
        except FileNotFoundError:
            return False

    @property
    def _file(self) -> Path:
        # LanceDB counts down in the names, so that the last commit is the first in a list.
        return self.table / "_versions" / f"{_LAST - self.version:020}.manifest"

    def _stamp_now(self) -> tuple[int, int, int]:
        status = self._file.stat()
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _token_now(self) -> str:
        return blake2b(self._file.read_bytes(), digest_size=16).hexdigest()


class View:
    """A table at one version.

    Attributes:
        commit: The one that made the version.
        is_indexed: Whether the vectors have an index.
        history: An object shared by all views of this process that came from one another by writes; a new one after
            another table, or an older copy, has taken the place.
        lost: How many chunks lack a part, by its column; filled by searches.
    """

    def __init__(self, table: Any, commit: Commit, manifest: Manifest, *, is_indexed: bool, history: object) -> None:
        self.table = table
        self.commit = commit
        self.manifest = manifest
        self.is_indexed = is_indexed
        self.history = history
        self.lost: dict[str, int] = {}

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
