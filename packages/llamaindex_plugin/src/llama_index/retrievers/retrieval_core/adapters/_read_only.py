"""What stores over parts of LlamaIndex have in common: they are read here, and written with LlamaIndex."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core.errors import StoreError
from retrieval_core.ports import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.ports import Change


class ReadOnlyStore(Store):
    """A store that refuses to be written.

    Args:
        location: Readable location, for messages.
        refusal: Says so, and what to do instead.
    """

    def __init__(self, location: str, refusal: str) -> None:
        self._location = location
        self._refusal = refusal

    @property
    def location(self) -> str:
        """Readable location, for messages."""
        return self._location

    async def _upsert(self, change: Change) -> None:  # noqa: ARG002 - as the port has it
        raise StoreError(self._refusal)

    async def _delete(self, document_ids: Sequence[str]) -> int:  # noqa: ARG002 - as the port has it
        raise StoreError(self._refusal)
