"""Rules of .gitignore files mean what they mean to git, in bounded time."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retrieval_core.ingest.files import discover
from retrieval_core.ingest.gitignore import parse_rules

if TYPE_CHECKING:
    from collections.abc import Iterator

GIT = shutil.which("git")
NAMES = ("a", "b", "ab", "aab", "a.b", "a b", "[a]", "é")
FOLDERS = tuple(name for name in NAMES if name != "b")
PIECES = (
    "a",
    "b",
    "*",
    "**",
    "?",
    "[a-b]",
    "[!a]",
    "[]a]",
    "[[:alpha:]]",
    "[a",
    "\\*",
    "\\",
    ".",
    " ",
    "é",
    "[a-",
    "-]",
)
names = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join)
rules = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "", "", "!", "#", "\\!"]),
    st.sampled_from(["", "", "/", "**/", "//"]),
    st.lists(st.one_of(st.sampled_from(NAMES), names, st.just("**")), min_size=1, max_size=3).map("/".join),
    st.sampled_from(["", "", "/", " ", "\\ ", "\r", "/**", "//"]),
    # An escaped slash is one more quirk of git behind ``**``, which nobody writes.
).filter(lambda rule: "\\/" not in rule)
rule_files = st.lists(rules, max_size=5).map("\n".join)
places = st.lists(st.sampled_from(FOLDERS), max_size=3).map("/".join)


def git(folder: Path, *arguments: str, text: str = "") -> str:
    """Return what git prints, as it is installed and without the settings of whoever runs the tests."""
    assert GIT is not None
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment |= dict.fromkeys(("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "XDG_CONFIG_HOME"), os.devnull)
    command = (GIT, "-C", str(folder), *arguments)
    done = subprocess.run(command, env=environment, input=text.encode(), capture_output=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.decode()


@pytest.fixture(scope="module")
def working_tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty working tree of git."""
    if GIT is None:
        pytest.skip("the rules are compared with those of git, which is not installed")
    tree = tmp_path_factory.mktemp("tree").resolve()
    git(tree, "init", "--quiet", "--template=")
    yield tree
    shutil.rmtree(tree)


@given(
    ignore_files=st.dictionaries(places, rule_files, min_size=1, max_size=3),
    paths=st.sets(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join), min_size=1, max_size=12),
)
@example({"": "a/b**/ab"}, {"a/ba/aab/ab", "a/b/ab"})
@example({"": "*.b\n!a.b", "a": "!*.b"}, {"a/a.b", "a.b", "ab/a.b"})
def test_what_is_ignored_is_what_git_ignores(working_tree: Path, ignore_files: dict[str, str], paths: set[str]) -> None:
    """Nested files, negations, classes, stars of both kinds, and spaces at the end."""
    there = sorted(path for path in paths if not any(other.startswith(f"{path}/") for other in paths))
    with TemporaryDirectory(dir=working_tree) as made:
        root = Path(made)
        for path in there:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).touch()
        for place, text in ignore_files.items():
            folder = root / place
            if not any(parent.is_file() for parent in (folder, *folder.parents)):
                folder.mkdir(parents=True, exist_ok=True)
                (folder / ".gitignore").write_bytes(text.encode())
        ignored = git(root, "check-ignore", "--stdin", "-z", "--no-index", text="\0".join(there)).split("\0")
        found = discover([root], root, lambda path: path.suffix in {"", ".b"})
        assert [file.source for file in found.files] == [path for path in there if path not in ignored]


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("*a" * 50 + "*b", "a" * 250),
        ("?*" * 50 + "b", "a" * 250),
        ("[ab]*" * 50 + "c", "a" * 250),
        ("a/" + "**/b/" * 50 + "c", "a/" + "b/" * 2000 + "b"),
        ("**/" * 50 + "*a*b", "a/" * 2000 + "a"),
        ("**/*a*/" * 50 + "**/c", "aaaaaa/" * 500 + "b"),
    ],
)
def test_no_rule_takes_longer_than_its_length_warrants(rule: str, name: str) -> None:
    """Each would take a matcher that tries all ways longer than anybody lives, and this test with it."""
    (parsed,) = parse_rules(rule.encode())
    assert not parsed.matches(name.encode(), is_folder=False)


def tree(folder: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def sources(folder: Path, base: Path, *, follow_links: bool = False, gitignore: bool = True) -> list[str]:
    found = discover([folder], base, lambda path: path.suffix == ".md", follow_links=follow_links, gitignore=gitignore)
    return [file.source for file in found.files]


def test_a_line_that_is_longer_than_any_path_is_passed_over() -> None:
    """Making an expression of a megabyte would take minutes."""
    assert len(parse_rules(b"*a" * 500_000 + b"\n*.log\n")) == 1


def test_rules_above_the_folder_hold_up_to_the_root_of_the_working_tree(tmp_path: Path) -> None:
    """Those of the working tree do, those above it do not, and a tree inside of it has its own alone."""
    tree(tmp_path, {".gitignore": "*", "tree/.git/config": "", "tree/.gitignore": "/docs/a.md\n*.tmp.md\n"})
    documents: dict[str, str] = dict.fromkeys(
        ("a.md", "b.md", "c.tmp.md", "sub/a.md", "inner/.git/x", "inner/d.tmp.md"), "text"
    )
    docs = tree(tmp_path / "tree/docs", documents)
    assert sources(docs, docs) == ["b.md", "inner/d.tmp.md", "sub/a.md"]


def test_outside_of_a_working_tree_only_the_folder_itself_has_rules(tmp_path: Path) -> None:
    """Nothing tells where such a tree would begin, so what stands above is somebody else's."""
    docs = tree(tmp_path, {".gitignore": "*", "docs/.gitignore": "a.md", "docs/a.md": "a", "docs/b.md": "b"}) / "docs"
    assert sources(docs, docs) == ["b.md"]
    assert sources(docs, docs, gitignore=False) == ["a.md", "b.md"]


def test_what_is_named_counts_although_it_is_ignored(tmp_path: Path) -> None:
    """A file, and a folder, in which the rules about its contents still hold."""
    tree(
        tmp_path,
        {".git/x": "", ".gitignore": "build\na.md\n*.tmp.md", "a.md": "", "build/b.md": "", "build/c.tmp.md": ""},
    )
    found = discover([tmp_path / "a.md", tmp_path / "build"], tmp_path, lambda path: path.suffix == ".md")
    assert [file.source for file in found.files] == ["a.md", "build/b.md"]
    assert {path.name for path in found.ignored} == {"c.tmp.md"}


def test_a_named_folder_in_one_that_ignores_everything_is_read(tmp_path: Path) -> None:
    """As tools write it into folders of theirs: who names a folder there wants what is in it."""
    tree(tmp_path, {".git/x": "", "env/.gitignore": "*\n", "env/docs/a.md": "", "env/docs/sub/b.md": ""})
    assert sources(tmp_path / "env" / "docs", tmp_path) == ["env/docs/a.md", "env/docs/sub/b.md"]
    assert sources(tmp_path, tmp_path) == []


def test_files_and_folders_that_would_have_been_read_are_counted(tmp_path: Path) -> None:
    """A folder counts once, however much is in it; other kinds of files and hidden ones would not have been read."""
    tree(tmp_path, {".gitignore": "*\n!/*.md\nb.md", "a.md": "", "b.md": "", "c.bin": "", ".d.md": "", "e/f.md": ""})
    found = discover([tmp_path], tmp_path, lambda path: path.suffix == ".md")
    assert {path.relative_to(tmp_path).as_posix() for path in found.ignored} == {"b.md", "e"}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="links and pipes need rights there")
def test_rules_behind_a_link_are_not_read_and_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """As git does: a link could lead to any file."""
    tree(tmp_path, {"rules": "*", "a/x.md": "", "b/x.md": ""})
    (tmp_path / "a/.gitignore").symlink_to("../rules")
    os.mkfifo(tmp_path / "b/.gitignore")
    assert sources(tmp_path, tmp_path) == ["a/x.md", "b/x.md"]


def test_rules_that_cannot_be_read_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or what is to stay unread would be read without a word."""
    tree(tmp_path, {".git/x": "", ".gitignore": "*", "a.md": ""})

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    found = discover([tmp_path], tmp_path, lambda path: path.suffix == ".md")
    assert [(path.name, reason) for path, reason in found.refused] == [
        (".gitignore", "it cannot be read, so nothing is ignored by it: Permission denied")
    ]
    assert len(found.files) == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="links need rights there")
def test_an_ignored_link_does_not_hide_the_folder_behind_it(tmp_path: Path) -> None:
    """With links followed each folder is walked once; what is ignored was not walked."""
    tree(tmp_path, {"outside/x.md": "", "docs/.gitignore": "a"})
    for name in "ab":
        (tmp_path / "docs" / name).symlink_to(tmp_path / "outside", target_is_directory=True)
    assert sources(tmp_path / "docs", tmp_path, follow_links=True) == ["docs/b/x.md"]
