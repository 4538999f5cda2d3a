"""Files of local models: in a configured folder, in an installed package that carries them, or in a model hub."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retrieval_core.errors import ModelNotFoundError
from retrieval_core.installation import install_command

if TYPE_CHECKING:
    from collections.abc import Mapping

_PIECE = 1 << 24
"""Bytes that are read at a time for a checksum."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model that is identified by the content of its files.

    Attributes:
        name: Of model and variant, for people and in ids.
        checksums: SHA-256 of each file in hexadecimal, by file name.
        carrier: Importable name of the package that brings the files; it is located, never imported.
        extra: The extra of this library that installs the carrier.
        subfolder: Where the files lie inside the carrier, with forward slashes.
        hub_repository: ``owner/name`` on the Hugging Face hub with the same files at its top; ``None``: no download.
    """

    name: str
    checksums: Mapping[str, str]
    carrier: str
    extra: str
    subfolder: str = ""
    hub_repository: str | None = None


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
    """Return the files of the carrier package or, where it is not installed, of the model hub.

    Reads every byte: some 30 ms for 34 MB. A download is kept in the hub's own cache.

    Raises:
        ModelNotFoundError: No place has the files, or their checksums are wrong.
    """
    problems = ["configured folder: none"]
    for place, find in (("installed package", _in_carrier), ("model hub", _in_hub)):
        try:
            files = _read(find(model))
        except _AbsentError as absent:
            problems.append(f"{place}: {absent}")
        else:
            _verify(model, files)
            return files
    raise ModelNotFoundError(_not_found(model, problems))


def _in_carrier(model: LocalModel) -> dict[str, Path]:
    spec = find_spec(model.carrier)
    if spec is None or not spec.submodule_search_locations:
        msg = f"{model.carrier} is not installed"
        raise _AbsentError(msg)
    folder = Path(spec.submodule_search_locations[0]) / model.subfolder
    return _paths_in(folder, {name: name for name in model.checksums})


def _in_hub(model: LocalModel) -> dict[str, Path]:
    if model.hub_repository is None:
        msg = "no repository is configured"
        raise _AbsentError(msg)
    try:
        hub: Any = import_module("huggingface_hub")  # not a dependency, and slow to import
    except ImportError as error:
        msg = "huggingface_hub is not installed"
        raise _AbsentError(msg) from error
    try:
        return {name: Path(hub.hf_hub_download(model.hub_repository, name)) for name in model.checksums}
    except Exception as error:  # the client lets its transport's errors through
        msg = f"{model.hub_repository}: {error}"
        raise _AbsentError(msg) from error


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
        if (actual := files.checksums[name]) != expected:
            msg = (
                f"{files.paths[name]} is not the file of {model.name} that it should be: its SHA-256 is {actual}, not "
                f"{expected}. Install it again with: {install_command(model.extra, again=True)}. "
                "To use another model on purpose, configure its folder."
            )
            raise ModelNotFoundError(msg)


def _not_found(model: LocalModel, problems: list[str]) -> str:
    return (
        f"the model {model.name} was not found ({'; '.join(problems)}). Do one of these: configure a folder that holds "
        f"{' and '.join(model.checksums)}; {install_command(model.extra)}, which brings them; install "
        "huggingface_hub and configure a repository that holds them."
    )
