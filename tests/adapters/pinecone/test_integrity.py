"""Comparing an index at Pinecone, which keeps no texts of documents, with the files that it was made of."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pinecone", reason="Pinecone's client is an extra: pip install 'retrieval-core[pinecone]'")

from retrieval_core import open_index
from retrieval_core.config import load_config
from retrieval_core.ports import Change
from retrieval_core.testing.fakes import FakeEmbedder
from support.pinecone_service import PineconeService
from support.pinecone_support import store_of
from support.wire_server import WireServer

if TYPE_CHECKING:
    from pathlib import Path


def test_files_stand_in_for_texts_that_are_not_kept(tmp_path: Path) -> None:
    """A chunk that was changed is found by reading its file again, and repaired; without the file nothing is proved."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.md").write_text(f"# {name}\n\nAll about {name}.", encoding="utf-8")
    embedder = FakeEmbedder()
    with WireServer(PineconeService(embedder.dimension, "dotproduct")) as server:
        store = store_of(server, embedder_id=embedder.id, dimension=embedder.dimension, sparse=True)
        with open_index(tmp_path / "none.db", config=load_config(), embedder=embedder, store=store) as index:
            index.ingest(tmp_path)
            report = index.check_integrity()
            assert (report.verdict, report.documents, report.chunks) == ("clean", 2, 2)
            found = index.validate("one.md#0")
            assert found is not None
            assert found.validation_passed
            (chunk,) = index.retrieve("one", {"source": "one.md"}, top_k=1).documents
            altered = replace(chunk, text=chunk.text.replace("All", "Nothing"), content_hash="")
            vectors = asyncio.run(embedder.embed_texts([altered.indexed_text]))
            index.sync.run(store.upsert(Change(chunks=(altered,), vectors=vectors)))
            (mismatch,) = index.check_integrity().mismatches
            assert (mismatch.chunk_id, mismatch.stored_text) == ("one.md#0", altered.text)
            report = index.check_integrity(repair=True)
            assert (report.verdict, report.repaired) == ("clean", ("one.md",))
            (tmp_path / "two.md").unlink()
            report = index.check_integrity()
            assert (report.verdict, report.unverifiable, report.absent_sources) == ("unverifiable", 1, ("two.md",))
