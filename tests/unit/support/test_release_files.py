"""What is wrong with built packages is found before they are published."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from support.release_files import problems

PROJECT = b'[project]\nname = "a-b"\nversion = "1.0"\n[project.scripts]\nab = "a_b:run"\n'
TRACKED = {
    "src/a_b/__init__.py": b"",
    "src/a_b/py.typed": b"",
    "src/a_b/presets/x.toml": b"x = 1",
    "LICENSE": b"MIT",
    "README.md": b"# a-b",
    "pyproject.toml": PROJECT,
}
INFO = {
    "METADATA": b"Name: a-b\nLicense-Expression: MIT\n",
    "WHEEL": b"",
    "RECORD": b"",
    "licenses/LICENSE": b"MIT",
    "entry_points.txt": b"",
}


def build(folder: Path, wheel: dict[str, bytes], source: dict[str, bytes]) -> list[str]:
    (folder / "pyproject.toml").write_bytes(PROJECT)
    with ZipFile(folder / "a_b-1.0-py3-none-any.whl", "w") as archive:
        for name, text in wheel.items():
            archive.writestr(name, text)
    with tarfile.open(folder / "a_b-1.0.tar.gz", "w:gz") as archive:
        for name, text in source.items():
            member = tarfile.TarInfo(f"a_b-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    return list(problems(folder, folder, TRACKED))


def whole() -> tuple[dict[str, bytes], dict[str, bytes]]:
    modules = {name.removeprefix("src/"): text for name, text in TRACKED.items() if name.startswith("src/")}
    info = {f"a_b-1.0.dist-info/{name}": text for name, text in INFO.items()}
    return {**modules, **info}, {**TRACKED, "PKG-INFO": b"", ".gitignore": b""}


def test_nothing_is_wrong_with_whole_archives(tmp_path: Path) -> None:
    assert build(tmp_path, *whole()) == []


@pytest.mark.parametrize("name", [*whole()[0]])
def test_each_file_that_a_wheel_lacks_is_named(tmp_path: Path, name: str) -> None:
    """Modules, data files, the mark of typed packages, the licence, and the entry points."""
    wheel, source = whole()
    del wheel[name]
    assert f"a_b-1.0-py3-none-any.whl: {name} is missing" in build(tmp_path, wheel, source)


def test_what_does_not_belong_there_or_differs_is_named(tmp_path: Path) -> None:
    """A file that was left lying about, one of another build, and a licence that is not named."""
    wheel, source = whole()
    wheel |= {"a_b/notes.txt": b"", "a_b/presets/x.toml": b"x = 2", "a_b-1.0.dist-info/METADATA": b"Name: a-b\n"}
    source["src/a_b/notes.txt"] = b""
    assert build(tmp_path, wheel, source) == [
        "a_b-1.0-py3-none-any.whl: a_b/notes.txt does not belong there; git does not know it",
        "a_b-1.0-py3-none-any.whl: a_b/presets/x.toml differs from the file in the repository",
        "a_b-1.0-py3-none-any.whl: its METADATA does not name the licence",
        "a_b-1.0.tar.gz: src/a_b/notes.txt does not belong there; git does not know it",
    ]


def test_what_was_not_built_is_named(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(PROJECT)
    assert list(problems(tmp_path, tmp_path, TRACKED)) == [
        "a_b-1.0-py3-none-any.whl was not built",
        "a_b-1.0.tar.gz was not built",
    ]
