"""Which files are found, and what they are called."""

from __future__ import annotations

import json
import os
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from retrieval_core.ingest.files import discover, hash_file, location_of
from retrieval_core.ingest.skipping import skip_by_content


def is_read(path: Path) -> bool:
    """Whether a file counts in these tests."""
    return path.suffix.lower() in {".md", ".txt"}


def write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def test_folders_are_walked_in_order_and_hidden_or_unknown_files_passed_over(tmp_path: Path) -> None:
    """Only files with a known suffix, in any case, count; names with a dot in front do not, nor what is below them."""
    write(tmp_path, "docs/b.md", "docs/a/c.TXT", "docs/picture.png", "docs/.hidden.md", "docs/.git/d.md")
    found = discover([tmp_path / "docs"], tmp_path, is_read)
    assert [file.source for file in found.files] == ["docs/a/c.TXT", "docs/b.md"]
    assert [file.size for file in found.files] == [len("docs/a/c.TXT"), len("docs/b.md")]
    assert found.folders == (tmp_path / "docs",)


def test_a_named_file_counts_whatever_its_suffix(tmp_path: Path) -> None:
    """Who names a file wants it read, or wants to hear why it cannot be."""
    write(tmp_path, "notes.xyz")
    assert [file.source for file in discover([tmp_path / "notes.xyz"], tmp_path, is_read).files] == ["notes.xyz"]


def test_a_file_named_twice_is_found_once(tmp_path: Path) -> None:
    """A file and its folder name the same source."""
    write(tmp_path, "docs/a.md")
    assert len(discover([tmp_path / "docs", tmp_path / "docs/a.md"], tmp_path, is_read).files) == 1


def test_missing_paths_are_told_apart(tmp_path: Path) -> None:
    """What does not exist is reported and stops nothing."""
    write(tmp_path, "a.md")
    found = discover([tmp_path / "nowhere", tmp_path / "a.md"], tmp_path, is_read)
    assert (found.refused, found.gone) == ((), {"nowhere": tmp_path / "nowhere"})
    assert len(found.files) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    """A link to a folder above would never end."""
    write(tmp_path, "docs/a.md")
    (tmp_path / "docs/loop").symlink_to(tmp_path, target_is_directory=True)
    assert [file.source for file in discover([tmp_path / "docs"], tmp_path, is_read).files] == ["docs/a.md"]


def test_names_are_relative_to_the_base_also_above_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same file has the same name from every working folder."""
    write(tmp_path, "project/a.md", "shared/b.md")
    base = tmp_path / "project"
    assert location_of(tmp_path / "shared" / "b.md", base) == "../shared/b.md"
    monkeypatch.chdir(base)
    assert location_of(Path("a.md"), base) == "a.md"


@pytest.mark.parametrize(
    ("folder", "source", "covered"),
    [
        ("docs", "docs/a.md", True),
        ("docs", "docs2/a.md", False),
        (".", "a.md", True),
        (".", "../a.md", False),
        ("../shared", "../shared/a.md", True),
    ],
)
def test_a_folder_covers_what_lies_below_it(tmp_path: Path, folder: str, source: str, covered: bool) -> None:
    """Vanished files are looked for below the folders that were walked and nowhere else."""
    base = tmp_path / "base"
    (base / folder).mkdir(parents=True)
    assert discover([base / folder], base, is_read).covers(source) is covered


def test_the_hash_is_that_of_the_bytes(tmp_path: Path) -> None:
    """SHA-256 of the content, not of the name or the time."""
    write(tmp_path, "a.md")
    assert hash_file(tmp_path / "a.md") == sha256(b"a.md").hexdigest()


def test_a_folder_above_the_base_covers_just_what_lies_below_it(tmp_path: Path) -> None:
    """Names that begin with ``..`` are compared as places, not as texts."""
    write(tmp_path, "arch/a.md", "app/n.md", "app/sub/w.md")
    found = discover([tmp_path / "app"], tmp_path / "app/sub", is_read)
    assert [file.source for file in found.files] == ["../n.md", "w.md"]
    assert found.covers("../n.md")
    assert found.covers("gone.md")
    assert not found.covers("../../arch/a.md")


def test_what_cannot_be_looked_at_is_not_taken_for_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that cannot be listed today is reported, and nothing below it counts as vanished."""
    write(tmp_path, "docs/a.md", "docs/closed/b.md")
    listing = os.scandir

    def scandir(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return listing(path)

    monkeypatch.setattr(os, "scandir", scandir)
    found = discover([tmp_path / "docs"], tmp_path, is_read)
    assert [file.source for file in found.files] == ["docs/a.md"]
    assert found.refused == ((tmp_path / "docs/closed", "the folder cannot be read: Permission denied"),)
    assert found.covers("docs/gone.md")
    assert not found.covers("docs/closed/b.md")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_what_is_no_ordinary_file_is_refused(tmp_path: Path) -> None:
    """Reading a pipe would wait for ever."""
    os.mkfifo(tmp_path / "pipe.md")
    found = discover([tmp_path / "pipe.md"], tmp_path, is_read)
    assert found.refused == ((tmp_path / "pipe.md", "it is no ordinary file"),)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names themselves")
def test_a_name_that_is_not_unicode_is_refused(tmp_path: Path) -> None:
    """It could be neither kept nor printed; the files beside it are found."""
    write(tmp_path, "a.md")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/b\xff.md")).write_text("b")
    found = discover([tmp_path], tmp_path, is_read)
    assert [file.source for file in found.files] == ["a.md"]
    assert [reason for _, reason in found.refused] == ["its name is not valid Unicode; rename it"]


def test_secrets_in_folders_are_skipped_and_counted(tmp_path: Path) -> None:
    """Settings of this library and the usual names of credentials; a file that is named itself is read."""
    secret = ["a/retrieval.toml", "secrets.prod.yaml", "client_secret_1.apps.json", "credentials.csv", "my.toml"]
    write(tmp_path, *secret, "a/.env", "secrets.md", "secrets.py", "a/secret-rotation.yaml")
    found = discover([tmp_path], tmp_path, lambda _: True, gitignore=False, settings_file=tmp_path / "my.toml")
    assert [file.source for file in found.files] == ["a/secret-rotation.yaml", "secrets.md", "secrets.py"]
    assert found.skipped == {"secrets": len(secret)}
    assert [file.source for file in discover([tmp_path / secret[0]], tmp_path, is_read).files] == [secret[0]]


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_links_to_secrets_are_skipped_whatever_their_names(tmp_path: Path) -> None:
    write(tmp_path, ".env", "credentials.json", "real.md", "..data/mounted.md")
    for name, target in {
        "a.md": ".env",
        "b.md": "credentials.json",
        "c.md": "real.md",
        "d.md": "..data/mounted.md",
    }.items():
        (tmp_path / name).symlink_to(target)
    found = discover([tmp_path], tmp_path, is_read, gitignore=False)
    assert [file.source for file in found.files] == ["c.md", "d.md", "real.md"]
    assert found.skipped == {"secrets": 2}


@pytest.mark.parametrize("name", ["id_rsa.txt", "notes.md", "deploy.sh", "id_rsa"])
def test_a_file_that_begins_with_a_private_key_is_skipped(tmp_path: Path, name: str) -> None:
    """A page about keys has them further down."""
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n"
    (tmp_path / name).write_text(f"\n{key}")
    assert skip_by_content(tmp_path / name) == "secrets"
    (tmp_path / name).write_text(f"# Keys\n\nThey begin so:\n\n{key}")
    assert skip_by_content(tmp_path / name) is None


def test_structured_text_with_a_private_key_is_skipped(tmp_path: Path) -> None:
    """Whether the lines of the key are escaped or not; a placeholder, and code that looks for keys, are no secrets."""
    key = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj" * 2
    texts = {
        "a.json": json.dumps({"private_key": key}),
        "b.yaml": f"key: |\n  {key}".replace("-\n", "-\n  "),
        "c.yaml": "key: |\n  -----BEGIN PRIVATE KEY-----\n  ...\n",
        "d.py": f'KEY = """{key}"""',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    assert [skip_by_content(tmp_path / name) for name in texts] == ["secrets", "secrets", None, None]
