"""Where an index is, and its settings: those that it remembers, a ``retrieval.toml`` beside it, and the given ones."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retrieval_core.adapters.stores.settings_memory import lancedb_folder, read_from_file, read_from_folder
from retrieval_core.config import RetrievalConfig, moved
from retrieval_core.config.base import nested_tree
from retrieval_core.config.loading import Layer, explicit_tree, load_over, merge_layers, read_toml
from retrieval_core.config.remembered import names_code, read_remembered, remember
from retrieval_core.errors import ConfigurationError, RetrievalError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from retrieval_core.ports import Change, Store

FILE_NAME = "retrieval.toml"
"""Looked for in the folder of an index, then in :func:`base_folder`."""
REMEMBERED = "the index"
"""Names the source of the settings that an index remembers."""
DEFAULT_TABLE = "text_pages"
ON_DISK = frozenset({"sqlite", "lancedb"})
"""Kinds of stores that keep an index in a file or folder of this machine."""

logger = logging.getLogger(__name__)


def load_index_config(
    index: str | Path | None = None,
    *,
    file: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> RetrievalConfig:
    """Load the settings for an index, weakest source first.

    These are the defaults, the settings that the index remembers, ``retrieval.toml`` beside it, the file or preset,
    the environment, and the overrides.

    Args:
        index: The index file; the one that the sources name if it is not given.
        file: A TOML file, or the name of a preset.
        overrides: As of :func:`retrieval_core.load_config`.
        environment: For instance ``os.environ``; ``None`` leaves the environment out.

    Raises:
        ConfigurationError: A setting is wrong, or a file can't be read.
    """
    overrides = {**(overrides or {}), **({} if index is None else {"index": str(index)})}
    environment = environment or {}
    try:
        layers, warnings = _beneath(explicit_tree(file, overrides, environment), file)
    except RecursionError:  # what was given is nested too deeply, which is reported below
        layers, warnings = [], ()
    for warning in warnings:
        logger.warning("%s", warning)
    return load_over(layers, file, overrides, environment, warnings)


def load_settings_of(place: str | Path, environment: Mapping[str, str] | None = None) -> RetrievalConfig:
    """Load the settings for an index that is named by its place only.

    Args:
        place: A ``.toml`` file with settings, an index file, or the folder of an index that LanceDB keeps. What is not
            there is a folder for LanceDB if its name ends with ``.lance``, otherwise an index file.
        environment: For instance ``os.environ``; ``None`` leaves the environment out.

    Raises:
        ConfigurationError: A setting is wrong, or a file can't be read.
    """
    path = Path(place)
    if path.suffix == ".toml":
        return load_index_config(file=path, environment=environment)
    is_folder = path.suffix == ".lance" or path.is_dir() or (not path.exists() and lancedb_folder(path).is_dir())
    kind = "lancedb" if is_folder else "sqlite"
    # A file with settings beside it may already choose the store that the index is about to be copied to.
    return load_index_config(path, overrides={"store.kind": kind}, environment=environment)


def load_shared_config(
    indexes: Iterable[str | Path],
    *,
    file: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> RetrievalConfig:
    """Load the settings for several indexes that are searched as one: on top of those that all of them have alike.

    Raises:
        ConfigurationError: As of :func:`load_index_config`.
    """
    overrides, environment = overrides or {}, environment or {}
    each = [merge_layers(_beneath({"index": str(index)}, file)[0]) for index in indexes]
    alike = _alike(each) if each else {}
    alike.pop("index", None)
    return load_over([Layer("the indexes", alike)], file, overrides, environment)


def _alike(trees: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the settings that several trees have with the same values."""
    first, *others = trees
    alike: dict[str, Any] = {}
    for key, value in first.items():
        if not all(key in other for other in others):
            continue
        if isinstance(value, dict) and all(isinstance(other[key], dict) for other in others):
            alike[key] = _alike([_table(tree, key) for tree in trees])
        elif all(other[key] == value for other in others):
            alike[key] = value
    return alike


def config_for(config: RetrievalConfig, index: str) -> RetrievalConfig:
    """Return settings for another index: loaded anew if they were loaded for one, else the same."""
    sources = config.provenance
    if sources is None:
        return config.model_copy(update={"index": index})
    return load_index_config(index, file=sources.file, overrides=sources.overrides, environment=sources.environment)


def named_file(text: str) -> tuple[str, str]:
    """Return name and path of ``NAME=FILE``; the name is empty if there is none.

    A file that is there may have an equals sign in its own name, and each path behind a separator of folders.
    """
    name, equals, file = text.partition("=")
    return (name, file) if equals and not Path(text).exists() and not {"/", "\\"} & set(name) else ("", text)


def base_folder(index: Path) -> Path:
    """Return the folder that names of documents are relative to: the one that holds ``.retrieval``, or the index."""
    parent = index.absolute().parent
    return parent.parent if parent.name == ".retrieval" else parent


def place_of(config: RetrievalConfig, index: str | Path | None = None) -> Path:
    """Return the file or folder of an index, if its store keeps it in one; by default of the configured index."""
    path = Path(index or config.index)
    return lancedb_folder(path) if config.store.kind == "lancedb" else path


def store_name(config: RetrievalConfig, location: str) -> str | None:
    """Return the name of the store that is filled, for people; ``None`` for a file or folder that is not there.

    Args:
        location: As the store calls it.
    """
    store = config.store
    match store.kind:
        case kind if kind in ON_DISK:
            place = place_of(config)
            return str(place) if place.exists() else None
        case "qdrant":
            where = store.qdrant.path or store.qdrant.url
            return f"the Qdrant collection {store.qdrant.collection} at {where}"
        case "postgres":
            return f"the {location}"
        case "pinecone":
            namespace = f", namespace {store.pinecone.namespace}" * bool(store.pinecone.namespace)
            return f"the Pinecone index {store.pinecone.index_name or store.pinecone.host}{namespace}"
        case "memory":
            return "memory, which is lost when the process ends"
        case kind:
            return f"the store {kind} at {location}"


def find_settings_file(index: Path) -> Path | None:
    """Return the ``retrieval.toml`` beside an index; ``None`` if there is none."""
    try:
        folder, base = index.absolute().parent, base_folder(index)
    except OSError:  # the current folder is gone
        return None
    folders = dict.fromkeys((folder, base))
    return next((_short(file) for one in folders if _is_meant(file := one / FILE_NAME)), None)


def _is_meant(file: Path) -> bool:
    """Return whether there is a file of settings, or what should be one: a folder, or a link that leads nowhere."""
    return file.is_file() or file.is_dir() or (file.is_symlink() and not file.exists())


def remembered_settings(config: RetrievalConfig) -> dict[str, Any]:
    """Return the settings that the index of a configuration remembers, by key; without those that can't be used."""
    return _remembered(_store_of(config))[0]


def _store_of(config: RetrievalConfig, index: str | Path | None = None) -> dict[str, Any]:
    table = config.store.tables.get("lancedb")
    store = {"kind": config.store.kind, "lancedb": {} if table is None else dict(table)}
    return {"index": str(index or config.index), "store": store}


def sources_of(config: RetrievalConfig) -> dict[str, tuple[str, ...]]:
    """Return the keys of the settings that are not defaults, by the source that they come from."""
    if config.provenance is None:
        return {}
    return {name: keys for name, keys in config.provenance.sources.items() if keys}


def _beneath(given: Mapping[str, Any], explicit: str | Path | None) -> tuple[list[Layer], tuple[str, ...]]:
    """Return the sources that are weaker than what was given, weakest first, and warnings about them.

    Args:
        given: The settings that were given.
        explicit: The file or preset that was given; if it is the one beside the index, it is not read twice.

    Raises:
        ConfigurationError: The file beside the index can't be read, or names code.
    """
    default = RetrievalConfig.model_fields["index"].default
    file = find_settings_file(Path(_text(given, "index") or default))
    if file is not None and explicit is not None and Path(explicit).is_file() and file.samefile(explicit):
        file = None
    beside = [] if file is None else [Layer(str(file), read_toml(file))]
    tree = merge_layers(beside)
    if file is not None:
        _refuse_code(file, tree)
    known = {
        "index": _text(given, "index") or _text(tree, "index") or default,
        "store": {**_table(tree, "store"), **_table(given, "store")},
    }
    remembered, problems = _remembered(known)
    layers = [Layer(REMEMBERED, nested_tree(remembered)), *beside]
    if not problems:
        return layers, ()
    place = known["index"]
    warning = f"{place} remembers settings that are ignored: {'; '.join(problems)}."
    if not all(problem.endswith(tuple(moved.GONE.values())) for problem in problems):
        warning += f" Give them to retrieval index once more, or set them in {FILE_NAME}."
    return layers, (warning,)


def _refuse_code(file: Path, tree: Mapping[str, Any]) -> None:
    """Refuse a file that was found and names code: it may have come with somebody else's documents.

    Raises:
        ConfigurationError: It names code.
    """
    for section in tree:
        for name, value in _table(tree, section).items():
            key = f"{section}.{name}"
            if names_code(key, value):
                msg = (
                    f"{file} sets {key} to custom code: {value!r:.80}. Code is not run from a file that is "
                    f"found beside an index. If you trust it, name the file: --config {file}, or in Python "
                    f"open_index(config={str(file)!r})"
                )
                raise ConfigurationError(msg, problems=(msg,))


def _remembered(known: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the settings that an index remembers, and problems with them.

    Args:
        known: Its place, and what is set of its store.
    """
    text, settings = _remembered_text(known)
    if text is None:
        return settings, []
    found, problems = read_remembered(text)
    return {**settings, **found}, problems


def _remembered_text(known: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return the settings that an index remembers as it keeps them, and those that its place tells."""
    index, kind = Path(known["index"]), _text(known["store"], "kind")
    table = _text(_table(known["store"], "lancedb"), "table") or DEFAULT_TABLE
    folder = lancedb_folder(index)
    if kind is None and not index.is_file() and (folder / f"{table}.lance").is_dir():
        return read_from_folder(folder, table), {"store.kind": "lancedb"}
    if kind == "lancedb":
        return read_from_folder(folder, table), {}
    if kind in {None, "sqlite"}:
        return read_from_file(index), {}
    return None, {}


def _text(tree: Mapping[str, Any], key: str) -> str | None:
    value = tree.get(key)
    return value if isinstance(value, str) and value else None


def _table(tree: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = tree.get(key)
    return dict(value) if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownArgumentType]


def _short(file: Path) -> Path:
    """Return a path relative to the current folder, if it is below that."""
    folder = Path.cwd()
    return file.relative_to(folder) if file.is_relative_to(folder) else file


class SettingsMemory:
    """Keeps the settings in an index that is written to; once, and only if they differ from what it remembers.

    Args:
        plugged_in: Sections whose settings are not used, since an object was plugged in.
    """

    def __init__(self, config: RetrievalConfig, store: Store, index: Path, plugged_in: Collection[str] = ()) -> None:
        self._config = config
        self._store = store
        self._index = index
        self._plugged_in = plugged_in
        self._is_done = False

    async def after_change(self, change: Change) -> None:
        """Remember the settings after documents were written."""
        if change.chunks:
            await self.update()

    async def update(self) -> None:
        """Remember the settings; an index that can't be written stays as it is."""
        if self._is_done:
            return
        self._is_done = True
        import asyncio  # noqa: PLC0415 - who only loads settings can wait for it

        try:
            kept, _ = await asyncio.to_thread(_remembered_text, _store_of(self._config, self._index))
            old = {} if kept is None else read_remembered(kept)[0]
            new = remember(self._config, old, self._plugged_in)
            text = json.dumps(new, ensure_ascii=False, sort_keys=True)
            if new != old or (text != kept and kept is not None):  # under old names, or with settings that are gone
                await self._store.remember(text)
        except (RetrievalError, OSError) as error:
            logger.warning("the settings were not remembered with %s: %s", self._index, error)
