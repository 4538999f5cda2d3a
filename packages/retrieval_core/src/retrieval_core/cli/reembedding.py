"""``retrieval doctor``: explain what a change of the embedder costs."""

from __future__ import annotations

import asyncio
import shlex
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from posixpath import commonpath
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.adapters.registry import build_analyzer, build_embedder, build_store
from retrieval_core.cli.messages import count
from retrieval_core.cli.probes import MODEL_SECONDS, SERVICE_SECONDS, Finding, bounded, secrets_in
from retrieval_core.errors import IncompleteSearchError, RetrievalError
from retrieval_core.ports import FetchRequest, SearchRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.ports import CataloguedStore, Embedder, Manifest

SAMPLE = 16
"""Passages that are embedded to measure how long that takes."""
_MOST_PATHS = 5
# Where vectors of another dimension can be kept, for stores that are no file.
_PLACES = {"pinecone": "store.pinecone.index_name", "qdrant": "store.qdrant.collection"}


@dataclass(frozen=True, slots=True)
class _Contents:
    """An index that another embedder has filled."""

    manifest: Manifest
    location: str
    documents: int
    chunks: int
    files: int
    from_files: int
    paths: tuple[str, ...]
    texts: tuple[str, ...]


def examine_change(config: RetrievalConfig) -> tuple[Finding, ...]:
    """Say what a change of the embedder costs; nothing where index and embedder go together, or one cannot be read."""
    try:
        embedder = build_embedder(config.embedder)
        if embedder is None:
            return ()
        contents = asyncio.run(_contents(config, embedder.id))
    except Exception:  # noqa: BLE001 - whatever it is, it has a finding of its own
        return ()
    if contents is None:
        return ()
    found = bounded(
        "embedder change",
        MODEL_SECONDS,
        lambda: asyncio.run(_told(config, embedder, contents)),
        frozenset(secrets_in(config)),
    )
    return (replace(found, verdict="wrong"),)


async def _contents(config: RetrievalConfig, embedder_id: str) -> _Contents | None:
    """Look into the index; ``None`` where the configured embedder has filled it, or none has."""
    async with AsyncExitStack() as stack, asyncio.timeout(SERVICE_SECONDS):

        def opened(manifest: Manifest | None) -> CataloguedStore:
            analyzer = build_analyzer(config.analysis)
            # It is opened as by the embedder that filled it, of which only the name is needed to read.
            stand_in = cast("Embedder", _Named(manifest.embedder_id, manifest.dimension)) if manifest else None
            store = build_store(config.store, Path(config.index), stand_in, analyzer=analyzer)
            stack.push_async_callback(store.aclose)
            return store

        info = await opened(None).describe()
        manifest = info.manifest
        if manifest is None or manifest.dimension is None or manifest.embedder_id == embedder_id:
            return None
        store = opened(manifest)
        states = (await store.sources()).values()
        return _Contents(
            manifest,
            info.location,
            info.documents,
            info.chunks,
            len(states),
            sum(state.documents for state in states),
            _common_paths(state.source for state in states),
            await _some_texts(store, manifest.dimension),
        )


@dataclass(frozen=True, slots=True)
class _Named:
    id: str | None
    dimension: int | None


async def _some_texts(store: CataloguedStore, dimension: int) -> tuple[str, ...]:
    """Return the texts of some passages, those whose vectors happen to be nearest to an arbitrary one."""
    import numpy as np  # noqa: PLC0415 - slow to load

    vector = np.full(dimension, dimension**-0.5, dtype=np.float32)
    try:
        found = await store.search(SearchRequest(SAMPLE, vector=vector))
    except IncompleteSearchError as error:
        found = error.found
    chunks = (await store.fetch(FetchRequest(tuple(candidate.chunk_id for candidate in found)))).chunks
    return tuple(chunk.indexed_text for chunk in chunks.values())


async def _told(config: RetrievalConfig, embedder: Embedder, contents: _Contents) -> str:
    """Measure how fast the configured embedder is here, and say what follows."""
    aclose: Any = getattr(embedder, "aclose", None)
    try:
        async with asyncio.timeout(MODEL_SECONDS):
            rate = await _passages_per_second(embedder, contents.texts)
    except (RetrievalError, TimeoutError):
        rate = None  # the embedder has a finding of its own
    finally:
        if aclose is not None:
            await aclose()
    manifest = contents.manifest
    same = (manifest.embedder_id or "").partition("@")[0] == embedder.id.partition("@")[0]
    duration = f" in about {_duration(contents.chunks / rate)} ({rate:,.1f} chunks/s on this machine)" if rate else ""
    kind = ", the same model with other files, prefixes, pooling, length or dimension" if same else ""
    return (
        f"{contents.location} was built with {manifest.embedder_id} ({manifest.dimension} dimensions), but "
        f"{embedder.id} ({embedder.dimension} dimensions) is configured{kind}. To change, embed "
        f"{count(contents.documents, 'document')} ({count(contents.chunks, 'chunk')}) again{duration}. "
        f"{_remedy(config, contents)}"
    )


def _remedy(config: RetrievalConfig, contents: _Contents) -> str:
    """Say what to run."""
    place = _PLACES.get(config.store.kind)
    where = f"with another {place}" if place else f"--index {shlex.quote(_beside(config.index))}"
    lines: list[str] = []
    if contents.files:
        paths = " ".join(map(shlex.quote, contents.paths)) or "PATH..."
        lines.append(f"Run: retrieval index {paths} {where}. Then use that index.")
    if (others := contents.documents - contents.from_files) > 0:
        lines.append(f"Add the documents that aren't from files ({others:,}) with the program that added them.")
    lines.append(f"To keep the index, configure {contents.manifest.embedder_id} again.")
    return " ".join(lines)


def _beside(index: str) -> str:
    path = Path(index)
    return str(path.with_name(f"{path.stem}-new{path.suffix}"))


def _common_paths(sources: Iterable[str]) -> tuple[str, ...]:
    """Return few files and folders that hold all sources: of those in one folder, the deepest that holds them."""
    groups: dict[str, list[str]] = {}
    for source in sources:
        groups.setdefault(PurePosixPath(source).parts[0], []).append(source)
    if len(groups) > _MOST_PATHS:
        return ()
    return tuple(sorted(group[0] if len(group) == 1 else commonpath(group) for group in groups.values()))


async def _passages_per_second(embedder: Embedder, texts: tuple[str, ...]) -> float | None:
    if not texts:
        return None
    await embedder.embed_texts(texts[:1])  # loads the model
    started = time.perf_counter()
    await embedder.embed_texts(texts)
    return len(texts) / (time.perf_counter() - started)


def _duration(seconds: float) -> str:
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(1, seconds):.0f} s"
