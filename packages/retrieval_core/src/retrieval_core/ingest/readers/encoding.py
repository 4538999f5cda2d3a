"""Encodings of text files: UTF-8, UTF-16 and UTF-32 by their byte order mark, others by a detector."""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING

from retrieval_core.ingest.readers.base import clean, unreadable

if TYPE_CHECKING:
    from pathlib import Path

# The longer marks come first: UTF-32's begins with UTF-16's.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DECLARED = re.compile(rb"(?:charset|encoding)\s*=\s*[\"']?([A-Za-z0-9_.:-]+)", re.IGNORECASE)
_HEAD = 4096
_BLOCK = 1 << 20
_SAMPLE = 1 << 16
_TEXT_CONTROLS = frozenset(b"\b\t\n\v\f\r\x1b")
_CONTROLS = bytes(byte for byte in range(32) if byte not in _TEXT_CONTROLS)
_MOST_CONTROLS = 0.01


def read_text(path: Path) -> str:
    """Return a text file's content, with line feeds for all line ends.

    Raises:
        UnreadableFileError: The file is binary, or its encoding cannot be recognised.
    """
    encoding = detect_encoding(path)
    return clean(path.read_bytes().decode(encoding, "replace"))


def detect_encoding(path: Path) -> str:
    """Return Python's name of a file's encoding.

    The whole file is read, a block at a time: a single accent may come after megabytes of ASCII. A truncated last
    character is ignored in UTF-8 that has other characters beyond ASCII.

    Raises:
        UnreadableFileError: The file is binary, or its encoding cannot be recognised.
    """
    with path.open("rb") as file:
        head = file.read(4)
        for mark, name in _MARKS:
            if head.startswith(mark):
                return name
        file.seek(0)
        decoder = codecs.getincrementaldecoder("utf-8")()
        block, is_ascii = b"", True
        sample: bytes | None = None
        while following := file.read(_BLOCK):
            block = following
            _refuse_binary(block, path)
            if sample is None:
                try:
                    is_ascii &= decoder.decode(block).isascii()
                except UnicodeDecodeError as error:
                    sample = block[max(0, error.start - _SAMPLE // 2) :][:_SAMPLE]
        if sample is None and is_ascii and decoder.getstate()[0]:
            sample = block[-_SAMPLE:]
    return "utf-8" if sample is None else _guess(sample, path)


def _refuse_binary(block: bytes, path: Path) -> None:
    controls = len(block) - len(block.translate(None, _CONTROLS))
    if b"\0" in block or controls > _MOST_CONTROLS * len(block):
        raise unreadable(path, "it holds binary data, not text")


def _guess(sample: bytes, path: Path) -> str:
    from chardet import detect  # noqa: PLC0415 - most files are UTF-8 and never need it

    # Its confidence is shared out among a hundred encodings and says little: a German page gets 0.05.
    encoding = detect(sample)["encoding"]
    if encoding is None:
        raise unreadable(path, "its text is in no encoding that could be recognised; save it as UTF-8")
    return encoding


def decode_markup(data: bytes, path: Path) -> str:
    """Return HTML or XHTML as text: by its byte order mark, as UTF-8, as declared, or by a detector.

    Raises:
        UnreadableFileError: It is binary, or its encoding cannot be recognised.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return clean(data.decode(name, "replace"))
    _refuse_binary(data, path)
    try:
        return clean(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        sample = data[max(0, error.start - _SAMPLE // 2) :][:_SAMPLE]
    declared = _DECLARED.search(data[:_HEAD])
    try:
        return clean(data.decode(declared[1].decode("ascii") if declared else _guess(sample, path), "replace"))
    except LookupError:  # it declares an encoding that does not exist
        return clean(data.decode(_guess(sample, path), "replace"))
