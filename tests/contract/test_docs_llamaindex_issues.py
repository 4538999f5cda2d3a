"""The page about issues of LlamaIndex names an issue and tests in each row, and the tests are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/dev/llamaindex-issues.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| [")]
ISSUE = re.compile(r"\[#(\d+)\]\(https://github\.com/run-llama/llama_index/issues/\1\)")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
TESTS = sorted({named for row in ROWS for named in TEST.findall(row)})


def test_every_row_has_an_issue_of_its_own_and_tests() -> None:
    assert len(ROWS) >= 20
    issues = [ISSUE.findall(row) for row in ROWS]
    assert all(issues)
    assert len({number for numbers in issues for number in numbers}) == sum(map(len, issues))
    assert all(TEST.search(row) for row in ROWS)


@pytest.mark.parametrize(("file", "name"), TESTS, ids=[name for _, name in TESTS])
def test_the_test_is_there(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
