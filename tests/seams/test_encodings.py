# ruff: noqa: RUF001 - dashes as office programs write them
"""Files in the encodings of old programs are read as they were written, and a guess is reported."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import Index, RetrievalConfig, open_index
from support.legacy_texts import LegacyText, legacy_texts
from support.processes import RETRIEVAL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFIG = RetrievalConfig.model_validate({"store": {"kind": "memory"}, "embedder": {"kind": "none"}})
KEYWORDS = ("--set", "embedder.kind=none", "--set", "search.mode=lexical")
EXACT = 0.98


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """An empty index beside the files."""
    with open_index(tmp_path / "index.db", config=CONFIG) as opened:
        yield opened


def text_read(index: Index, name: str, like: LegacyText) -> str:
    """Return what an index has of a file, in the form in which the file was written."""
    if like.form != "table":
        document = index.document(name)
        return document.text if document else ""
    rows = [index.document(f"{name}#{number}") for number in range(1, like.text.count("\n"))]
    cells = [f"{row.metadata['Nr']};{row.text};{row.metadata['EUR']}\r\n" for row in rows if row]
    return "".join(["Nr;Text;EUR\r\n", *cells])


@pytest.mark.parametrize("part", range(3))
def test_texts_of_sixteen_languages_are_read_exactly(tmp_path: Path, index: Index, part: int) -> None:
    """Of more than a hundred files of each set at most two differ by a letter, and all guesses are reported."""
    texts = {f"{at}{'.csv' if text.form == 'table' else '.txt'}": text for at, text in enumerate(legacy_texts(part))}
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text.content)
    report = index.ingest(tmp_path)
    assert report.failed == ()
    read = {name: text_read(index, name, text) for name, text in texts.items()}
    wrong = [
        (text.language, text.encoding, text.form, read[name]) for name, text in texts.items() if read[name] != text.text
    ]
    assert len(texts) > 100
    assert len(wrong) <= (1 - EXACT) * len(texts), wrong
    assert sorted(note.path for note in report.notes) == sorted(str(tmp_path / name) for name in texts)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_unicode_is_no_guess(tmp_path: Path, index: Index, encoding: str) -> None:
    """UTF-8, and what begins with a byte order mark, is read without a warning."""
    text = "Grüße aus Köln; привет, 倉庫のドア"
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    assert index.ingest(tmp_path).notes == ()
    document = index.document("a.txt")
    assert document is not None
    assert document.text == text


def test_broken_bytes_do_not_spoil_the_rest_of_utf8(tmp_path: Path, index: Index) -> None:
    """One byte of another encoding, far from all other letters with accents, costs itself only, and is reported."""
    text = "Grüße aus Köln, schöne Straße.\n" + "plain words only\n" * 20_000
    (tmp_path / "a.txt").write_bytes(text.encode() + b"caf\xe9\n")
    report = index.ingest(tmp_path)
    document = index.document("a.txt")
    assert document is not None
    assert document.text == text + "caf\ufffd\n"
    assert [note.message for note in report.notes] == ["some of its bytes are not valid UTF-8; they became \ufffd"]


@pytest.mark.parametrize(
    ("head", "encoding"),
    [
        ('<meta charset="iso-8859-1">', "cp1252"),
        ('<meta charset="utf-8">', "cp1252"),
        ('<meta charset="gb2312">', "gb18030"),
        ("", "cp1252"),
    ],
)
def test_pages_are_read_as_browsers_read_them(tmp_path: Path, index: Index, head: str, encoding: str) -> None:
    """Office programs declared Windows-1252 as ISO-8859-1; a page that declares UTF-8 and is not is guessed."""
    pytest.importorskip("html_to_markdown")
    words = "鎔 倉庫" if encoding == "gb18030" else "“Größe” – naïve café"
    (tmp_path / "a.html").write_bytes(f"<html><head>{head}</head><body><p>{words}</p></body></html>".encode(encoding))
    report = index.ingest(tmp_path)
    document = index.document("a.html")
    assert document is not None
    assert document.text == words
    assert bool(report.notes) == ("iso" not in head and "gb" not in head)


def test_the_command_reports_a_guess_once(tmp_path: Path) -> None:
    """A German table from Excel: right letters, and a line that names the file and the encoding, in JSON as well."""
    content = "Kunde;Text\r\nMüller;Größe geändert – „Grüße“ für 5 €\r\n".encode("cp1252")
    for name in ("kunden.csv", "kopie.csv"):
        (tmp_path / name).write_bytes(content)

    def run(*arguments: str) -> str:
        command = [*RETRIEVAL, *arguments, *KEYWORDS, "--index", "index.db"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    report = json.loads(run("index", "kunden.csv", "--json"))
    (note,) = report["notes"]
    assert note["path"] == "kunden.csv"
    assert "Windows-1252" in note["message"]
    printed = run("index", ".")
    assert printed.count("Windows-1252") == 1
    assert "kopie.csv" in printed
    assert "Windows-1252" not in run("index", ".")
    assert "Größe geändert – „Grüße“ für 5 €" in run("search", "Größe")


def test_clients_of_the_server_are_told_of_a_guess(tmp_path: Path) -> None:
    """Indexing over MCP, and a file sent over HTTP, report the encoding that was guessed."""
    pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    from mcp import Client
    from support.http_process import http_process

    (tmp_path / "a.txt").write_bytes("Größe geändert".encode("cp1252"))
    (tmp_path / "config.toml").write_text('[embedder]\nkind = "none"\n[search]\nmode = "lexical"\n')

    async def index_over_mcp(url: str) -> Any:
        async with Client(streamable_http_client(f"{url}/mcp?structured=true")) as client:
            return await client.call_tool("index_path", {"path": "."})

    options = ("--index", str(tmp_path / "index.db"), "--config", str(tmp_path / "config.toml"))
    with http_process(*options, "--allow-writes", "--root", str(tmp_path)) as service:
        answer = asyncio.run(index_over_mcp(service.url))
        (note,) = answer.structured_content["notes"]
        assert note["path"] == "a.txt"
        assert "Windows-1252" in note["message"]
        assert "a.txt: it is not in UTF-8" in answer.content[0].text
        headers = {"content-type": "application/octet-stream"}
        content = "Übergröße".encode("cp1252")
        sent = httpx2.post(f"{service.url}/v1/files?name=b.txt", content=content, headers=headers, timeout=60)
        (line,) = [line for line in sent.text.splitlines() if '"type":"done"' in line]
        (message,) = json.loads(line.removeprefix("data: "))["notes"]
        assert "Windows-1252" in message
