"""Mutations are small changes of behavior, each at one place; tools/mutations.py runs the tests with them."""

from __future__ import annotations

import ast

from tools.mutations import moved_lines, mutations_of

SOURCE = '''
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT = 4
MOST = 21


class Reader:
    def first(self, names: Sequence[str], *, strict: bool = True) -> str | None:
        """Return the first name."""
        assert names is not None
        if len(names) < LIMIT and strict:
            self.count += 1
        try:
            return f"é {1 + 1}" + names[0]
        except IndexError:
            return None
'''


def test_what_is_changed() -> None:
    """Comparisons, constants, conditions, statements, results and handlers are changed; texts and types aren't."""
    found = list(mutations_of("reader.py", SOURCE))
    assert {(mutation.function.removeprefix("reader.py"), mutation.after) for mutation in found} == {
        ("", "LIMIT = (5)"),
        ("", "LIMIT = (3)"),
        ("", "MOST = (42)"),
        ("", "MOST = (10)"),
        (".Reader.first", "def first(self, names: Sequence[str], *, strict: bool = (False)) -> str | None:"),
        (".Reader.first", "if (len(names) < LIMIT or strict):"),
        (".Reader.first", "if (not (len(names) < LIMIT and strict)):"),
        (".Reader.first", "if (len(names) <= LIMIT) and strict:"),
        (".Reader.first", "if (len(names) >= LIMIT) and strict:"),
        (".Reader.first", "pass"),
        (".Reader.first", "self.count += (2)"),
        (".Reader.first", "self.count += (0)"),
        (".Reader.first", "return None"),
        (".Reader.first", 'return f"é {1 + 1}" + names[(1)]'),
        (".Reader.first", 'return f"é {1 + 1}" + names[(-1)]'),
        (".Reader.first", "raise"),
    }
    at_import = {mutation.after.partition(" = ")[0] for mutation in found if not mutation.is_in_body}
    assert at_import == {"LIMIT", "MOST", "def first(self, names: Sequence[str], *, strict: bool"}
    for mutation in found:
        assert ast.dump(ast.parse(mutation.source)) != ast.dump(ast.parse(SOURCE))


def test_a_changed_file_keeps_what_its_lines_are_tested_by() -> None:
    """Lines that moved keep their tests, new ones have those of the lines around them, a new file has others."""
    before, after = ["import os", "a = 1", "b = 2", "c = 3"], ["import os", "", "a = 1", "b = 4", "b = 5", "c = 3"]
    tests = {"1": [], "2": [1], "3": [2], "4": [3]}
    expected = {"1": [], "2": [1], "3": [1], "4": [1, 2, 3], "5": [1, 2, 3], "6": [3]}
    assert moved_lines(before, after, tests, [7]) == expected
    assert moved_lines([], after[:2], {}, [7]) == {"1": [7], "2": [7]}
