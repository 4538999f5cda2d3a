"""The marker of an index that is a copy in the making: a document of it, so that every store can keep one."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from retrieval_core.errors import IndexNotFoundError, InvalidParameterError, StoreError, UnsupportedError
from retrieval_core.ports.plugin import call_plugin
from retrieval_core.ports.stores import COPY_MARKER
from retrieval_core.types import Document

if TYPE_CHECKING:
    from collections.abc import Iterable

    from retrieval_core.ports import Store

_TEXT = "This index is a copy that is not complete. To complete it, run the same command again: retrieval copy FROM TO"


@dataclass(frozen=True, slots=True)
class CopyMarker:
    """The state of a copy.

    Attributes:
        source: Location of the index that is copied.
        version: Version of that index when the copy was begun or continued; ``None`` if its store has none.
        after: All documents up to this ID are copied, in the order of their IDs.
        done: How many documents these are.
        total: How many documents the index had.
    """

    source: str
    version: str | None
    after: str = ""
    done: int = 0
    total: int = 0

    def document(self) -> Document:
        """Return the document that keeps the state; its hash is the one field that every store returns unread."""
        return Document(COPY_MARKER, _TEXT, COPY_MARKER, json.dumps(asdict(self)))

    @property
    def note(self) -> str:
        """How much is copied, for people."""
        return f"at least {self.done:,} of {self.total:,} documents copied so far"


async def read_marker(store: Store) -> CopyMarker | None:
    """Return the state of the copy that an index is; ``None`` if it is whole, or its store can't say.

    Raises:
        RetrievalError: The index can't be read.
    """
    if "documents_of" not in store.capabilities:
        return None
    try:
        kept = (await call_plugin(store.documents_of, COPY_MARKER)).get(COPY_MARKER)
    except (IndexNotFoundError, UnsupportedError):
        return None
    try:
        return None if kept is None else CopyMarker(**json.loads(kept))
    except (TypeError, ValueError):
        return CopyMarker("another version of retrieval-core", None)


def refuse_marker_id(document_ids: Iterable[str]) -> None:
    """Refuse documents of a user that would make an index look like a copy in the making, to all of its users.

    Raises:
        InvalidParameterError: One has the ID of the marker.
    """
    if COPY_MARKER in document_ids:
        msg = f"the document ID {COPY_MARKER!r} is reserved for retrieval copy: choose another one"
        raise InvalidParameterError(msg)


async def refuse_unfinished_copy(store: Store) -> None:
    """Refuse to change an index that is a copy in the making.

    Raises:
        StoreError: It is one: completing the copy would undo the change.
    """
    if (marker := await read_marker(store)) is not None:
        msg = (
            f"{store.location} is a copy of {marker.source} that is not complete ({marker.note}). Complete it first: "
            "retrieval copy FROM TO"
        )
        raise StoreError(msg)
