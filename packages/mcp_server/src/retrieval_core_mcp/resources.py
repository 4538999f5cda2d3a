"""Resources: chunks and documents by their addresses, which clients read, list and attach without a tool."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, cast
from urllib.parse import quote, unquote

from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)

from retrieval_core.errors import NotFoundError
from retrieval_core.service.service_context import ServiceContext
from retrieval_core_mcp.advice import advice_on
from retrieval_core_mcp.fitting import LARGEST_ANSWER, clean, in_one_line

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from retrieval_core.service.reading import ReadResponse
    from retrieval_core.service.served import ServedIndexes
    from retrieval_core.types.filters import Filter

PAGE = 50
"""Resources in a part of the list."""
LONGEST_ADDRESS = 8_000
TEXT = "text/plain"
LIST = ""
"""Stands for the address of the list in :meth:`Resources.fingerprint`."""
Kind = Literal["chunk", "document"]
_TEMPLATES = {"document": "A whole document, as it was read", "chunk": "A chunk of a document"}


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a resource, ``chunk://INDEX/ID`` or ``document://INDEX/ID``, with both percent-encoded."""

    kind: Kind
    index: str
    id: str

    def __str__(self) -> str:
        return f"{self.kind}://{quote(self.index, safe='')}/{quote(clean(self.id), safe='')}"


def read_address(uri: str) -> Address | None:
    """Return the parts of an address; ``None`` if it is none of a resource."""
    kind, separator, rest = uri.partition("://")
    index, slash, entry = rest.partition("/")
    if kind not in _TEMPLATES or not separator or not slash or not entry or len(uri) > LONGEST_ADDRESS:
        return None
    return Address(cast("Kind", kind), unquote(index), unquote(entry))


class Resources:
    """The resources of a server."""

    def __init__(self, indexes: ServedIndexes) -> None:
        self._indexes = indexes

    async def templates(self) -> ListResourceTemplatesResult:
        """Return the forms of addresses."""
        return ListResourceTemplatesResult(
            resource_templates=[
                ResourceTemplate(uri_template=f"{kind}://{{index}}/{{id}}", name=kind, description=told, mime_type=TEXT)
                for kind, told in _TEMPLATES.items()
            ]
        )

    async def list(self, cursor: str | None, tenant: Filter | None) -> ListResourcesResult:
        """Return a part of the documents that a caller may see, by index and ID.

        Args:
            cursor: The last address of the part before.

        Raises:
            MCPError: It is no address.
        """
        begin = None if cursor is None else read_address(cursor)
        if cursor is not None and begin is None:
            raise MCPError(INVALID_PARAMS, "resources/list: the cursor is none; leave it out to begin anew")
        shown: list[Resource] = []
        async for address in self._documents(tenant):
            if begin is not None and (address.index, address.id) <= (begin.index, begin.id):
                continue
            if len(shown) == PAGE:
                return ListResourcesResult(resources=shown, next_cursor=shown[-1].uri)
            name = in_one_line(address.id, 200)
            shown.append(Resource(uri=str(address), name=name, mime_type=_mime_type(address.id)))
        return ListResourcesResult(resources=shown)

    async def read(self, uri: str, tenant: Filter | None) -> ReadResourceResult:
        """Return the text of a chunk or document.

        Raises:
            MCPError: There is none of that address that the caller may see, or the index can't be read.
        """
        if (entry := await self._entry(uri, tenant)) is None:
            raise MCPError(INVALID_PARAMS, "Resource not found", {"uri": uri[:LONGEST_ADDRESS]})
        text = clean(entry.text)[:LARGEST_ANSWER]
        contents = TextResourceContents(uri=uri, mime_type=_mime_type(entry.source or entry.id), text=text)
        return ReadResourceResult(contents=[contents])

    async def fingerprint(self, uri: str, tenant: Filter | None) -> str | None:
        """Return a hash of a resource's text, or of the whole list; ``None`` if there is none that a caller may see.

        Args:
            uri: An address, or :data:`LIST`.

        Raises:
            MCPError: The index can't be read.
        """
        if uri != LIST:
            entry = await self._entry(uri, tenant)
            return None if entry is None else sha256(entry.text.encode("utf-8", "surrogatepass")).hexdigest()
        listed = sha256()
        async for address in self._documents(tenant):
            listed.update(f"{address}\0".encode())
        return listed.hexdigest()

    async def _documents(self, tenant: Filter | None) -> AsyncGenerator[Address]:
        from retrieval_core.service.contents import document_ids  # noqa: PLC0415 - the handshake does not wait for it

        context = ServiceContext(self._indexes, tenant)
        for name in sorted(served.name for served in self._indexes):
            try:
                ids = await document_ids(context, name)
            except Exception as error:  # noqa: BLE001 - an index that isn't there yet has no resources
                advice_on(error, context)
                continue
            for each in ids:
                yield Address("document", name, each)

    async def _entry(self, uri: str, tenant: Filter | None) -> ReadResponse | None:
        """Return the chunk or document of an address; ``None`` if there is none that a caller may see.

        Raises:
            MCPError: The index can't be read.
        """
        from retrieval_core.service.reading import ReadRequest, read  # noqa: PLC0415 - the handshake does not wait for it

        if (address := read_address(uri)) is None:
            return None
        context = ServiceContext(self._indexes, tenant)
        try:
            entry = await read(context, ReadRequest.model_construct(id=address.id, index=address.index, around=0))
        except NotFoundError:
            return None
        except Exception as error:  # noqa: BLE001 - every request gets an answer
            raise MCPError(INVALID_PARAMS, advice_on(error, context)) from None
        return entry if (entry.chunk is not None) == (address.kind == "chunk") else None


def _mime_type(name: str) -> str:
    return "text/markdown" if name.lower().endswith((".md", ".markdown")) else TEXT
