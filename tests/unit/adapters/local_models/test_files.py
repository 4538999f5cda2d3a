from __future__ import annotations

import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from retrieval_core.adapters.local_models.files import HubRepository, LocalModel, find_files, read_folder
from retrieval_core.errors import MissingExtraError, ModelNotFoundError

CONTENT = {"model.onnx": b"weights", "tokenizer.json": b"{}"}
MODEL = LocalModel(
    name="tiny-model",
    checksums={name: sha256(content).hexdigest() for name, content in CONTENT.items()},
    carrier="carrier_of_tiny_model",
    extra="local",
    subfolder="data/tiny",
)


def fill(folder: Path, content: dict[str, bytes] = CONTENT) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in content.items():
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture
def carrier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an installed carrier package, which fails when it is imported."""
    package = tmp_path / "site" / MODEL.carrier
    fill(package / MODEL.subfolder)
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.setattr(sys, "path", [str(package.parent), *sys.path])
    return package / MODEL.subfolder


def test_the_carrier_is_found_and_never_imported(carrier: Path) -> None:
    """The installed package is located without running a line of it."""
    files = find_files(MODEL)
    assert files.paths == {name: carrier / name for name in CONTENT}
    assert files.checksums == MODEL.checksums
    assert MODEL.carrier not in sys.modules


@pytest.mark.parametrize("name", CONTENT)
def test_a_changed_file_is_an_error(carrier: Path, name: str) -> None:
    """A file with another checksum is named with both checksums, and not used."""
    (carrier / name).write_bytes(b"changed")
    sums = f"expected SHA-256 {MODEL.checksums[name]}, found {sha256(b'changed').hexdigest()}"
    with pytest.raises(ModelNotFoundError, match=sums) as caught:
        find_files(MODEL)
    assert str(carrier / name) in str(caught.value)
    assert "--force-reinstall" in str(caught.value)


def test_nothing_found_names_what_would_help() -> None:
    """The error says what is missing, and names the command and the setting that would help."""
    with pytest.raises(ModelNotFoundError) as caught:
        find_files(MODEL)
    message = str(caught.value)
    assert "carrier_of_tiny_model is not installed" in message
    assert "configure a folder that holds model.onnx and tokenizer.json" in message
    assert "[local]" in message


def test_the_client_of_the_hub_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of the hub needs the extra that brings its client."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    repository = HubRepository("owner/model", "0" * 40, {name: name for name in CONTENT})
    with pytest.raises(MissingExtraError, match=r"pip install .*\[hub\]"):
        find_files(replace(MODEL, hub=repository))


def test_a_carrier_without_the_files_counts_as_absent(carrier: Path) -> None:
    """Another version of the package may lack the model; the error says which file is missing where."""
    (carrier / "model.onnx").unlink()
    with pytest.raises(ModelNotFoundError, match=r"tiny has no model\.onnx\)"):
        find_files(MODEL)


def test_a_folder_may_hold_another_model(tmp_path: Path) -> None:
    """A configured folder is read as it is; its checksums say what it holds."""
    files = read_folder(MODEL, fill(tmp_path / "other", {"model.onnx": b"other", "tokenizer.json": b"{}"}))
    assert files.checksums["model.onnx"] == sha256(b"other").hexdigest()
    assert files.checksums["tokenizer.json"] == MODEL.checksums["tokenizer.json"]


def test_a_folder_that_lacks_a_file(tmp_path: Path, carrier: Path) -> None:
    """A configured folder that cannot be used is an error; nothing else is taken silently in its place."""
    folder = fill(tmp_path / "half", {"model.onnx": b"weights"})
    with pytest.raises(ModelNotFoundError, match=r"configured folder: .*half has no tokenizer\.json") as caught:
        read_folder(MODEL, folder)
    assert "[local]" in str(caught.value)
    assert carrier.exists()
