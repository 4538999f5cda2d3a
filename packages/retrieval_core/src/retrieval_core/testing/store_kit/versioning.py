"""Every write shows, so that what was remembered of an index is never taken for what it is now."""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from retrieval_core.ports import Versioned
from retrieval_core.testing.store_kit.base import StoreTestBase, chunk, document, put

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.ports import Store


class VersionTests(StoreTestBase):
    """The promises of :class:`retrieval_core.ports.Versioned`; skipped for a store that is not."""

    def test_every_write_changes_the_version(self, tmp_path: Path) -> None:
        """Adding, replacing by the same and deleting change it; reading does not."""

        async def test(store: Store) -> None:
            if not isinstance(store, Versioned):
                pytest.skip("this store does not tell its version")
            seen = [await store.version()]
            assert seen == [None]
            for _ in range(2):
                await put(store, chunk("a", document="d"), documents=(document("d"),))
                seen.append(await store.version())
                await store.describe()
                assert await store.version() == seen[-1]
            await store.delete(["d"])
            seen.append(await store.version())
            assert None not in seen[1:]
            assert len(set(seen)) == len(seen)

        self.run(tmp_path, test)

    def test_two_indexes_have_two_versions(self, tmp_path: Path) -> None:
        """The same writes to another index give another version."""

        async def version_of_a_new_one(store: Store) -> None:
            if not isinstance(store, Versioned):
                pytest.skip("this store does not tell its version")
            await put(store, chunk("a"))
            versions.add(await store.version())

        versions: set[str | None] = set()
        for name in ("one", "other"):
            folder = tmp_path / name
            folder.mkdir()
            self.run(folder, version_of_a_new_one)
        assert len(versions) == 2
