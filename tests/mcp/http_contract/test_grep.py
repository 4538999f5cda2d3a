"""Searching for patterns over HTTP, also as a tenant."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")
pytest.importorskip("re2", reason="the extra grep")

from retrieval_core import Document
from support.http_service import hashed, opened, serving

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = {
    "acme": "# Acme\n\nThe valve is open.\nThe pump is shut.\n",
    "globex": "# Globex\n\nThe valve is secret.\nThe valve is blue.\n",
}


def asked(folder: Path, token: str, *bodies: dict[str, Any]) -> list[tuple[int, Any]]:
    """Return the status and the answer of each request of a caller."""

    async def run() -> list[tuple[int, Any]]:
        index = opened(folder / "index.db")
        await index.aadd_documents(
            [Document(f"{name}.md", text, metadata={"tenant": name}) for name, text in TEXTS.items()]
        )
        tokens = tuple(hashed(each, each if each in TEXTS else None) for each in (*TEXTS, "operator"))
        answers: list[tuple[int, Any]] = []
        async with serving({"index": index}, tokens=tokens, tenant_field="tenant") as service:
            for body in bodies:
                answer = await service.ask("POST", "/v1/grep", token, json=body)
                answers.append((answer.status_code, answer.json()))
        return answers

    return asyncio.run(run())


def lines(answer: tuple[int, Any]) -> list[tuple[str, int]]:
    status, told = answer
    assert status == 200, told
    return [(each["id"], line["number"]) for each in told["documents"] for line in each["lines"]]


def test_a_tenant_finds_only_its_own_lines(tmp_path: Path) -> None:
    """No count, cursor or filter shows that there is more."""
    bodies: list[dict[str, Any]] = [
        {"pattern": "valve"},
        {"pattern": "valve", "limit": 1},
        {"pattern": "secret"},
        {"pattern": "valve", "path": "globex*"},
        {"pattern": "valve", "filters": {"tenant": "globex"}},
        {"pattern": "valve", "output": "counts"},
    ]
    whole, first, secret, path, other, counts = asked(tmp_path, "acme", *bodies)
    assert lines(whole) == lines(first) == [("acme.md", 3)]
    assert lines(secret) == lines(path) == lines(other) == []
    assert [(each["id"], each["count"]) for each in counts[1]["documents"]] == [("acme.md", 1)]
    assert "globex" not in str((whole, secret, path, counts))
    (operator,) = asked(tmp_path, "operator", {"pattern": "valve"})
    assert lines(operator) == [("acme.md", 3), ("globex.md", 3), ("globex.md", 4)]


def test_pages_continue_with_the_cursor_and_wrong_requests_are_named(tmp_path: Path) -> None:
    bodies: list[dict[str, Any]] = [
        {"pattern": "the", "limit": 1},
        {"pattern": "the", "limit": 1, "cursor": "YWNtZS5tZA.3"},
        {"pattern": "a(?=b)"},
        {"pattern": "a", "context": 21},
        {"pattern": "a", "cursor": "x"},
        {"pattern": "a", "output": "all"},
        {},
    ]
    first, second, *wrong = asked(tmp_path, "acme", *bodies)
    assert lines(first) == [("acme.md", 3)]
    assert first[1]["next_cursor"] == "YWNtZS5tZA.3"
    assert lines(second) == [("acme.md", 4)]
    assert {status for status, _ in wrong} == {400}
    assert "lookaround" in wrong[0][1]["errors"][0]
