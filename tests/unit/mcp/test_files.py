"""Files that are sent, and what is read of one that breaks off."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from retrieval_core.ingest import reading
from retrieval_core.ingest.isolated import read_isolated
from retrieval_core.service.uploads import FOLDER
from support.http_files import events_of_file

if TYPE_CHECKING:
    from pathlib import Path

    from support.http_service import Served, Service


def test_a_table_that_breaks_off_leaves_the_rows_of_the_former(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or none, where there was no file of that name; the former one sent once more has nothing new."""
    row: dict[str, Any] = {
        "text": "Of Venus.",
        "markup": "plain",
        "title": None,
        "pages": [],
        "metadata": {},
        "key": None,
    }
    code = f"import json; [print(json.dumps({{'document': {row!r} | {{'row': n}}}})) for n in range(1, 301)]"
    command = (sys.executable, "-c", code + "; import os, sys; sys.stdout.flush(); os.abort()")
    rows = b"text\n" + b"A moon of Mars.\n" * 300

    async def breaking_off(service: Service, name: str) -> None:
        calls = iter([partial(read_isolated, command=command)])

        def first_breaks_off(*given: Any, **more: Any) -> Any:
            return next(calls, read_isolated)(*given, **more)

        with monkeypatch.context() as patched:
            patched.setattr(reading, "read_isolated", first_breaks_off)
            told = await events_of_file(service, name, b"text\nbroken\n")
        assert any(event["type"] == "progress" for event in told)
        assert "its reader broke down" in told[-1]["reason"]

    async def listed(service: Service) -> list[str]:
        return (await service.ask("GET", "/v1/documents?name=uploads&limit=1000")).json()["documents"]

    async def check(service: Service) -> None:
        await breaking_off(service, "planets.csv")
        assert await listed(service) == []
        await events_of_file(service, "planets.csv", rows)
        before = await listed(service)
        assert len(before) == 300
        await breaking_off(service, "planets.csv")
        assert await listed(service) == before
        first = await service.ask("GET", f"/v1/documents/{FOLDER}%2Fplanets.csv%231")
        assert "A moon of Mars." in first.json()["text"]
        assert (await events_of_file(service, "planets.csv", rows))[-1]["unchanged"] == 300
        assert (tmp_path / FOLDER / "planets.csv").read_bytes() == rows

    served(check, allow_writes=True)
