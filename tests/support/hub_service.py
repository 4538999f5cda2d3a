"""The Hugging Face hub for one model: a service for :class:`~support.wire_server.WireServer`.

It answers as the hub does when files are downloaded at a commit. Small files are redirected within the hub; large ones,
kept in Git LFS, to another host. Both redirects carry the commit, the size and the checksum.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import sha1, sha256
from typing import TYPE_CHECKING

from support.wire_server import Request, Response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from support.wire_server import WireServer

CACHE = "/api/resolve-cache"
"""Where small files are."""
STORAGE = "/storage"
"""Where large files are."""
_LARGE = 1_000_000
_RESOLVE = re.compile(r"/(?P<repository>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)")
_RANGE = re.compile(r"bytes=(\d+)-")


@dataclass
class HubService:
    """Serves the files of one repository at one commit.

    Attributes:
        files: By their paths in the repository.
        tokens: What clients sent as ``Authorization`` to the storage host; the hub's token does not belong there.
    """

    repository: str
    revision: str
    files: Mapping[str, bytes]
    server: WireServer | None = None
    tokens: list[str] = field(default_factory=list[str])

    def __call__(self, request: Request) -> Response:
        """Answer a request as the hub does."""
        if found := _RESOLVE.fullmatch(request.path):
            return self._resolve(found["repository"], found["revision"], found["file"])
        for prefix in (CACHE, STORAGE):
            if request.path.startswith(f"{prefix}/"):
                return self._serve(request, request.path.removeprefix(f"{prefix}/"), is_large=prefix == STORAGE)
        return Response(404, b"", {"Content-Type": "text/plain"})

    def _resolve(self, repository: str, revision: str, file: str) -> Response:
        if repository != self.repository:
            return self._error(401, "RepoNotFound")
        if revision != self.revision:
            return self._error(404, "RevisionNotFound")
        content = self.files.get(file)
        if content is None:
            return self._error(404, "EntryNotFound")
        headers = {"X-Repo-Commit": revision, "Content-Type": "text/plain"}
        if len(content) < _LARGE:
            return Response(307, b"", {**headers, "Location": f"{CACHE}/{file}"})
        assert self.server is not None
        elsewhere = self.server.url.replace("127.0.0.1", "localhost")
        linked = {"X-Linked-Size": str(len(content)), "X-Linked-Etag": f'"{sha256(content).hexdigest()}"'}
        return Response(302, b"", {**headers, **linked, "Location": f"{elsewhere}{STORAGE}/{file}"})

    def _serve(self, request: Request, file: str, *, is_large: bool) -> Response:
        content = self.files[file]
        if is_large and "authorization" in request.headers:
            self.tokens.append(request.headers["authorization"])
        git = sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        headers = {"Content-Type": "text/plain", "X-Repo-Commit": self.revision, "ETag": f'"{git}"'}
        if asked := _RANGE.fullmatch(request.headers.get("range", "")):
            start = int(asked[1])
            part = f"bytes {start}-{len(content) - 1}/{len(content)}"
            return Response(206, content[start:], {**headers, "Content-Range": part})
        return Response(200, content, headers)

    def _error(self, status: int, code: str) -> Response:
        return Response(status, b"", {"X-Error-Code": code, "X-Error-Message": code, "Content-Type": "text/plain"})
