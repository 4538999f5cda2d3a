"""Messages of the commands: warnings, errors, counts and footers, in plain text."""

from __future__ import annotations

import re
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

import click

from retrieval_core.errors import SettingRenamedWarning

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from retrieval_core.types import CitationCheck, Degradation

STAGES = {
    "answer": "language model",
    "dense": "vector search",
    "embed": "embedding",
    "extract": "reranker",
    "lexical": "keyword search",
    "rerank": "reranker",
    "relevance": "relevance filter",
    "prune": "pruner",
    "verify_answer": "verification",
}
"""Readable names of stages; all others are shown as they are."""


def warn(text: str) -> None:
    """Print a warning on standard error."""
    click.secho(harmless(f"Warning: {text}"), fg="yellow", err=True)


def show_renamed_settings() -> None:
    """Print Python's warnings about renamed settings as this module prints warnings, without a place in the code."""
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any) -> None:
        if issubclass(category, SettingRenamedWarning):
            warn(str(message))
        else:
            usual(message, category, *place)

    if usual.__module__ != __name__:
        warnings.showwarning = show


def print_error(text: str) -> None:
    """Print an error on standard error."""
    click.secho(harmless(f"Error: {text}"), fg="red", err=True)


def warn_degraded(entries: Iterable[Degradation], *, besides: str | None = None) -> None:
    """Print a warning for each stage that did not work as configured.

    Args:
        besides: A line that is printed besides; a reason that it has is not repeated.
    """
    for entry in entries:
        if besides is None or entry.reason not in besides:
            warn(f"{name_stage(entry.stage)}: {entry.reason}")


def name_stage(stage: str) -> str:
    """Return the readable name of a stage."""
    return STAGES.get(stage, stage)


def harmless(text: str) -> str:
    """Return text with control characters shown as a replacement character, so that it cannot steer a terminal."""
    return _controls().sub("\N{REPLACEMENT CHARACTER}", text)


@cache
def _controls() -> re.Pattern[str]:
    from retrieval_core.types.escapes import CONTROLS  # noqa: PLC0415 - help needs none of this

    return re.compile(rf"(?![\t\n])[{CONTROLS}]")


def count(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural, such as ``1 document``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_seconds(milliseconds: float) -> str:
    """Return a duration, such as ``0.8 s``."""
    return f"{milliseconds / 1000:.1f} s" if milliseconds >= 50 else "<0.1 s"


def format_footer(*parts: str | None) -> str:
    """Return the parts that apply as one line that begins with a capital."""
    line = " · ".join(part for part in parts if part)
    return line[:1].upper() + line[1:]


def count_verified(checks: Sequence[CitationCheck]) -> str | None:
    """Return how many citations match the index; ``None`` without citations."""
    if not checks:
        return None
    verified = sum(check.matches for check in checks)
    return f"{verified}/{len(checks)} citations verified"
