"""The page for people: static files, which ask the API as any other client does."""

from __future__ import annotations

import asyncio
import gzip
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

PAGE = "/"
FILES = "/page/"
"""Where the files of the page are; like the page itself they hold no secret, and are given to everybody."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Nothing of the page makes markup, scripts or addresses of scripts from texts, so browsers need not allow that."""
_KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def is_public(path: str) -> bool:
    """Whether a path is one of the page's, which needs no token."""
    return path == PAGE or path.startswith(FILES)


async def show_page(request: Request) -> Response:
    """Answer ``GET /`` and ``GET /page/NAME``."""
    name = request.path_params.get("name", "index.html")
    contents = (await asyncio.to_thread(_read_files)).get(name)
    if contents is None:
        raise HTTPException(404)
    kind = _KINDS[name[name.rindex(".") :]]
    headers = {
        "content-security-policy": POLICY,
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cache-control": "no-cache",
        "vary": "accept-encoding",
    }
    content, compressed = contents
    if "gzip" in request.headers.get("accept-encoding", ""):
        content, headers["content-encoding"] = compressed, "gzip"
    return Response(content, 200, headers, f"{kind}; charset=utf-8")


@cache
def _read_files() -> Mapping[str, tuple[bytes, bytes]]:
    """Return the files of the page by name, plain and compressed, read when somebody opens it first."""
    folder = files("retrieval_core_mcp.http") / "page"
    found = {file.name: file.read_bytes() for file in folder.iterdir() if file.name.endswith(tuple(_KINDS))}
    return {name: (content, gzip.compress(content, mtime=0)) for name, content in found.items()}
