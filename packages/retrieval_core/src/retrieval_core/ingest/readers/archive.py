"""The ZIP archives of XML that DOCX, PPTX and EPUB are, unpacked within bounds.

The sizes that an archive declares are not trusted: bytes are counted as they are unpacked, and the libraries that parse
office files get a copy of what was unpacked.
"""

from __future__ import annotations

import re
import zlib
from contextlib import contextmanager
from io import BufferedReader, BytesIO, FileIO
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from retrieval_core.ingest.readers.base import RefusedError, one_line, unreadable

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping
    from pathlib import Path

MOST_PART_BYTES = 24 << 20
"""Bytes of markup in a page of a book, or in all parts of an office file. The Bible's text is 5 MiB."""
MOST_PART_NODES = 160_000
"""Elements and attributes in the markup of one part: parsers make up to a kilobyte of each. A page has some 400."""
MOST_BYTES = 256 << 20
"""Bytes of markup that are unpacked of one archive."""
MOST_NODES = 2_000_000
"""Elements and attributes in the markup of one archive, some 5,000 pages: half a minute's work."""
MOST_CHARACTERS = 16_000_000
"""Characters of the text of one archive, some 5,000 pages."""

_DECLARES_ENTITIES = "its XML declares entities, which office files never do"

_ADVICE = "; split it, or save it as HTML, Markdown or PDF"
_MOST_DIRECTORY_BYTES = 4 << 20
_MOST_MEMBERS = 10_000
_TOO_MANY_MEMBERS = f"it has more than {_MOST_MEMBERS:,} parts"
# Apache POI refuses a part that is more than a hundred times its packed size; real ones stay below 50.
_MOST_RATIO = 100
_FREE_BYTES = 1 << 20
_PIECE = 1 << 16
_HEAD = 256
_MARKUP_START = re.compile(rb"(?:\xef\xbb\xbf|\xff\xfe|\xfe\xff)?[\s\0]*<")
_ENCODING = re.compile(rb"\A[^<]*<\?xml[^>]*?encoding\s*=\s*[\"']([^\"']*)")
_ENCODINGS = frozenset({"utf-8", "utf-16", "us-ascii"})
_OLE_HEAD = b"\xd0\xcf\x11\xe0"
_ENCRYPTED = 0x1


class Archive:
    """The members of an open ZIP archive; made by :func:`open_archive`.

    Args:
        most_bytes: How much may be unpacked, repetitions included.
    """

    def __init__(self, archive: ZipFile, most_bytes: int) -> None:
        self._archive = archive
        self._bytes_left = most_bytes
        self._nodes_left = MOST_NODES

    def read(self, name: str) -> bytes:
        """Unpack a member that is markup.

        Raises:
            KeyError: There is no member of this name.
            RefusedError: It is too large, or too much was unpacked of the archive.
        """
        data = b"".join(self._within(name, self._pieces(name)))
        nodes = count_nodes(data)
        if nodes > MOST_PART_NODES:
            raise RefusedError(_too_many_nodes(name))
        self._count(nodes)
        return data

    def _pieces(self, name: str) -> Iterator[bytes]:
        with self._archive.open(name) as member:
            while piece := member.read(_PIECE):
                self._bytes_left -= len(piece)
                if self._bytes_left < 0:
                    msg = (
                        f"it unpacks to more than {MOST_BYTES >> 20} MiB of markup, or to {_MOST_RATIO} times its size"
                    )
                    raise RefusedError(msg)
                yield piece

    def _count(self, nodes: int) -> None:
        self._nodes_left -= nodes
        if self._nodes_left < 0:
            msg = f"it has more than {MOST_NODES:,} elements and attributes{_ADVICE}"
            raise RefusedError(msg)

    def office_parts(self, most_nodes: int) -> dict[str, bytes]:
        """Return the members by name, with the content of those that are XML; the others, such as pictures, are empty.

        XML is recognised by its first characters, since relationships can give any name any part to play.

        Args:
            most_nodes: Elements and attributes that all of them may have together.

        Raises:
            RefusedError: Too much was unpacked, XML declares entities, which a parser would expand, or it is in an
                encoding that the format does not allow.
        """
        parts: dict[str, bytes] = {}
        size = 0
        for name in dict.fromkeys(self._archive.namelist()):
            with self._archive.open(name) as member:
                is_markup = _MARKUP_START.match(member.read(_HEAD))
            data = b"".join(self._within(name, self._pieces(name), size)) if is_markup else b""
            if declares_type(data):
                raise RefusedError(_DECLARES_ENTITIES)
            if encoding := _ENCODING.match(data):
                _refuse_encoding(encoding[1].decode("ascii", "replace"))
            nodes = count_nodes(data)
            most_nodes -= nodes
            if most_nodes < 0:
                raise RefusedError(_too_many_nodes(name))
            self._count(nodes)
            size += len(data)
            parts[name] = data
        return parts

    @staticmethod
    def _within(name: str, pieces: Iterator[bytes], size: int = 0) -> Iterator[bytes]:
        for piece in pieces:
            size += len(piece)
            if size > MOST_PART_BYTES:
                raise RefusedError(_too_long(name))
            yield piece


def zipped(parts: Mapping[str, bytes]) -> BytesIO:
    """Return a ZIP archive of parts, for the libraries that parse office files."""
    archive = BytesIO()
    with ZipFile(archive, "w", ZIP_STORED) as file:
        for name, data in parts.items():
            file.writestr(name, data)
    archive.seek(0)
    return archive


def _refuse_encoding(name: str) -> None:
    """Raise :class:`RefusedError` for an encoding that office files do not have."""
    if name.lower() not in _ENCODINGS:
        msg = "its XML is neither in UTF-8 nor in UTF-16, as that of office files is"
        raise RefusedError(msg)


def joined(texts: Iterable[str]) -> list[str]:
    """Return the texts that are not empty.

    Raises:
        RefusedError: They have more than :data:`MOST_CHARACTERS` together.
    """
    kept: list[str] = []
    left = MOST_CHARACTERS
    for text in filter(None, texts):
        left -= len(text)
        if left < 0:
            msg = f"its text has more than {MOST_CHARACTERS:,} characters{_ADVICE}"
            raise RefusedError(msg)
        kept.append(text)
    return kept


def _too_many_nodes(name: str) -> str:
    """Return the reason for refusing a part."""
    return f"{_shown(name)} has more elements and attributes than are parsed at once{_ADVICE}"


def _too_long(name: str) -> str:
    """Return the reason for refusing a part."""
    return f"{_shown(name)} has more than {MOST_PART_BYTES >> 20} MiB of markup{_ADVICE}"


def _shown(name: str) -> str:
    return one_line(name)[:100] or "a part"


@contextmanager
def open_archive(path: Path) -> Generator[Archive]:
    """Open a ZIP archive to read from within bounds.

    Raises:
        UnreadableFileError: The file is no archive, is damaged or encrypted, or has too many members.
    """
    try:
        with _PiecewiseFile(FileIO(path)) as file, ZipFile(file) as archive:
            members = archive.infolist()
            if len(members) > _MOST_MEMBERS:
                raise unreadable(path, _TOO_MANY_MEMBERS)
            if any(member.flag_bits & _ENCRYPTED for member in members):
                raise unreadable(path, "it is encrypted")
            if any(member.compress_type not in {ZIP_STORED, ZIP_DEFLATED} for member in members):
                raise unreadable(path, "it is compressed by a method that its format does not allow")
            most_bytes = min(MOST_BYTES, _FREE_BYTES + _MOST_RATIO * path.stat().st_size)
            yield Archive(archive, most_bytes)
    except (BadZipFile, EOFError, zlib.error) as exc:
        with path.open("rb") as file:
            is_ole = file.read(len(_OLE_HEAD)) == _OLE_HEAD
        reason = "it is protected by a password, or of an older format" if is_ole else "it is damaged or incomplete"
        raise unreadable(path, reason) from exc


class _PiecewiseFile(BufferedReader):
    """A file that refuses a read of more bytes than the directory of an archive may have."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _MOST_DIRECTORY_BYTES:
            raise RefusedError(_TOO_MANY_MEMBERS)
        return super().read(size)


def count_nodes(data: bytes | bytearray) -> int:
    """Return an upper bound of the elements and attributes in markup."""
    return data.count(b"<") - data.count(b"</") + data.count(b"=")


def parse_xml(data: bytes) -> ET.Element:
    """Parse XML without entities, so that its size in memory is bounded and nothing is fetched.

    Raises:
        ValueError: It has a document type declaration.
        ParseError: It is not well formed.
    """
    if declares_type(data):
        msg = "XML with a document type declaration is not read"
        raise ValueError(msg)
    return ET.fromstring(data)  # noqa: S314 - what the safe parsers forbid was just refused


def declares_type(data: bytes) -> bool:
    """Whether XML, in UTF-8 or UTF-16, has a document type declaration; office formats forbid them."""
    return b"<!DOCTYPE" in data.replace(b"\0", b"")


def core_properties(parts: Mapping[str, bytes]) -> tuple[str | None, str | None]:
    """Return the title and the author that an office file names."""
    if "docProps/core.xml" not in parts:
        return None, None
    properties = parse_xml(parts["docProps/core.xml"])
    title = properties.findtext("{http://purl.org/dc/elements/1.1/}title")
    author = properties.findtext("{http://purl.org/dc/elements/1.1/}creator")
    return one_line(title) or None, author
