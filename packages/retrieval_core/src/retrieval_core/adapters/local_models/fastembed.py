"""Files of the models that ``fastembed`` runs."""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from retrieval_core.errors import ModelNotFoundError
from retrieval_core.installation import install_command

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
_SUFFIXES = frozenset({".onnx", ".onnx_data", ".json"})
_SAMPLES = 64
_SAMPLE_BYTES = 1 << 16


def fetched(vendor: Any, described: dict[str, Any], setting: str = "model_folder") -> Path:
    """Return the folder of a model in fastembed's cache, downloading it, in one attempt, where it is missing.

    Args:
        vendor: The class of fastembed that runs the model.
        described: The model's entry in that class's ``list_supported_models()``.
        setting: How a folder is configured, for the error.

    Raises:
        ModelNotFoundError: The files are not here, and the download failed.
    """
    from fastembed.common.utils import define_cache_dir  # noqa: PLC0415 - loaded by now

    # The vendor's own way into the cache sleeps and tries again, for 39 s where the hub cannot be reached.
    file, more = described["model_file"], described["additional_files"]
    fetch = partial(
        vendor.download_files_from_huggingface,
        described["sources"]["hf"],
        cache_dir=str(define_cache_dir()),
        extra_patterns=[file, *more],
    )
    try:
        folder = Path(fetch(local_files_only=True))
    except Exception:  # noqa: BLE001 - whatever is wrong with the cache, the hub may mend it
        folder = None
    if folder is not None and all((folder / name).is_file() for name in (file, *_TOKENIZER_FILES)):
        return folder
    try:
        return Path(fetch())
    except Exception as error:  # the client lets its transport's errors through
        msg = (
            f"the model {described['model']} is not on this machine, and could not be downloaded: {error}. To use it "
            f"offline, copy {', '.join((file, *more, *_TOKENIZER_FILES))} of the repository "
            f"{described['sources']['hf']} into a folder, and set {setting} to it."
        )
        raise ModelNotFoundError(msg) from error


def digest_of(model: str, folder: Path) -> str:
    """Return a digest of the model files in a folder: of names, sizes, and samples of the content, as they are large.

    Raises:
        ModelNotFoundError: The folder lacks a file.
    """
    missing = [name for name in _TOKENIZER_FILES if not (folder / name).is_file()]
    paths = [*folder.glob("*"), *folder.glob("onnx/*")]
    files = sorted(path for path in paths if path.suffix in _SUFFIXES and path.is_file())
    if not any(path.suffix == ".onnx" for path in files):
        missing.append("ONNX file")
    if missing:
        raise ModelNotFoundError(lacking(model, folder, missing))
    digest = sha256()
    for path in files:
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder).as_posix()} {size}\n".encode())
        with path.open("rb") as file:
            for start in range(0, size, max(_SAMPLE_BYTES, size // _SAMPLES)):
                file.seek(start)
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()[:12]


def lacking(model: str, folder: Path, names: list[str]) -> str:
    """Return the message for a folder that lacks files."""
    return (
        f"the folder {folder} has no {' and no '.join(names)}; copy the files of {model} there as they lie in its "
        "repository on the model hub, or set model_folder to another folder"
    )


def unknown(model: str, known: list[str]) -> str:
    """Return the message for a model that fastembed does not know."""
    return (
        f"fastembed knows no model {model!r} of this kind. It knows {', '.join(known)}; a newer version may know more: "
        f"{install_command('fastembed')}"
    )
