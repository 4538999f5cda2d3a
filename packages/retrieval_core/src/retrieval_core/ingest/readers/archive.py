"""DOCX, PPTX and EPUB are ZIP archives of XML; what has to be checked before anything is unpacked."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET
from zipfile import BadZipFile, ZipFile

from retrieval_core.ingest.readers.base import unreadable

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

_MOST_BYTES = 512 << 20
_MOST_MARKUP_BYTES = 128 << 20
_MARKUP = (".xml", ".rels", ".opf", ".ncx", ".xhtml", ".html", ".htm")
_OLE_HEAD = b"\xd0\xcf\x11\xe0"
_ENCRYPTED = 0x1


@contextmanager
def open_archive(path: Path) -> Generator[ZipFile]:
    """Open an archive whose unpacked size is within bounds: 512 MiB, and 128 MiB of markup.

    The sizes that the archive declares are enough to judge by: no more than these is ever unpacked from it.

    Raises:
        UnreadableFileError: The file is no archive, is damaged, encrypted or too large.
    """
    try:
        with ZipFile(path) as archive:
            members = archive.infolist()
            markup = sum(member.file_size for member in members if member.filename.lower().endswith(_MARKUP))
            if sum(member.file_size for member in members) > _MOST_BYTES or markup > _MOST_MARKUP_BYTES:
                raise unreadable(path, "it would unpack to more than 512 MiB, or 128 MiB of markup")
            if any(member.flag_bits & _ENCRYPTED for member in members):
                raise unreadable(path, "it is encrypted")
            yield archive
    except (BadZipFile, EOFError) as exc:
        with path.open("rb") as file:
            is_ole = file.read(len(_OLE_HEAD)) == _OLE_HEAD
        reason = "it is protected by a password, or of an older format" if is_ole else "it is damaged or incomplete"
        raise unreadable(path, reason) from exc


def parse_xml(data: bytes) -> ET.Element:
    """Parse XML that declares no entities: without these, its size in memory is bounded and nothing is fetched.

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


def refuse_document_types(archive: ZipFile, path: Path) -> None:
    """Refuse an office file whose parts declare entities, which a parser would expand.

    Raises:
        UnreadableFileError: A part does.
    """
    for member in archive.infolist():
        if member.filename.lower().endswith((".xml", ".rels")) and declares_type(archive.read(member)):
            raise unreadable(path, "its XML declares entities, which office files never do")


def core_properties(archive: ZipFile) -> tuple[str | None, str | None]:
    """Return the title and the author that an office file names."""
    if "docProps/core.xml" not in archive.namelist():
        return None, None
    properties = parse_xml(archive.read("docProps/core.xml"))
    title = properties.findtext("{http://purl.org/dc/elements/1.1/}title")
    author = properties.findtext("{http://purl.org/dc/elements/1.1/}creator")
    return " ".join((title or "").split()) or None, author
