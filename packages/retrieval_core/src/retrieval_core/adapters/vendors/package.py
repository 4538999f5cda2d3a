"""Importing a vendor's package before the first query, whose deadline would otherwise pay for it."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from importlib import import_module
from typing import ClassVar


class LoadsPackage:
    """A plug-in whose first call imports a vendor's package, which takes seconds on a busy machine."""

    package: ClassVar[str]

    @property
    def is_loaded(self) -> bool:
        """Whether the package is imported."""
        return self.package in sys.modules

    async def load(self) -> None:
        """Import the package; if it is missing, the first call says so."""
        with suppress(ImportError):
            await asyncio.to_thread(import_module, self.package)
