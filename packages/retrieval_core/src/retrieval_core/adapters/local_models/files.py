"""Files of local models: in a configured folder, in an installed package, or on the Hugging Face hub."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retrieval_core.errors import MissingExtraError, ModelNotFoundError, ServiceConnectionError
from retrieval_core.installation import install_command

if TYPE_CHECKING:
    from collections.abc import Mapping

_PIECE = 1 << 24
"""Bytes that are read at a time for a checksum."""
_HUB_SECONDS = 10.0
"""How long the hub may take to describe a file before it counts as unreachable."""


@dataclass(frozen=True, slots=True)
class HubRepository:
    """A repository of the Hugging Face hub at one commit.

    Attributes:
        name: ``owner/name``.
        revision: The commit, 40 hexadecimal digits.
        places: Where each file lies in the repository, by file name.
    """

    name: str
    revision: str
    places: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model that is identified by the content of its files.

    Attributes:
        name: Of model and variant, for people and in ids.
        checksums: SHA-256 of each file in hexadecimal, by file name.
        carrier: Importable name of the package that brings the files; it is located, never imported.
        extra: The extra of this library that installs the carrier.
        subfolder: Where the files lie inside the carrier, with forward slashes.
        hub: Where the files are downloaded from, instead of the carrier.
    """

    name: str
    checksums: Mapping[str, str]
    carrier: str
    extra: str
    subfolder: str = ""
    hub: HubRepository | None = None

    @property
    def source(self) -> str:
        """Where the files come from, for people."""
        if self.hub is not None:
            return f"the Hugging Face hub, {self.hub.name} at revision {self.hub.revision}"
        return f"the installed package {self.carrier}"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files of a model on this machine, and the SHA-256 of each, by file name."""

    paths: Mapping[str, Path]
    checksums: Mapping[str, str]


class _AbsentError(Exception):
    """A place does not have the files, for the reason in the message."""


def read_folder(model: LocalModel, folder: Path, places: Mapping[str, str] | None = None) -> ModelFiles:
    """Return the files in a configured folder, of whatever model; reads every byte, some 30 ms for 34 MB.

    Args:
        model: What is looked for where the folder lacks a file.
        places: Where the files lie within the folder, by the names that :class:`ModelFiles` gives them; as they are
            named in ``model`` where it is not given.

    Raises:
        ModelNotFoundError: The folder lacks a file.
    """
    try:
        return _read(_paths_in(folder, places or {name: name for name in model.checksums}))
    except _AbsentError as absent:
        raise ModelNotFoundError(_not_found(model, [f"configured folder: {absent}"])) from absent


def find_files(model: LocalModel) -> ModelFiles:
    """Return the files of the carrier package or, if the model names one, of a repository on the hub.

    Reads every byte: some 30 ms for 34 MB. Blocks while it downloads; a download is kept in the hub's own cache.

    Raises:
        MissingExtraError: The files are on the hub, and its client is not installed.
        ModelNotFoundError: The files are not there, or have other checksums.
        ServiceConnectionError: The files are on the hub and could not be downloaded.
    """
    if model.hub is not None:
        files = _read(_download(model, model.hub))
    else:
        try:
            files = _read(_in_carrier(model))
        except _AbsentError as absent:
            raise ModelNotFoundError(_not_found(model, [f"installed package: {absent}"])) from absent
    _verify(model, files)
    return files


def is_installed(package: str) -> bool:
    """Whether a package can be imported; nothing of it is loaded."""
    return find_spec(package) is not None


def _in_carrier(model: LocalModel) -> dict[str, Path]:
    spec = find_spec(model.carrier)
    if spec is None or not spec.submodule_search_locations:
        msg = f"{model.carrier} is not installed"
        raise _AbsentError(msg)
    folder = Path(spec.submodule_search_locations[0]) / model.subfolder
    return _paths_in(folder, {name: name for name in model.checksums})


def _download(model: LocalModel, repository: HubRepository) -> dict[str, Path]:
    """Return the files in the hub's cache, downloading those that are not there yet."""
    try:
        hub: Any = import_module("huggingface_hub")  # slow to import
    except ImportError as error:
        raise MissingExtraError("hub", "A model from the Hugging Face hub") from error
    try:
        return {name: _download_file(hub, repository, place) for name, place in repository.places.items()}
    except Exception as error:  # the client lets its transport's errors through
        msg = (
            f"the model {model.name} could not be downloaded from {model.source}: {_first_line(error)}. Check the "
            "network, and HF_ENDPOINT if you use a mirror. Without a network, install the package that contains the "
            f"model: {install_command(model.extra)}; or configure a folder that holds {' and '.join(model.checksums)}."
        )
        if _is_absent(hub, error):
            raise ModelNotFoundError(msg) from error
        unreachable = ServiceConnectionError(msg, "huggingface")
        unreachable.was_retried = True  # the client resumes downloads by itself
        raise unreachable from error


def _is_absent(hub: Any, error: Exception) -> bool:
    """Whether the hub answered that it has no such repository, commit or file."""
    errors = hub.errors
    answers = (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.EntryNotFoundError)
    return isinstance(error, answers) and not isinstance(error, errors.LocalEntryNotFoundError)


def _download_file(hub: Any, repository: HubRepository, place: str) -> Path:
    at = {"repo_id": repository.name, "filename": place, "revision": repository.revision}
    cached: object = hub.try_to_load_from_cache(**at)
    if isinstance(cached, str):
        return Path(cached)
    # The client would ask again for 23 s where the hub can't be reached: a query has no such time.
    hub.get_hf_file_metadata(hub.hf_hub_url(**at), timeout=_HUB_SECONDS)
    return Path(hub.hf_hub_download(**at))


def _first_line(error: Exception) -> str:
    """Return what a message of the hub's client says first: further lines are advice on accounts and repositories."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line.rstrip(".") for line in lines if line), type(error).__name__)


def _paths_in(folder: Path, places: Mapping[str, str]) -> dict[str, Path]:
    paths = {name: folder / place for name, place in places.items()}
    if missing := [places[name] for name, path in paths.items() if not path.is_file()]:
        msg = f"{folder} has no {' and no '.join(missing)}"
        raise _AbsentError(msg)
    return paths


def _read(paths: Mapping[str, Path]) -> ModelFiles:
    return ModelFiles(paths, {name: _sha256(path) for name, path in paths.items()})


def _sha256(path: Path) -> str:
    """Return the checksum of a file, read in few pieces: after each one the thread waits for Python's lock."""
    digest = hashlib.sha256()
    piece = memoryview(bytearray(min(_PIECE, max(1, path.stat().st_size))))
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(piece):
            digest.update(piece[:size])
    return digest.hexdigest()


def _verify(model: LocalModel, files: ModelFiles) -> None:
    for name, expected in model.checksums.items():
        if (found := files.checksums[name]) != expected:
            path = files.paths[name]
            advice = f"Install it again with: {install_command(model.extra, again=True)}"
            if model.hub is not None:
                path = path.resolve()  # the cache has links, and would link what they point to again
                advice = "Delete this file, and it is downloaded again"
            msg = (
                f"{path} is not the {name} of {model.name} from {model.source}: expected SHA-256 {expected}, found "
                f"{found}. {advice}. To use another model on purpose, configure its folder."
            )
            raise ModelNotFoundError(msg)


def _not_found(model: LocalModel, problems: list[str]) -> str:
    ways = [
        f"configure a folder that holds {' and '.join(model.checksums)}",
        f"{install_command(model.extra)}, which brings them",
    ]
    return f"the model {model.name} was not found ({'; '.join(problems)}). Do one of these: {'; '.join(ways)}."
