"""Resources: passages and documents by their addresses, which clients read, list and attach without a tool."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NoBase64
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

from retrieval_core_mcp.explain import explain
from retrieval_core_mcp.fitting import clean, in_one_line
from retrieval_core_mcp.settings import LARGEST_ANSWER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.types.filters import Filter
    from retrieval_core_mcp.library import Entry, Library

PAGE = 50
"""Resources in a part of the list."""
LONGEST_ADDRESS = 8_000
Kind = Literal["chunk", "document"]
_TEMPLATES = {
    "document": "A whole document, as it was read",
    "chunk": "A passage of a document",
}


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a resource, ``chunk://INDEX/ID`` or ``document://INDEX/ID``, with both percent-encoded."""

    kind: Kind
    index: str
    id: str

    def __str__(self) -> str:
        return f"{self.kind}://{quote(self.index, safe='')}/{quote(clean(self.id), safe='')}"


def read_address(uri: str) -> Address | None:
    """Return what an address says; ``None`` where it is none of a resource."""
    kind, separator, rest = uri.partition("://")
    index, slash, entry = rest.partition("/")
    if kind not in _TEMPLATES or not separator or not slash or not entry or len(uri) > LONGEST_ADDRESS:
        return None
    return Address(cast("Kind", kind), unquote(index), unquote(entry))


class Resources:
    """The resources of a server.

    Args:
        libraries: The indexes by name.
    """

    def __init__(self, libraries: Mapping[str, Library]) -> None:
        self._libraries = libraries

    def templates(self) -> ListResourceTemplatesResult:
        """Return the forms of addresses."""
        return ListResourceTemplatesResult(
            resource_templates=[
                ResourceTemplate(
                    uri_template=f"{kind}://{{index}}/{{id}}", name=kind, description=told, mime_type="text/plain"
                )
                for kind, told in _TEMPLATES.items()
            ]
        )

    async def list(self, cursor: str | None, condition: Filter | None) -> ListResourcesResult:
        """Return a part of the documents that a caller may see, by index and id.

        Raises:
            MCPError: The cursor is none, or an index cannot be read.
        """
        begin = _decoded(cursor)
        shown: list[Resource] = []
        for name, library in sorted(self._libraries.items()):
            if begin is not None and name < begin[0]:
                continue
            try:
                ids = await library.documents(condition)
            except Exception as error:  # noqa: BLE001 - an index that is not there yet has no resources
                explain(error, library.settings.retrieval)
                continue
            for entry in ids:
                if begin is not None and (name, entry) <= begin:
                    continue
                if len(shown) == PAGE:
                    return ListResourcesResult(resources=shown, next_cursor=_encoded(read_address(shown[-1].uri)))
                uri = str(Address("document", name, entry))
                shown.append(Resource(uri=uri, name=in_one_line(entry, 200), mime_type=_mime_type(entry)))
        return ListResourcesResult(resources=shown)

    async def read(self, uri: str, condition: Filter | None) -> ReadResourceResult:
        """Return the text of a passage or document.

        Raises:
            MCPError: There is none of that address which the caller may see, or the index cannot be read.
        """
        if (entry := await self.entry(uri, condition)) is None:
            raise MCPError(INVALID_PARAMS, "Resource not found", {"uri": uri[:LONGEST_ADDRESS]})
        text = clean(entry.text)[:LARGEST_ANSWER]
        contents = TextResourceContents(uri=uri, mime_type=_mime_type(entry.source or entry.id), text=text)
        return ReadResourceResult(contents=[contents])

    async def entry(self, uri: str, condition: Filter | None) -> Entry | None:
        """Return the passage or document of an address; ``None`` where there is none that a caller may see.

        Raises:
            MCPError: The index cannot be read.
        """
        address = read_address(uri)
        if address is None or (library := self._libraries.get(address.index)) is None:
            return None
        try:
            entry = await library.fetch(address.id, condition)
        except Exception as error:  # noqa: BLE001 - every request gets an answer
            raise MCPError(INVALID_PARAMS, explain(error, library.settings.retrieval)) from None
        return entry if entry is not None and (entry.chunk is not None) == (address.kind == "chunk") else None

    async def fingerprint(self, uri: str, condition: Filter | None) -> str | None:
        """Return what changes with a resource's text; ``None`` where there is none that a caller may see.

        Raises:
            MCPError: The index cannot be read.
        """
        entry = await self.entry(uri, condition)
        return None if entry is None else sha256(entry.text.encode("utf-8", "surrogatepass")).hexdigest()

    async def fingerprint_of_list(self, condition: Filter | None) -> str:
        """Return what changes with the list of resources that a caller may see."""
        told = sha256()
        for name, library in sorted(self._libraries.items()):
            try:
                ids = await library.documents(condition)
            except Exception as error:  # noqa: BLE001 - an index that is not there yet has no resources
                explain(error, library.settings.retrieval)
                continue
            for entry in ids:
                told.update(f"{name}\0{entry}\0".encode("utf-8", "surrogatepass"))
        return told.hexdigest()


def _mime_type(name: str) -> str:
    return "text/markdown" if name.lower().endswith((".md", ".markdown")) else "text/plain"


def _encoded(address: Address | None) -> str | None:
    """Return a cursor: it holds what the caller was shown last, and so nothing of what others have."""
    if address is None:
        return None
    return urlsafe_b64encode(str(address).encode()).decode()


def _decoded(cursor: str | None) -> tuple[str, str] | None:
    """Return the index and the document that a part of the list begins behind.

    Raises:
        MCPError: It is no cursor.
    """
    if cursor is None:
        return None
    try:
        address = read_address(urlsafe_b64decode(cursor.encode()).decode())
    except (NoBase64, ValueError):
        address = None
    if address is None:
        raise MCPError(INVALID_PARAMS, "resources/list: the cursor is none; leave it out to begin anew")
    return address.index, address.id
