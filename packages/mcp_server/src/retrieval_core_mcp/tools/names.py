"""Names of chunks and documents in answers."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urljoin

from retrieval_core.types import format_citation
from retrieval_core.types.escapes import escape_name
from retrieval_core_mcp.fitting import clean, has_lone_surrogate, in_one_line, json_length, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.types import Chunk, PageSpan

LONGEST_NAME = 200
"""The most characters of titles, headings and sources."""
_LEAST_REST = 20
"""Characters of what follows the name, however long that is."""
URL_FIELDS = ("url", "source_url")
"""Metadata fields in which a document usually has its address."""

_LABEL = re.compile(r" \| Section: ")
_WEB_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:\S+")  # two letters at least: a single one is a drive


def can_be_named(name: str, limit: int) -> bool:
    """Whether an id can be written into an answer and so given back: it is valid Unicode, and much shorter."""
    return not has_lone_surrogate(name) and json_length(name) < limit // 4


def is_short(name: str) -> bool:
    """Whether a name can stand in an answer as it is."""
    return len(name) <= LONGEST_NAME and not has_lone_surrogate(name)


def place_of(chunk: Chunk, text: str = "", *, shares_lines: bool = False) -> str:
    """Return the origin of a chunk as one line that begins with what names it: ``guide.md:12-18 · Setup > Linux``.

    A chunk without lines begins with its ID, ``guide.pdf#12 | Page: 3-4``. If that doesn't begin with the document's,
    or others have the same lines, it is after them: ``guide.md:12 (id: …)``. It replaces a very long name.

    Args:
        text: What is shown below it. Headings that are lines of it, or the name of the file, are left out.
        shares_lines: Whether another chunk has the same document and lines.
    """
    known = {*map(_letters, text.splitlines()), _letters(_stem(chunk.document_id))}
    headings = tuple(heading for heading in chunk.section_path if _letters(heading) not in known)
    citation = format_citation(replace(chunk, section_path=headings)).removeprefix("Doc: ")
    name = format_citation(
        replace(chunk, section_path=(), page_span=None, row_range=None, item_range=None)
    ).removeprefix("Doc: ")
    rest = _LABEL.sub(" · ", citation.removeprefix(name))
    names_document = name.startswith(escape_name(chunk.document_id))  # or else its source
    if len(name) > LONGEST_NAME or (chunk.lines is None and names_document and has_own_document(chunk)):
        name = escape_name(chunk.id)
    elif chunk.lines is None or shares_lines or not names_document:
        name = f"{name} (id: {escape_name(chunk.id)})"
    return name + shorten(rest, max(LONGEST_NAME - len(name), _LEAST_REST))


def has_own_document(chunk: Chunk) -> bool:
    """Whether a chunk's ID begins with its document's: ``<document id>#<number>``."""
    return chunk.id.rpartition("#")[0] == chunk.document_id


def section_of(chunk: Chunk) -> str | None:
    """Return the headings above a chunk, outermost first, joined by ``>``."""
    return in_one_line(" > ".join(chunk.section_path), LONGEST_NAME) or None


def page_of(pages: PageSpan | None) -> str | None:
    """Return a page, or a range as in ``3-4``."""
    return None if pages is None else "-".join(dict.fromkeys((str(pages.first), str(pages.last))))


def title_of(chunk: Chunk) -> str:
    """Return the title of a chunk, else its headings or its source."""
    return in_one_line(chunk.title or " > ".join(chunk.section_path) or chunk.source or chunk.id, LONGEST_NAME)


def title_if_new(title: str | None, name: str) -> str | None:
    """Return the title of a document in one line, unless its name says the same."""
    shown = in_one_line(title or "", LONGEST_NAME)
    return None if not shown or _letters(shown) == _letters(_stem(name)) else shown


def _stem(name: str) -> str:
    return name.rpartition("/")[2].partition(".")[0]


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def web_address(source: str | None, metadata: Mapping[str, Any]) -> str | None:
    """Return the web address of a document, from its metadata or its source; ``None`` if it has none."""
    for given in (*(metadata.get(name) for name in URL_FIELDS), source):
        if isinstance(given, str) and _WEB_ADDRESS.fullmatch(given) and is_short(given):
            return given
    return None


def address_of(source: str | None, metadata: Mapping[str, Any], document_id: str, base_url: str | None = None) -> str:
    """Return a document's own address, else its path below ``base_url`` or, without one, relative to the index."""
    if (own := web_address(source, metadata)) is not None:
        return own
    name = source or document_id
    path = quote(clean(name)) if is_short(name) else ""
    return urljoin(base_url, path) if base_url and path else path
