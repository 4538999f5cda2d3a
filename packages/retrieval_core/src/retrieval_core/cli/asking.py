"""Opening what a question is put to: one index, or several of them as one."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from retrieval_core.cli.stats import counted

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.index.federated import FederatedIndex
    from retrieval_core.index.index import Index


@contextmanager
def open_for_questions(config: RetrievalConfig, index_files: Sequence[str]) -> Generator[Index | FederatedIndex]:
    """Open what ``--index`` names, once or repeatedly; the configured index where it was not given.

    Yields:
        One index, whose questions are counted for ``retrieval stats``; or several, whose are not.
    """
    if len(index_files) < 2:
        from retrieval_core.index.open import open_index  # noqa: PLC0415 - help and completion need none of this

        with counted(config) as usage, open_index(config=config, observer=usage) as index:
            yield index
        return
    from retrieval_core.index.open_federation import open_indexes  # noqa: PLC0415

    with open_indexes(_by_name(index_files), config=config) as indexes:
        yield indexes


def _by_name(index_files: Sequence[str]) -> dict[str, str] | list[str]:
    """Return files by the names that they were given; a list where none has a name.

    Raises:
        click.UsageError: Two have the same name.
    """
    named = [_named(text) for text in index_files]
    if not any(name for name, _ in named):
        return [file for _, file in named]
    given: dict[str, str] = {}
    for name, file in named:
        own = name or Path(file).stem
        if own in given:
            msg = f"--index: {given[own]} and {file} are both named {own!r}; give each a name of its own, as NAME=FILE"
            raise click.UsageError(msg)
        given[own] = file
    return given


def _named(text: str) -> tuple[str, str]:
    """Return name and file of ``NAME=FILE``; a file whose own name is like that is a file."""
    name, equals, file = text.partition("=")
    return (name, file) if equals and not Path(text).exists() and not {"/", "\\"} & set(name) else ("", text)
