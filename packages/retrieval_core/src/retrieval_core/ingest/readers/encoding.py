"""Encodings of text files: Unicode by its byte order mark or as valid UTF-8, others by evidence.

A detector scores the encodings that office programs wrote before UTF-8. It is never asked about DOS and Mac encodings:
their scores for texts in Windows-1252 are as high as for their own.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING

from retrieval_core.ingest.readers.base import clean, unreadable
from retrieval_core.ingest.report import FileNote

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from retrieval_core.ingest.readers.base import ReadOptions

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
_BINARY = "it contains binary data, not text"


_LATIN = ("cp1252", "cp1250", "cp1254", "cp1257", "cp1258", "iso8859-2", "iso8859-15")
_EAST_ASIAN = ("cp932", "euc_jis_2004", "gb18030", "big5hkscs", "cp949")
_OTHER_SCRIPTS = (
    "cp1251", "koi8-r", "koi8-u", "cp866", "iso8859-5",  # Cyrillic
    "cp1253", "iso8859-7", "cp1255", "cp1256", "cp874",  # Greek, Hebrew, Arabic, Thai
)  # fmt: skip
_STRONG = 1.1
"""How many times as likely as Windows-1252 another encoding must be. It was chosen on 3,000 texts in 30 languages."""
_SUPERSETS = {
    "ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874", "tis-620": "cp874",
    "gb2312": "gb18030", "gbk": "gb18030", "big5": "big5hkscs", "shift_jis": "cp932", "euc_kr": "cp949",
}  # fmt: skip
"""The encodings that browsers use for declared ones, which are often declared wrongly."""

_BEYOND_ASCII = bytes(range(128, 256))
_RUN = re.compile(rb"[\x80-\xff]{2,}")
_NOT_PRINTED = bytes(byte for byte in range(32) if byte not in b"\t\n\r")
_ESCAPED = re.compile("[\udc80-\udcff]")


def read_text(path: Path, options: ReadOptions) -> str:
    """Return a text file's content, with line feeds for all line ends.

    Raises:
        UnreadableFileError: The file is binary.
    """
    encoding = detect_encoding(path, options)
    return clean(path.read_bytes().decode(encoding, "replace"))


def detect_encoding(path: Path, options: ReadOptions) -> str:
    """Return Python's name of a file's encoding; a guess is noted.

    The whole file is read, a block at a time: a single accent may come after megabytes of ASCII. A truncated last
    character is ignored in UTF-8 that has other characters beyond ASCII.

    Raises:
        UnreadableFileError: The file is binary.
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
                    sample = _sample(block, error)
        if sample is None and is_ascii and decoder.getstate()[0]:
            sample = block[-_SAMPLE:]
        if sample is None:
            return "utf-8"
        file.seek(0)
        return _guess(sample, iter(lambda: file.read(_BLOCK), b""), path, options)


def decode_markup(data: bytes, path: Path, options: ReadOptions) -> str:
    """Return HTML or XHTML as text: by its byte order mark, as UTF-8, as declared, or in a guessed encoding.

    Raises:
        UnreadableFileError: It is binary.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return clean(data.decode(name, "replace"))
    _refuse_binary(data, path)
    try:
        return clean(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        encoding = _declared(data) or _guess(_sample(data, error), (data,), path, options)
    return clean(data.decode(encoding, "replace"))


def _declared(data: bytes) -> str | None:
    """Return the encoding that a page declares, as browsers read it; ``None`` for UTF-8 and unknown encodings."""
    declared = _DECLARED.search(data[:_HEAD])
    try:
        name = codecs.lookup(declared[1].decode("ascii")).name if declared else "utf-8"
        b" ".decode(name)  # some codecs are for other things than text
    except (LookupError, UnicodeError):
        return None
    return None if name == "utf-8" else _SUPERSETS.get(name, name)


def _refuse_binary(block: bytes, path: Path) -> None:
    controls = len(block) - len(block.translate(None, _CONTROLS))
    if b"\0" in block or controls > _MOST_CONTROLS * len(block):
        raise unreadable(path, _BINARY)


def _sample(block: bytes, error: UnicodeDecodeError) -> bytes:
    """Return the bytes around the first one that is not UTF-8."""
    return block[max(0, error.start - _SAMPLE // 2) :][:_SAMPLE]


def _guess(sample: bytes, blocks: Iterable[bytes], path: Path, options: ReadOptions) -> str:
    """Return the likeliest encoding, and note that it is a guess.

    Args:
        sample: Part of the file, with a byte that is not UTF-8.
        blocks: The whole file.
        path: The file.
        options: Receive the note.
    """
    if _is_mostly_utf8(blocks):
        encoding, message = "utf-8", "some of its bytes are not valid UTF-8; they became \N{REPLACEMENT CHARACTER}"
    else:
        encoding = _likeliest(sample, path)
        name = encoding.replace("cp125", "Windows-125")
        message = (
            f"it is not in UTF-8 and does not declare its encoding; it was read as {name}. If letters are wrong, "
            "save it as UTF-8"
        )
    options.on_note(FileNote(str(path), message))
    return encoding


def _is_mostly_utf8(blocks: Iterable[bytes]) -> bool:
    """Whether more characters beyond ASCII are intact than broken, which no text in another encoding comes close to."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    beyond = broken = 0
    for block in blocks:
        text = decoder.decode(block)
        beyond += len(text) - len(text.encode("ascii", "ignore"))
        broken += len(_ESCAPED.findall(text))
    return beyond > 2 * broken


def _likeliest(sample: bytes, path: Path) -> str:
    """Return Windows-1252, unless another encoding is clearly likelier.

    In scripts other than Latin, letters beyond ASCII stand side by side. If most of them stand alone, as in Italian,
    the encodings of other scripts are no candidates.

    Raises:
        UnreadableFileError: It is a known binary format.
    """
    from chardet import detect_all  # noqa: PLC0415 - most files are UTF-8 and never need it

    printed = sample.translate(None, _NOT_PRINTED)
    beyond = len(printed) - len(printed.translate(None, _BEYOND_ASCII))
    is_latin = 2 * sum(map(len, _RUN.findall(printed))) < beyond
    candidates = [*_LATIN, *_EAST_ASIAN, *(() if is_latin else _OTHER_SCRIPTS)]
    found = detect_all(printed, ignore_threshold=True, compat_names=False, include_encodings=candidates)
    scores = {each["encoding"]: each["confidence"] for each in found}
    best = max(scores, key=scores.__getitem__)
    if best is None:
        raise unreadable(path, _BINARY)
    return best if scores[best] >= _STRONG * scores.get("cp1252", 0) else "cp1252"
