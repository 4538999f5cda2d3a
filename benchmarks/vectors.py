"""The local model, which embeds no text twice: vectors are kept in a file.

The file is ``FOLDER/MODEL.db``, where ``MODEL`` is a digest of the embedder's id. Its one table,
``vectors(hash, vector)``, has the SHA-256 of the exact text that the model is given (a question's begins with the
model's prefix), and float32 numbers in the machine's order. Several processes may use it at once.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from retrieval_core.adapters.embedders.local import BGE_SMALL_EN, LocalEmbedder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from retrieval_core.types import Matrix, Vector

BLOCK = 256
"""Texts that are embedded before their vectors are written."""
PATIENCE = 60
"""Seconds to wait for another process that writes."""
_READ = 500


class KeptVectors(LocalEmbedder):
    """An embedder whose vectors outlive it.

    Args:
        folder: For the file; made where it is missing.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(BGE_SMALL_EN)
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / f"{hashlib.sha256(self.id.encode()).hexdigest()[:16]}.db"
        with closing(sqlite3.connect(self._file, timeout=PATIENCE)) as file:
            file.execute("PRAGMA journal_mode = WAL")
            file.execute("CREATE TABLE IF NOT EXISTS vectors(hash BLOB PRIMARY KEY, vector BLOB)")

    async def embed_query(self, text: str) -> Vector:
        """Embed one question."""
        return (await self.embed_queries([text]))[0]

    async def embed_queries(self, texts: Sequence[str]) -> Matrix:
        """Embed questions."""
        return await self.embed_texts([BGE_SMALL_EN.query_prefix + text for text in texts])

    async def embed_texts(self, texts: Sequence[str]) -> Matrix:
        """Embed what is not kept, and keep it."""
        wanted = {hashlib.sha256(text.encode()).digest(): text for text in texts}
        known = await asyncio.to_thread(self._read, [*wanted])
        new = [key for key in wanted if key not in known]
        for start in range(0, len(new), BLOCK):
            if len(new) > BLOCK:
                print(f"embedding {start:,} of {len(new):,}", end="\r", file=sys.stderr, flush=True)
            keys = new[start : start + BLOCK]
            vectors = await super().embed_texts([wanted[key] for key in keys])
            made = {key: vector.tobytes() for key, vector in zip(keys, vectors, strict=True)}
            await asyncio.to_thread(self._write, made)
            known |= made
        rows = [np.frombuffer(known[hashlib.sha256(text.encode()).digest()], dtype=np.float32) for text in texts]
        return np.stack(rows) if rows else np.empty((0, self.dimension), dtype=np.float32)

    def _read(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        known: dict[bytes, bytes] = {}
        with closing(sqlite3.connect(self._file, timeout=PATIENCE)) as file:
            for start in range(0, len(keys), _READ):
                part = keys[start : start + _READ]
                marks = ",".join("?" * len(part))
                known |= file.execute(f"SELECT hash, vector FROM vectors WHERE hash IN ({marks})", part)
        return known

    def _write(self, made: Mapping[bytes, bytes]) -> None:
        with closing(sqlite3.connect(self._file, timeout=PATIENCE)) as file, file:
            file.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", made.items())
