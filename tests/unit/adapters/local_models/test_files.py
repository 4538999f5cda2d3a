from __future__ import annotations

import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import ModuleType

import pytest

from retrieval_core.adapters.local_models.files import LocalModel, find_files, read_folder
from retrieval_core.errors import ModelNotFoundError

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


class Hub(ModuleType):
    """A hub client that has files in a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__("huggingface_hub")
        self.folder = folder
        self.asked: list[tuple[str, str]] = []

    def hf_hub_download(self, repository: str, name: str) -> str:
        self.asked.append((repository, name))
        if not (self.folder / name).exists():
            msg = f"404 for {name}"
            raise OSError(msg)
        return str(self.folder / name)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub(tmp_path / "hub")
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    return hub


def test_the_carrier_is_found_and_never_imported(carrier: Path) -> None:
    """The installed package is located without running a line of it."""
    files = find_files(MODEL)
    assert files.paths == {name: carrier / name for name in CONTENT}
    assert files.checksums == MODEL.checksums
    assert MODEL.carrier not in sys.modules


@pytest.mark.parametrize("name", CONTENT)
def test_a_changed_file_is_an_error(carrier: Path, name: str, hub: Hub) -> None:
    """A file with another checksum is named and not used, and the hub is not asked instead."""
    (carrier / name).write_bytes(b"changed")
    with pytest.raises(ModelNotFoundError, match="SHA-256") as caught:
        find_files(replace(MODEL, hub_repository="owner/model"))
    assert str(carrier / name) in str(caught.value)
    assert "--force-reinstall" in str(caught.value)
    assert hub.asked == []


def test_nothing_found_names_all_three_ways() -> None:
    """The error lists what was tried and the three things that would help."""
    with pytest.raises(ModelNotFoundError) as caught:
        find_files(MODEL)
    message = str(caught.value)
    assert "configured folder: none" in message
    assert "carrier_of_tiny_model is not installed" in message
    assert "no repository is configured" in message
    assert "configure a folder that holds model.onnx and tokenizer.json" in message
    assert "[local]" in message
    assert "configure a repository" in message


def test_a_carrier_without_the_files_counts_as_absent(carrier: Path) -> None:
    """Another version of the package may lack the model; the error says which file is missing where."""
    (carrier / "model.onnx").unlink()
    with pytest.raises(ModelNotFoundError, match=r"tiny has no model\.onnx;"):
        find_files(MODEL)


def test_the_hub_is_asked_when_no_carrier_is_installed(hub: Hub) -> None:
    """A configured repository serves the files, and they are checked like any others."""
    fill(hub.folder)
    files = find_files(replace(MODEL, hub_repository="owner/model"))
    assert files.paths == {name: hub.folder / name for name in CONTENT}
    assert hub.asked == [("owner/model", "model.onnx"), ("owner/model", "tokenizer.json")]
    (hub.folder / "model.onnx").write_bytes(b"changed")
    with pytest.raises(ModelNotFoundError, match="SHA-256"):
        find_files(replace(MODEL, hub_repository="owner/model"))


def test_a_failing_hub_is_one_of_the_reasons(hub: Hub) -> None:
    """What the hub's client raises becomes part of the message."""
    with pytest.raises(ModelNotFoundError, match=r"model hub: owner/model: 404 for model\.onnx"):
        find_files(replace(MODEL, hub_repository="owner/model"))
    assert hub.asked


def test_a_hub_without_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A configured repository is of no use without the client, and the message says so."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelNotFoundError, match="huggingface_hub is not installed"):
        find_files(replace(MODEL, hub_repository="owner/model"))


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
