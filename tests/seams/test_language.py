"""The check of the language of texts for users: red on each kind of place, quiet on good English."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools/language.py"
A = "packages/core/src/core/a.py"
CLI = "packages/core/src/core/cli.py"
PUBLIC = '"""Load documents."""\n\n__all__ = ["Loader", "load"]\n\n'
LONG = "This sentence goes on and on " * 5

OFFENCES = {
    "page": ("README.md", "Set it up.\n\nWhat cannot be read is reported.\n", 3, "name the subject"),
    "package": ("packages/core/README.md", "It searches by meaning.\n", 1, "vector search"),
    "quickstart": ("docs/quickstart-python.md", "Files are passed over.\n", 1, "skip"),
    "length": ("README.md", f"{LONG}.\n", 1, "at most 25 words a sentence, not 30"),
    "table": ("README.md", "| `a` | where it is not set, 3 |\n", 1, "if"),
    "option": (CLI, 'option("-k", help="Results of one\'s own.")', 1, "your own X"),
    "long option": (
        "packages/core/src/core/cli.py",
        f'option("-k", help="{"Set it. " * 8}")',
        1,
        "at most 60 characters",
    ),
    "argparse": (CLI, 'parser.add_argument("-k", help="Set it where it is not.")', 1, "if"),
    "command": (
        "packages/core/src/core/cli.py",
        '@main.command("go")\ndef _go():\n    """What is new is read."""',
        3,
        "name",
    ),
    "error": (A, 'raise ValueError("this part is left alone")', 1, "skip"),
    "f-string": (A, 'msg = f"the {x} text {y} is done without"', 1, "fall back"),
    "warning": (A, 'warn("the words alone are searched")', 1, "only"),
    "log": (A, 'logger.info("the store %s stood in", x)', 1, "fall back to"),
    "tool": ("packages/server/src/server/t.py", 'Field(description="It is told of each change")', 1, "active verb"),
    "module": (
        "packages/core/src/core/__init__.py",
        '"""Whatever is loaded here."""\n__all__ = ["x"]',
        1,
        "name the subject",
    ),
    "class": (A, f'{PUBLIC}class Loader:\n    """A loader which mends files."""', 6, "fix"),
    "method": (
        A,
        f'{PUBLIC}class Loader:\n    """Load."""\n\n    def go(self):\n        """Go.\n\n        The file(s)."""',
        11,
        "the right plural",
    ),
    "field": (
        A,
        f'{PUBLIC}class Loader:\n    """Load."""\n\n    x = 1\n    """By words."""',
        9,
        "k",
    ),
    "setting": (
        A,
        'class XConfig:\n    x: int = 1\n    """The dense side of it."""',
        3,
        "search",
    ),
}
QUIET = {
    "README.md": "# What you get\n\nWhat is it? `what was found`.\n\n```sh\n# words alone\n```\n\nOf course.\n",
    A: (
        f"{PUBLIC}def load():\n"
        '    """Load documents from the folder where they are.\n\n    Example::\n\n        what alone\n    """\n'
        '    # by words alone\n    run("SELECT a FROM b WHERE it is alone")\n\n\n'
        'def _private():\n    """What it does alone."""\n\n\nDEFAULT_PROMPT = "Use the words alone."\n'
    ),
    "packages/core/src/core/_hidden.py": '"""What is hidden alone."""\n',
    "tests/test_a.py": 'msg = "the words alone are searched"\n',
}


def check(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the check over a folder."""
    return subprocess.run(
        [sys.executable, str(SCRIPT), *options, str(folder)], capture_output=True, text=True, check=False
    )


def write(folder: Path, name: str, text: str) -> None:
    """Write a file and the folders it is in."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


@pytest.mark.parametrize("place", OFFENCES)
def test_an_offence_fails_with_its_line_and_advice(place: str, tmp_path: Path) -> None:
    """Each kind of text for users is checked."""
    name, text, line, advice = OFFENCES[place]
    write(tmp_path, name, text)
    done = check(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{name}:{line}: " in done.stdout
    assert advice in done.stdout


def test_good_english_code_and_private_names_pass(tmp_path: Path) -> None:
    """Questions, code, private docstrings, tests and instructions for models have no offences."""
    for name, text in QUIET.items():
        write(tmp_path, name, text)
    done = check(tmp_path)
    assert (done.returncode, done.stdout) == (0, "0 offences, 0 warnings\n")


def test_other_pages_only_warn_and_can_list(tmp_path: Path) -> None:
    """A page for contributors is counted; the option lists each offence."""
    write(tmp_path, "docs/dev/stores.md", "It is found by its words.\n\nWhatever is there is kept.\n")
    done = check(tmp_path)
    assert (done.returncode, done.stdout) == (0, "docs/dev/stores.md: 2 warnings\n0 offences, 2 warnings\n")
    listed = check(tmp_path, "--warnings")
    assert listed.returncode == 0
    assert "docs/dev/stores.md:3: page: 'Whatever': name the subject" in listed.stdout


def test_one_file_can_be_checked(tmp_path: Path) -> None:
    """A path of one file checks only that file."""
    repository = SCRIPT.parents[1]
    done = check(repository / "docs/dev/english.md")
    assert done.returncode == 0, done.stdout + done.stderr
