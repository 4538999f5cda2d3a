"""Commits of LanceDB, identified by the file that each one leaves, as their numbers can recur."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_LAST = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a table; a copy of the table shares it.

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
