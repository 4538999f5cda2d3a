"""One process's session: the connection, its threads, the upkeep of the indexes on the disk, and the writers' lock."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from retrieval_core.adapters.stores.first_run import index_not_found, make_folder
from retrieval_core.adapters.stores.lancedb import schema
from retrieval_core.adapters.stores.lancedb.records import Commit, StaleViewError, View
from retrieval_core.adapters.stores.lancedb.schema import lancedb
from retrieval_core.adapters.stores.local import if_it_fails_again
from retrieval_core.errors import IndexFormatError, IndexNotFoundError, RetrievalError, StoreError
from retrieval_core.run.file_lock import one_writer
from retrieval_core.run.threads import ThreadPool

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from retrieval_core.adapters.stores.lancedb.search import Allowed, FieldCache
    from retrieval_core.ports import Manifest
    from retrieval_core.types.filters import Filter

T = TypeVar("T")

logger = logging.getLogger("retrieval_core")

READERS = 4
"""Searches at a time; LanceDB's own threads share out the work of each."""
FRESH_TRIES = 5
"""Attempts of a read whose version is outdated."""
SWEEP_WRITES = 64
"""Writes after which the indexes are updated: each leaves small files behind."""
SWEEP_ROWS = 5000
"""Rows after which the indexes are updated, or a tenth of the table if that is more; until then they are scanned."""
KEPT_VERSIONS = timedelta(days=1)
"""How long former versions are kept, for processes that still read them."""
VECTOR_INDEX_FROM = 20_000
"""The number of vectors from which they get an index; fewer are compared one by one, which is exact and as fast as
lexical search. Of 30,000 on two busy cores, comparing each took 150 ms, and the index 9 to 18 ms."""


class LanceDBSession:
    """An index that one process has open.

    Args:
        path: The folder; the first write makes it.
        table: Name of the table in it.
        busy_timeout: Seconds that a writer waits for another one.
        manifest: For a new index.
    """

    def __init__(self, path: Path, table: str, busy_timeout: float, manifest: Manifest) -> None:
        self.location = f"{path} (table {table})"
        self._path = path
        self._name = table
        self._busy_timeout = busy_timeout
        self._manifest = manifest
        self._readers = ThreadPool("lancedb-read", READERS)
        self._writer = ThreadPool("lancedb-write", 1)
        self._sweeper = ThreadPoolExecutor(1, "lancedb-sweep")
        self._sweeping: Future[None] | None = None
        self._lock = Lock()
        self._database: Any = None
        self._table: Any = None
        self._view: View | None = None
        self._writes = 0
        self._rows: int | None = None
        self._cache: FieldCache | None = None

    @property
    def is_open(self) -> bool:
        """Whether a version of the table has been read."""
        return self._view is not None

    async def read(self, function: Callable[[View], T]) -> T:
        """Run a function in a thread, on the newest version.

        Raises:
            IndexNotFoundError: There is no index yet.
            StoreError: The index cannot be read.
        """

        def work() -> T:
            with self._translated():
                for _ in range(FRESH_TRIES - 1):
                    try:
                        return function(self._newest())
                    except StaleViewError:
                        continue
                return function(self._newest())

        return await self._readers.run(work)

    async def write(self, function: Callable[[View, Any], tuple[T, int]]) -> T:
        """Run a function in a thread, while nobody else writes; the index is made where there is none.

        Args:
            function: Given the newest version and the table to write to, returns its result and how many rows it wrote.

        Raises:
            IndexBusyError: Another process wrote for longer than this one waits.
            StoreError: The index cannot be written.
        """

        def work() -> T:
            with self._translated():
                self._check_place()
                make_folder(self._path.parent)
                self._path.mkdir(exist_ok=True)
                with one_writer(self._lock_file, self._busy_timeout):
                    table = self._prepared()
                    result, rows = function(self._newest(), table)
                    self._note(table, rows)
                    return result

        return await self._writer.run(work)

    def allowed(self, view: View, condition: Filter) -> Allowed:
        """Return the passages that match a filter."""
        from retrieval_core.adapters.stores.lancedb.search import FieldCache  # noqa: PLC0415 - numpy is slow to import

        with self._lock:
            cache = self._cache = self._cache or FieldCache()
        return cache.get(view, condition)

    async def sweep(self) -> None:
        """Update the indexes, and wait for it."""

        def work() -> None:
            with self._translated():
                self._sweep()

        await self._writer.run(work)

    def close(self) -> None:
        """Wait for what runs, and update the indexes where much was written. Blocks."""
        self._writer.close()
        self._readers.close()
        if (self._rows or 0) >= SWEEP_ROWS // 10:
            self._sweep_soon()
        self._sweeper.shutdown(wait=True)
        self._let_go()

    @property
    def _lock_file(self) -> Path:
        return self._path / f"{self._name}.lock"

    def _check_place(self) -> None:
        if self._path.exists() and not self._path.is_dir():
            msg = f"{self._path} is a file, and LanceDB keeps an index in a folder; choose another place for it"
            raise IndexFormatError(msg)

    @property
    def _folder(self) -> Path:
        return self._path / f"{self._name}.lance"

    def _exists(self) -> bool:
        return self._folder.is_dir()

    def _let_go_of_another(self) -> None:
        """Drop the open table where another index, or an older copy, has taken its place."""
        if self._view is not None and not self._view.commit.is_there:
            self._let_go()

    def _let_go(self) -> None:
        """Drop the open table and the connection, which caches files by name."""
        self._view = self._table = self._database = None

    def _not_found(self) -> IndexNotFoundError:
        return index_not_found(self._path, self.location)

    def _newest(self) -> View:
        """Return the newest version, opened only where it is another one than the last time."""
        self._check_place()
        if not self._exists():
            with self._lock:
                self._let_go()
            raise self._not_found()
        with self._lock:
            self._let_go_of_another()
            if self._table is None:
                self._table = self._connection().open_table(self._name)
            version = self._table.version
            if self._view is None or self._view.version != version:
                table = self._connection().open_table(self._name)
                table.checkout(version)
                manifest = schema.read_about(table.schema, self.location)
                indexes = {index.name: index.columns for index in table.list_indices()}
                if schema.WORDS_INDEX not in indexes:  # whoever made the table did not get to its end
                    raise self._not_found()
                is_indexed = any(columns[0] == schema.VECTOR for columns in indexes.values())
                history = object() if self._view is None else self._view.history
                self._view = View(
                    table, Commit(self._folder, version), manifest, is_indexed=is_indexed, history=history
                )
            return self._view

    def _connection(self) -> Any:
        if self._database is None:
            # Without the interval an open table would never see what other processes write.
            self._database = lancedb().connect(self._path, read_consistency_interval=timedelta(0))
        return self._database

    def _prepared(self) -> Any:
        """Return the table to write to, making what is missing of it, also after a process that was killed at it."""
        kinds = lancedb().index
        with self._lock:
            self._let_go_of_another()
            if not self._exists():
                made = schema.arrow_schema(self._manifest, is_whole=True)
                self._let_go()
                self._table = self._connection().create_table(self._name, schema=made)
            elif self._table is None:
                self._table = self._connection().open_table(self._name)
            table = self._table
        missing = {
            name: f"cast(NULL as {kind})" for name, kind in schema.LATER.items() if name not in table.schema.names
        }
        if missing:
            schema.read_about(table.schema, self.location)
            table.add_columns(missing)
        if self._view is not None:
            return table
        schema.read_about(table.schema, self.location)
        there = {index.columns[0] for index in table.list_indices()}
        for column in schema.LOOKED_UP:
            if column not in there:
                table.create_index(column, config=kinds.BTree())
        if "terms" not in there:
            # The words are analysed already: LanceDB only splits them at spaces.
            words = kinds.FTS(
                base_tokenizer="whitespace",
                stem=False,
                remove_stop_words=False,
                lower_case=False,
                ascii_folding=False,
                max_token_length=None,
                with_position=False,
            )
            table.create_index("terms", config=words, name=schema.WORDS_INDEX)
        return table

    def _note(self, table: Any, rows: int) -> None:
        self._writes += 1
        if self._rows is None:  # whoever wrote before may have left some
            waiting = int(table.index_stats(schema.WORDS_INDEX).num_unindexed_rows)
        else:
            waiting = self._rows + rows
        self._rows = waiting
        if self._writes < SWEEP_WRITES:
            if waiting < SWEEP_ROWS:
                return
            if waiting * 10 < table.index_stats(schema.WORDS_INDEX).num_indexed_rows:
                return
        self._sweep_soon()

    def _sweep_soon(self) -> None:
        if self._sweeping is None or self._sweeping.done():
            self._sweeping = self._sweeper.submit(self._quiet_sweep)

    def _quiet_sweep(self) -> None:
        try:
            self._sweep()
        except Exception:  # everything is still there and found, only more slowly
            logger.warning("%s: its indexes could not be brought up to date", self.location, exc_info=True)

    def _sweep(self) -> None:
        """Drop rows that are gone, index new ones, join small files, and remove old versions."""
        if not self._exists():
            return
        with one_writer(self._lock_file, self._busy_timeout):
            table = self._prepared()
            if table.count_rows(schema.is_record("gone")):
                table.delete(schema.is_record("gone"))
            self._index_vectors(table)
            table.optimize(cleanup_older_than=KEPT_VERSIONS)
            self._writes, self._rows = 0, 0

    def _index_vectors(self, table: Any) -> None:
        column = schema.VECTOR
        if column not in table.schema.names or any(index.columns[0] == column for index in table.list_indices()):
            return
        if table.count_rows(f"{column} IS NOT NULL") >= VECTOR_INDEX_FROM:
            table.create_index(column, config=lancedb().index.IvfSq(distance_type="cosine"))

    @contextmanager
    def _translated(self) -> Generator[None, None, None]:
        try:
            yield
        except RetrievalError:
            raise
        except Exception as error:  # LanceDB raises ValueError, RuntimeError and OSError alike
            with self._lock:
                self._let_go()  # perhaps another index has come into its place
            msg = f"{self.location}: LanceDB failed: {error}. {if_it_fails_again(self._folder)}"
            raise StoreError(msg) from error
