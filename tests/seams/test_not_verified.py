"""An answer that is to be verified when nothing can verify it: each interface says ``not_verified``."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from retrieval_core import Document, RetrievalConfig, load_config, open_index
from retrieval_core.errors import InvalidParameterError
from support.command_line import main
from support.extras import needs_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = needs_tokenizer

QUESTION = "how long are backups kept"
REASON = "not_verified: there is no verifier. Set llm.kind or answer.verifier."
SETTINGS = {"embedder.kind": "none", "search.mode": "lexical", "answer.abstain_below": 0, "answer.verify": True}


def config_of(path: Path, **more: Any) -> RetrievalConfig:
    return load_config(overrides={"index": str(path), **SETTINGS, **more})


@pytest.fixture(scope="module")
def index_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of one page."""
    path = tmp_path_factory.mktemp("index") / "harbour.db"
    with open_index(config=config_of(path)) as index:
        index.add_documents([Document("backup", "Backups are kept for thirty days.", source="b.md", content_hash="")])
    return path


def test_in_python(index_file: Path) -> None:
    """As a degradation; with ``strict`` as an error. The sources of the answer match the index all the same."""
    with open_index(config=config_of(index_file)) as index:
        answer = index.answer(QUESTION)
        assert [(entry.stage, entry.reason) for entry in answer.degraded] == [("verify_answer", REASON)]
        assert all(check.matches for check in index.verify(answer.sources))
        assert not index.answer(QUESTION, verify=False).degraded
    with (
        open_index(config=config_of(index_file, strict=True)) as index,
        pytest.raises(InvalidParameterError, match="verify needs a verifier"),
    ):
        index.answer(QUESTION)


def test_on_the_command_line(index_file: Path) -> None:
    """As one warning, and in the answer of --json."""
    settings = [f"--set={key}={json.dumps(value).strip(chr(34))}" for key, value in SETTINGS.items()]
    line = ["answer", QUESTION, "--index", str(index_file), *settings]
    result = CliRunner().invoke(main, line)
    assert result.exit_code == 0, result.output
    assert result.stderr == f"Warning: verification: {REASON}\n"
    told = json.loads(CliRunner().invoke(main, [*line, "--json"]).stdout.splitlines()[-1])
    assert told["answer"]["degraded"] == [{"stage": "verify_answer", "reason": REASON}]


def test_with_mcp(index_file: Path) -> None:
    """In text and in data."""
    pytest.importorskip("retrieval_core_mcp", reason="the server is not installed")
    from mcp import Client
    from retrieval_core_mcp import ServerSettings, create_server

    settings = ServerSettings(retrieval=config_of(index_file), tools=("all",), structured=True)

    async def talk() -> Any:
        async with Client(create_server(settings)) as client:
            return await client.call_tool("answer", {"query": QUESTION})

    told = asyncio.run(talk())
    assert told.structured_content["degraded"] == [f"verify_answer: {REASON}"]
    assert f"Note: verify_answer: {REASON}" in told.content[0].text


def test_over_http(index_file: Path) -> None:
    """In the last event."""
    pytest.importorskip("retrieval_core_mcp", reason="the server is not installed")
    from support.http_service import serving

    async def ask() -> str:
        async with open_index(config=config_of(index_file)) as index, serving({"default": index}) as service:
            return (await service.ask("POST", "/v1/answer", json={"query_text": QUESTION})).text

    event = json.loads(asyncio.run(ask()).strip().split("\n\n")[-1].splitlines()[1].removeprefix("data: "))
    assert event["answer"]["degraded"] == [{"stage": "verify_answer", "reason": REASON}]
