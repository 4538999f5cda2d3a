"""What stores over parts of LlamaIndex have in common: they are read here, and written with LlamaIndex."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from retrieval_core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.ports import Change


class ReadOnlyStore:
    """A store that refuses to be written.

    Args:
        refusal: Says so, and what to do instead.
    """

    def __init__(self, refusal: str) -> None:
        self._refusal = refusal
        self._closed = False

    async def upsert(self, change: Change) -> None:  # noqa: ARG002 - as the port has it
        """Refuse to write.

        Raises:
            StoreError: Always.
        """
        self._refuse()

    async def delete(self, document_ids: Sequence[str]) -> int:  # noqa: ARG002 - as the port has it
        """Refuse to write.

        Raises:
            StoreError: Always.
        """
        self._refuse()

    def _check_open(self) -> None:
        if self._closed:
            msg = "the store is closed"
            raise StoreError(msg)

    def _refuse(self) -> NoReturn:
        self._check_open()
        raise StoreError(self._refusal)
