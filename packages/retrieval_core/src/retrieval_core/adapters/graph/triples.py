"""Facts as triples, and their file: JSON, one a line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.errors import ConfigurationError, InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONGEST_NAME = 500
"""The most code points of a subject, a relation or an object."""
MOST_TRIPLES = 500_000
"""The most triples of one graph; more need a graph database."""
MOST_BYTES = 256 * 2**20
"""The most bytes of one file."""

_NAMES = ("subject", "relation", "object")
_PLACES = ("chunk_id", "document_id")
_RECORD = "content_hash"


@dataclass(frozen=True, slots=True)
class Triple:
    """A fact: subject, relation and object.

    Attributes:
        chunk_id: The chunk that states it, if one is known.
        document_id: The document that states it, if one is known.

    Raises:
        InvalidParameterError: A name is blank, longer than 500 code points, or not Unicode text.
    """

    subject: str
    relation: str
    object: str
    chunk_id: str | None = None
    document_id: str | None = None

    def __post_init__(self) -> None:
        for field in (*_NAMES, *_PLACES):
            value: object = getattr(self, field)
            if value is None and field in _PLACES:
                continue
            if not isinstance(value, str) or not value.strip():
                msg = f"{field} of a triple must be text that is not blank, got {value!r:.100}"
                raise InvalidParameterError(msg)
            if field in _NAMES and len(value) > LONGEST_NAME:
                msg = f"{field} of a triple has {len(value)} characters, and may have {LONGEST_NAME}: {value[:60]!r} …"
                raise InvalidParameterError(msg)
            if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
                msg = f"{field} of a triple is not valid Unicode: {value!r:.100}"
                raise InvalidParameterError(msg)

    def __str__(self) -> str:
        return f"{self.subject} -{self.relation}-> {self.object}"


def read_lines(data: bytes, path: Path) -> Iterator[Triple]:
    """Yield the triples in a file's lines; blank lines and records of extraction are ignored.

    Raises:
        ConfigurationError: A line is none of these, or the file is too large; the message names file and line.
    """
    if len(data) > MOST_BYTES:
        msg = f"{path} has {len(data) / 2**20:.0f} MB, and a graph may have {MOST_BYTES // 2**20}; divide it"
        raise ConfigurationError(msg)
    triples = 0
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            triple = _triple(line)
        except (ValueError, RecursionError) as error:  # InvalidParameterError is a ValueError
            msg = (
                f"{path}, line {number}: {error}. A line is an object such as "
                '{"subject": "Einstein", "relation": "born in", "object": "Ulm", "document_id": "einstein.md"}'
            )
            raise ConfigurationError(msg) from error
        if triple is None:
            continue
        triples += 1
        if triples > MOST_TRIPLES:
            msg = f"{path}, line {number}: a graph may have {MOST_TRIPLES} triples; leave some out"
            raise ConfigurationError(msg)
        yield triple


def _triple(line: bytes) -> Triple | None:
    """Return the triple of a line; ``None`` for a record, as earlier versions wrote between extracted triples."""
    found: Any = json.loads(line.decode("utf-8"))
    if not isinstance(found, dict):
        msg = f"expected an object, got {type(found).__name__}"
        raise ValueError(msg)  # noqa: TRY004 - the caller maps it
    values = cast("dict[str, Any]", found)
    if _RECORD in values:
        return None
    if unknown := sorted(values.keys() - {*_NAMES, *_PLACES}):
        msg = f"unknown field {', '.join(map(ascii, unknown))}"
        raise ValueError(msg)
    if missing := [field for field in _NAMES if field not in values]:
        msg = f"the field {missing[0]} is missing"
        raise ValueError(msg)
    return Triple(**values)
