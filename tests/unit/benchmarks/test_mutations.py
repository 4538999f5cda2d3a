"""Mutations are small changes of behavior, each at one place; tools/mutations.py runs the tests with them."""

from __future__ import annotations

import ast

from tools.mutations import mutations_of

SOURCE = '''
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT = 4


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
    for mutation in found:
        assert ast.dump(ast.parse(mutation.source)) != ast.dump(ast.parse(SOURCE))
