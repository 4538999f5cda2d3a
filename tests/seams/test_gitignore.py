"""A folder or file that is indexed by name: what git ignores is not read, wherever in the tree one begins."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from retrieval_core import RetrievalConfig, open_index
from support.processes import RETRIEVAL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

GIT = shutil.which("git")
pytestmark = pytest.mark.skipif(GIT is None, reason="the rules are compared with those of git, which is not installed")
# HYPOTHESIS_PROFILE=random and GITIGNORE_TREES=5000 compare that many trees, each of another shape.
TREES = settings(max_examples=int(os.environ["GITIGNORE_TREES"])) if "GITIGNORE_TREES" in os.environ else settings()
CONFIG = RetrievalConfig.model_validate({"store": {"kind": "memory"}, "embedder": {"kind": "none"}})

FOLDERS = ("docs", "a", "ab", "build")
FILES = ("a.md", "b.md", "a.txt", "notes.txt", "a b.md")
SEGMENTS = (
    "*", "**", "*.md", "*.txt", "a*", "?", "a?", "[ab]", "[!a]*", "[[:alpha:]]", "\\a", "*b", "docs", "build", "a",
    "ab", "a.md", "a b.md", "notes.txt", ".md", "a\\ b.md",
)  # fmt: skip
RULES = st.one_of(
    st.sampled_from(
        ["*", "*/", "!*/", "!*.md", "/*", "!/docs", "!/docs/", "**", "/**", "!**/*.md", "docs/*", "# a.md", ""]
    ),
    st.builds(
        "{}{}{}{}".format,
        st.sampled_from(["", "", "!", "!", "\\!"]),
        st.sampled_from(["", "", "/", "**/"]),
        st.lists(st.sampled_from(SEGMENTS), min_size=1, max_size=3).map("/".join),
        st.sampled_from(["", "", "", "/", "/**", "/*", " ", "   ", "\t", "\\ ", "\r"]),
    ),
)
RULE_FILES = st.lists(RULES, min_size=1, max_size=6).map("\n".join)
PLACES = st.lists(st.sampled_from(FOLDERS), max_size=2).map("/".join)
PATHS = st.tuples(st.lists(st.sampled_from(FOLDERS), max_size=3).map("/".join), st.sampled_from(FILES)).map(
    lambda parts: "/".join(filter(None, parts))
)


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
def trees(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for working trees, and a `.git` to copy into each."""
    folder = tmp_path_factory.mktemp("trees").resolve()
    git(folder, "init", "--quiet", "--template=", "empty")
    yield folder
    shutil.rmtree(folder)


def make_tree(root: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text.encode())


def paths_read(start: Path, root: Path) -> set[str]:
    """Return the files below a root that an index has after a folder or file was indexed by name."""
    with open_index(root / "index.db", config=CONFIG) as index:
        report = index.ingest(start)
        assert report.failed == ()
        hits = index.retrieve("harbour", mode="lexical", top_k=100).hits
    return {(root / str(hit.chunk.source)).resolve().relative_to(root).as_posix() for hit in hits}


def paths_ignored(root: Path, paths: list[str]) -> set[str]:
    answer = git(root, "check-ignore", "--no-index", "--stdin", "-z", text="\0".join(paths))
    return set(answer.split("\0")) & set(paths)


def take_back_rules_about(start: str, root: Path) -> None:
    """Empty, in the ``.gitignore`` files, the lines for which git ignores a folder: naming it takes these back."""
    while start in paths_ignored(root, [start]):
        answer = git(root, "check-ignore", "--no-index", "--verbose", "--stdin", "-z", text=start)
        file, number, *_ = answer.split("\0")
        lines = (root / file).read_bytes().split(b"\n")
        lines[int(number) - 1] = b""
        (root / file).write_bytes(b"\n".join(lines))


@pytest.mark.slow
@TREES
@given(
    ignore_files=st.dictionaries(PLACES, RULE_FILES, min_size=1, max_size=3),
    paths=st.sets(PATHS, min_size=1, max_size=12),
)
@example({"": "*\n!*/\n!*.md"}, {"docs/a.md", "docs/a.txt", "docs/a/a.txt", "docs/a/b.md", "a.txt"})
@example({"": "*\n!*/\n!*.md\n/docs/"}, {"docs/a.md", "docs/a.txt"})
@example({"": "*.txt", "docs": "!a.txt"}, {"docs/a.txt", "docs/ab/a.txt", "docs/ab/notes.txt"})
@example({"": "docs\n!docs/a", "docs": "*\n!a.md"}, {"docs/a.md", "docs/b.md", "docs/a/a.md", "docs/a/b.md"})
def test_every_starting_folder_gives_what_git_does_not_ignore(
    trees: Path, ignore_files: dict[str, str], paths: set[str]
) -> None:
    """Where git ignores the named folder itself, the lines that say so do not count, and all others do."""
    with TemporaryDirectory(dir=trees) as made:
        root = Path(made)
        shutil.copytree(trees / "empty/.git", root / ".git")
        make_tree(root, dict.fromkeys(paths, "harbour"))
        for place, text in ignore_files.items():
            make_tree(root, {f"{place}/.gitignore".removeprefix("/"): text})
        there = sorted(paths)
        starts = {"", *(parent.as_posix() for path in there for parent in Path(path).parents[:-1])}
        rules = {file: file.read_bytes() for file in root.rglob(".gitignore")}
        for start in sorted(starts):
            read = paths_read(root / start, root)
            if start:
                take_back_rules_about(start, root)
            below = [path for path in there if not start or path.startswith(f"{start}/")]
            assert read == set(below) - paths_ignored(root, below), start
            for file, text in rules.items():
                file.write_bytes(text)
        assert paths_read(root / there[0], root) == {there[0]}


def run_command(*arguments: str, folder: Path) -> str:
    done = subprocess.run([*RETRIEVAL, *arguments], cwd=folder, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_command_reads_the_same_of_a_folder_by_itself_and_of_the_whole_tree(tmp_path: Path) -> None:
    """`retrieval index docs` leaves out the text that `retrieval index .` leaves out."""
    root = tmp_path.resolve()
    git(root, "init", "--quiet", "--template=")
    files = {".gitignore": "*\n!*/\n!*.md\n", "docs/guide.md": "harbour guide", "docs/secret.txt": "harbour secret"}
    make_tree(root, files)
    settings_given = ("--set", "embedder.kind=none", "--set", "search.mode=lexical")
    for start in (".", "docs"):
        given = (*settings_given, "--index", str(root / f"{len(start)}.db"))
        run_command("index", start, *given, folder=root)
        found = run_command("search", "harbour", "--json", *given, folder=root)
        assert "guide.md" in found
        assert "secret.txt" not in found
