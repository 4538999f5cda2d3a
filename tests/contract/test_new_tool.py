"""What a new capability takes: one module of the service, and one entry in each of the faces that offer it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import TYPE_CHECKING

import pytest

import retrieval_core

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

import retrieval_core_mcp

if TYPE_CHECKING:
    from types import ModuleType

PAGE = Path(__file__).parents[2] / "docs/dev/architecture.md"
IMPORTS = (
    "from retrieval_core.service.counting import CountResponse, count_words\n"
    "from retrieval_core.service.reading import ReadRequest\n"
)
USE = """
import asyncio
from click.testing import CliRunner
from mcp import Client
from retrieval_core import Chunk, RetrievalConfig, open_index
from retrieval_core.cli.commands import main
from retrieval_core.config import EmbedderConfig
from retrieval_core_mcp import ServerSettings, create_server
from support.http_service import serving

config = RetrievalConfig(index="index.db", embedder=EmbedderConfig(kind="none"))

async def call():
    async with open_index(config=config) as index:
        await index.aadd([Chunk("moon", "sky", "The moon is far.")])
        async with Client(create_server(ServerSettings(retrieval=config, tools=("all",), structured=True))) as client:
            tool = await client.call_tool("count_words", {"id": "sky"})
            print(tool.content[0].text, tool.structured_content)
            missing = await client.call_tool("count_words", {"id": "sea"})
            print(missing.content[0].text)
        async with serving({"index": index}) as service:
            print((await service.ask("GET", "/v1/words/sky")).json())
            print((await service.ask("GET", "/v1/words/sea")).status_code)
            print("/v1/words/{document_id}" in (await service.ask("GET", "/openapi.json")).json()["paths"])

asyncio.run(call())
for words in (["sky"], ["sea"], [""]):
    print(CliRunner().invoke(main, ["words", *words, "--index", "index.db"]).output)
"""


def test_a_capability_of_all_faces(tmp_path: Path) -> None:
    """The example of the page, added to a copy, answers a tool, an endpoint and a command."""
    section = PAGE.read_text(encoding="utf-8").partition("## Add a tool")[2].partition("\n## ")[0]
    module, tool, row, command = (block.split("```")[0] for block in section.split("```python\n")[1:])
    for package in (retrieval_core, retrieval_core_mcp):
        copied(package, tmp_path)
    core, server = tmp_path / "retrieval_core", tmp_path / "retrieval_core_mcp"
    (core / "service/counting.py").write_text(module, encoding="utf-8")
    added(server / "tools/registry.py", "TOOLS = (\n", tool)
    added(server / "http/routes.py", "ROWS = (\n", row, IMPORTS)
    commands = core / "cli/commands.py"
    commands.write_text(f"{commands.read_text(encoding='utf-8')}\n\n{command}", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(Path(__file__).parents[1])))}
    done = subprocess.run(
        [sys.executable, "-c", USE], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = done.stdout.splitlines()
    assert told[0] == "words: 4 {'words': 4}"
    assert told[1].startswith("There is nothing with the id sea.")
    assert told[2:5] == ["{'words': 4}", "404", "True"]
    said = "\n".join(told[5:])
    assert '"words": 4' in said
    assert "Error: Document sea not found" in said
    assert "Error: id: String should have at least 1 character, got ''" in said


def copied(package: ModuleType, folder: Path) -> None:
    """Copy a package, so that it can be changed."""
    source = Path(str(package.__file__)).parent
    copytree(source, folder / source.name, ignore=ignore_patterns("__pycache__"))


def added(module: Path, table: str, entry: str, imports: str = "") -> None:
    """Add an entry to a table of a module, with its imports."""
    text = module.read_text(encoding="utf-8")
    future = "from __future__ import annotations\n"
    assert table in text
    text = text.replace(future, f"{future}\n{imports}").replace(table, f"{table}{entry.strip()},\n")
    module.write_text(text, encoding="utf-8")
