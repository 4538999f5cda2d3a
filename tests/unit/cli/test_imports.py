"""What a command imports."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.processes import with_our_modules


def failed(code: str) -> tuple[int, str]:
    """Return how a program ended, and what it printed on standard error."""
    ended = subprocess.run(
        [sys.executable, "-c", code], env=with_our_modules(), capture_output=True, text=True, check=False
    )
    return ended.returncode, ended.stderr


def test_the_start_pays_for_nothing_that_is_not_used() -> None:
    """Neither for completion nor for what some commands need."""
    heavy = ("click.shell_completion", "watchfiles", "numpy", "pydantic", "rich", "retrieval_core.index.open")
    code = (
        "import sys\nfrom retrieval_core.cli.commands import main\n"
        f"try:\n    main(['--help'])\nfinally:\n    assert not {{*sys.modules}} & {{*{heavy!r}}}"
    )
    with_help, errors = failed(code)
    assert with_help == 0, errors


@pytest.mark.parametrize(("mode", "loads"), [("lexical", False), ("hybrid", True)])
def test_a_search_loads_a_model_only_for_meaning(mode: str, loads: bool) -> None:
    """A search by words leaves what runs models alone; any other begins to load it, even where there is no index."""
    pytest.importorskip("onnxruntime", reason="the extra 'local' is not installed")
    code = (
        "import sys\nfrom retrieval_core.cli.commands import main\n"
        f"try:\n    main(['search', 'moon', '--index', 'nowhere.db', '--mode', {mode!r}])\n"
        f"finally:\n    assert ('onnxruntime' in sys.modules) == {loads}, 'loaded'"
    )
    ended, errors = failed(code)
    assert ended == 1
    assert "nowhere.db" in errors
    assert "AssertionError" not in errors
