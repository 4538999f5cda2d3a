"""Remove paths of this machine, credentials and messages of other programs from messages for callers."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from retrieval_core.config import without_secrets
from retrieval_core.errors import MissingExtraError, RetrievalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.types import Degradation, StageRecord

    Redact = Callable[[str], str]

LONGEST_MESSAGE = 1_000
"""Characters of a message."""
_PATH = re.compile(r"(?:file:|\b[A-Za-z]:)?[\\/]{1,3}(?:[\w.~ -]*[\w.~-][\\/])*[\w.~-]*|~[\\/][\w.~\\/-]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def redactor(configs: Iterable[RetrievalConfig]) -> Redact:
    """Return a function that makes a message one line, without paths and credentials.

    Args:
        configs: Settings of the served indexes. Their paths are replaced by words such as "the index".
    """
    places: dict[str, str] = {}
    for config in configs:
        folder = getattr(config.embedder.tables.get("local"), "model_folder", None)
        for place, name in ((config.index, "the index"), (folder, "the model's folder")):
            if place is not None:
                places |= {str(Path(place).absolute()): name, str(place): name}

    def redact(text: str) -> str:
        text = without_secrets(text)
        for place, name in places.items():
            text = text.replace(place, name)
        line = " ".join(_CONTROL.sub(" ", _PATH.sub(_hidden, text)).split())
        return line if len(line) <= LONGEST_MESSAGE else f"{line[: LONGEST_MESSAGE - 1].rstrip()}…"

    return redact


def _hidden(found: re.Match[str]) -> str:
    # A single slash, or one word after it, is more often "and/or" than a place.
    return "…" if len(re.findall(r"[\\/]+", found[0])) > 1 else found[0]


def message_of(error: BaseException, redact: Redact) -> str:
    """Return the message of an error for callers, without the messages of other libraries in it."""
    text = str(error) or type(error).__name__
    if isinstance(error, MissingExtraError):  # the command that installs it names folders of this machine
        text = f"{error.needed_for} needs the extra {error.extra!r}, which is not installed"
    cause = error.__cause__
    while cause is not None:
        if not isinstance(cause, RetrievalError) and (foreign := str(cause)):
            text = text.replace(foreign, type(cause).__name__)
        cause = cause.__cause__
    return redact(text)


def redact_degradations(entries: Iterable[Degradation], redact: Redact) -> tuple[Degradation, ...]:
    """Return degradations with messages for callers."""
    return tuple(replace(entry, reason=redact(entry.reason)) for entry in entries)


def redact_records(records: Iterable[StageRecord], redact: Redact) -> tuple[StageRecord, ...]:
    """Return records of stages with messages for callers."""
    return tuple(
        replace(
            record,
            error=None if record.error is None else redact(record.error),
            decision=None if record.decision is None else redact(record.decision),
            failed=tuple(replace(attempt, error=redact(attempt.error)) for attempt in record.failed),
        )
        for record in records
    )
