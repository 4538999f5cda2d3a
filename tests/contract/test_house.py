"""The figures about the code can be printed, and count what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.house import TARGETS, circles, code_lines

ROOT = Path(__file__).parents[2]
SOURCE = '''"""A docstring,
of two lines."""

# a comment
VALUE = """a text,
of two lines"""


def double(number):  # a comment
    """Return twice the number."""
    return (
        number
        + number
    )
'''


def test_all_figures_are_printed() -> None:
    """Each figure of this checkout has a row, also the calls of a query that runs for it."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.house"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines()[2:]]
    counted = {name: int(here.replace(",", "")) for name, here, _ in rows}
    assert TARGETS.keys() <= counted.keys()
    of_imports = {name for name in counted if "import" in name}
    assert min(counted[name] for name in counted.keys() - of_imports) > 10
    assert {counted[name] for name in of_imports} == {0}, (
        "the core has no import circles; see TYPE_CHECKING imports, too"
    )


def test_lines_without_code_are_not_counted() -> None:
    """Docstrings, comments and blank lines are none; each line of another text or expression is one."""
    assert code_lines(SOURCE) == 7


def test_circles_are_groups_that_reach_each_other() -> None:
    """Two modules that import each other through others are in one circle."""
    arrows: dict[str, set[str]] = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"d"}}
    assert circles(arrows) == [{"a", "b", "c"}]
