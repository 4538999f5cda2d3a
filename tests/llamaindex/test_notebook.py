"""The page about LlamaIndex as a notebook in a kernel of Jupyter, where an event loop runs already."""

# The types of Jupyter's packages are unknown in parts.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")
pytest.importorskip("ipykernel", reason="needs ipykernel")
pytest.importorskip("nbclient", reason="needs nbclient")
pytest.importorskip("onnxruntime", reason="the examples use the local model: pip install 'retrieval-core[local]'")

from nbclient import NotebookClient
from nbformat import v4
from traitlets.config import Config

from support.page_examples import BLOCK, assert_prints, expected_output

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs/llamaindex.md"
A_LOOP_RUNS = "import asyncio\n\nprint(asyncio.get_running_loop().is_running())\n# True\n"


@pytest.fixture
def jupyter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Jupyter with all its files in a folder of the test; its kernel is reached over sockets that are files, too."""
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    for name in ("JUPYTER_PLATFORM_DIRS", "JUPYTER_PREFER_ENV_PATH"):
        monkeypatch.setenv(name, "1")
    # A relative path, since the name of a socket has room for about a hundred characters.
    manager = {"connection_file": "kernel.json", "transport": "tcp" if sys.platform == "win32" else "ipc"}
    return Config(KernelManager=manager)


@pytest.mark.model
def test_a_notebook_prints_what_the_page_says(jupyter: Config) -> None:
    """The examples as they stand there, with ``await`` where a program has to start a loop of its own."""
    examples = [block["code"] for block in BLOCK.finditer(PAGE.read_text("utf-8"))]
    assert any("asyncio.run(" in code for code in examples)
    cells = [A_LOOP_RUNS, *(code.replace("asyncio.run(", "await (") for code in examples)]
    notebook: Any = v4.new_notebook(cells=[v4.new_code_cell(code) for code in cells])
    asyncio.run(NotebookClient(notebook, kernel_name="python3", config=jupyter, timeout=300).async_execute())
    for code, cell in zip(cells, notebook.cells, strict=True):
        printed = "".join(output.text for output in cell.outputs if output.get("name") == "stdout")
        if expected := expected_output(code):
            assert_prints(printed, expected)
