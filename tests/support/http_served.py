"""What the tests of the contract ask: a service over documents that tell of themselves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from support.http_service import Served, Service


@pytest.fixture
def served(tmp_path: Path) -> Served:
    """Run a test against a service over the documents."""
    from support.http_service import DOCUMENTS, opened, serving  # the package may not be installed

    def run(
        test: Callable[[Service], Awaitable[None]], *, index: Mapping[str, Any] | None = None, **settings: Any
    ) -> None:
        async def asked() -> None:
            docs = opened(tmp_path / "docs.db", **(index or {}))
            if not (tmp_path / "docs.db").exists() and "parts" not in (index or {}):
                await docs.aadd_documents(DOCUMENTS)
            async with serving({"docs": docs}, **settings) as service:
                await test(service)

        asyncio.run(asked())

    return run
