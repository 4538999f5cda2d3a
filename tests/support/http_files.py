"""Files that are sent to a service, and the events of their way into the index."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from support.http_service import Service


async def send_file(service: Service, name: str, content: bytes, token: str | None = None, **more: str) -> Any:
    headers = {"content-type": "application/octet-stream", **more}
    return await service.ask("POST", "/v1/files", token, params={"name": name}, content=content, headers=headers)


async def events_of_file(service: Service, name: str, content: bytes) -> list[dict[str, Any]]:
    answer = await send_file(service, name, content)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    parts = (part for part in answer.text.strip().split("\n\n") if not part.startswith(":"))  # while nothing happens
    blocks = [part.splitlines() for part in parts]
    told = [json.loads(block[1].removeprefix("data: ")) for block in blocks]
    assert [block[0] for block in blocks] == [f"event: {each['type']}" for each in told]
    return told
