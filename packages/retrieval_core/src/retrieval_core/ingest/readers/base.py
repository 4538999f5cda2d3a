"""Options, errors, parsed documents and texts in any encoding, which all readers share.

Unicode is known by its byte order mark or as valid UTF-8. A detector scores the encodings that office programs wrote
before UTF-8. It is never asked about DOS and Mac encodings: their scores for texts in Windows-1252 are as high as for
their own.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_left, bisect_right
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from retrieval_core.errors import MissingExtraError, RetrievalError, UnreadableFileError
from retrieval_core.ingest.report import FileNote
from retrieval_core.types import FrozenDict, Metadata, PageSpan
from retrieval_core.types.escapes import valid_unicode

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
    from pathlib import Path

    from retrieval_core.ingest.report import Note
    from retrieval_core.types import Span


Markup: TypeAlias = Literal["markdown", "plain", "titled", "code"]


@dataclass(frozen=True, slots=True)
class ParsedPage:
    """A page of a paged document: its number, from 1, and where its text lies in the document's text."""

    number: int
    span: Span


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """The text of one document and what its file says about it.

    Attributes:
        text: What all spans point into: Markdown where the file has structure, otherwise plain text.
        markup: Whether ``#``, fences and pipes in the text are structure or just characters; ``"titled"`` for
            reStructuredText and AsciiDoc; ``"code"`` for source code and structured text, whose structure is their
            indentation and their definitions.
        title: From the file's own metadata or first heading; ``None`` where there is neither.
        pages: In order and without overlaps; empty for formats without pages.
        metadata: Fields of the document itself: the other columns of a row, a Markdown file's front matter.
        row: Number of the row, from 1, where the document is a row of a table.
        first_line: Line of the file at which the text begins, from 1.
        key: What names the row within its file, from a column ``_id`` or ``id`` whose values are unique; else ``None``.
        language: Of code, such as ``python``.
    """

    text: str
    markup: Markup
    title: str | None = None
    pages: tuple[ParsedPage, ...] = ()
    metadata: Metadata = field(default_factory=FrozenDict)
    row: int | None = None
    key: str | None = None
    first_line: int = 1
    language: str | None = None


def page_span(span: Span, pages: Sequence[ParsedPage]) -> PageSpan | None:
    """Return the first and last page that a range of the text touches, ``None`` if it touches none."""
    first = bisect_right(pages, span.start, key=lambda page: page.span.end)
    last = bisect_left(pages, span.end, key=lambda page: page.span.start) - 1
    return PageSpan(pages[first].number, pages[last].number) if first <= last else None


_NEWLINES = re.compile(r"\r\n?")
_LONGEST_LINE = 1_000
MOST_CHARACTERS = 16_000_000
"""Characters of the text of one document, some 5,000 pages."""
MOST_NESTING = 64
"""The deepest nesting of a file's metadata, which is walked recursively."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How files are read; only tables have columns.

    Attributes:
        text_column: The column with the documents' texts; ``None`` finds one, see
            :func:`retrieval_core.ingest.readers.rows.find_columns`.
        columns: The metadata field of a column, if it differs from the column's name.
        on_note: Called with each warning about the file, before its first document is returned.
    """

    text_column: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict[str, str])
    on_note: Callable[[Note], object] = lambda _: None


class RefusedError(Exception):
    """A file would take too much time or memory; :func:`vendor` adds the file's name to the reason."""


def unreadable(path: Path, reason: str) -> UnreadableFileError:
    """Return a reader's error, with a reason for people."""
    return UnreadableFileError(str(path), reason)


@contextmanager
def vendor(path: Path, needed_for: str, failure: str) -> Generator[None]:
    """Translate the errors of a parsing library.

    Args:
        path: The file being read.
        needed_for: The library's purpose, such as ``"Reading PDF files"``.
        failure: The reason to give where the library raises.

    Raises:
        MissingExtraError: The library is not installed.
        UnreadableFileError: The library failed, or :class:`RefusedError` was raised.
    """
    try:
        yield
    except RetrievalError:
        raise
    except RefusedError as exc:
        raise unreadable(path, str(exc)) from exc
    except RecursionError as exc:
        raise unreadable(path, "it is nested too deeply") from exc
    except ImportError as exc:
        raise MissingExtraError("documents", needed_for) from exc
    except Exception as exc:
        raise unreadable(path, failure) from exc


def clean(text: str) -> str:
    """Return text with line feeds for all line ends, and without what no store can keep: NUL and lone surrogates."""
    return valid_unicode(_NEWLINES.sub("\n", text).replace("\0", ""))


def one_line(text: str | None) -> str:
    """Return a title or a name on one line, cut after a thousand characters; empty for ``None``."""
    return " ".join(clean((text or "")[:_LONGEST_LINE]).split())


def author_metadata(author: str | None) -> dict[str, str]:
    """Return the metadata of a document with this author; empty without a name."""
    name = one_line(author)
    return {"author": name} if name else {}


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
