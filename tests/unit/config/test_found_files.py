"""Settings files that are found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from retrieval_core import open_index, open_indexes
from retrieval_core.errors import ConfigurationError
from retrieval_core.index.settings import load_index_config

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("section", "line"),
    [
        *(
            (name, 'kind = "trap:make"')
            for name in ("store", "embedder", "llm", "reranker", "relevance_filter", "pruner")
        ),
        *((name, 'kind = "trap:make"') for name in ("rewriter", "cache", "evaluation")),
        ("reranker", 'kind = "local"\nfallbacks = ["trap:make"]'),
        ("transform", 'use = ["trap:make"]'),
        ("answer", 'verifier = "trap:make"'),
        ("context", 'token_counter = "trap:make"'),
    ],
)
def test_a_file_that_is_found_never_runs_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: str, line: str
) -> None:
    """It may have come with documents of somebody else; a file that is named may."""
    (tmp_path / "trap.py").write_text("raise RuntimeError('the code was run')")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    file = tmp_path / "retrieval.toml"
    file.write_text(f"[{section}]\n{line}\n")
    for open_it in (lambda: open_index(tmp_path / "index.db"), lambda: open_indexes([tmp_path / "index.db"])):
        with pytest.raises(ConfigurationError, match=r"to custom code: .*name the file: --config"):
            open_it()
    assert load_index_config(tmp_path / "index.db", file=file).provenance is not None
