"""What the command line says about the settings of an index."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retrieval_core.config.remembered import left_out, names_code
from retrieval_core.index.settings import FILE_NAME, find_settings_file, remembered_settings

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from retrieval_core.config import RetrievalConfig

MOST_KEYS = 6
"""Keys in one line."""


def print_memory(config: RetrievalConfig, before: Mapping[str, Any]) -> None:
    """Say which settings the index remembers since it was written to, and which it does not.

    Args:
        before: The settings that it remembered until then.
    """
    now = remembered_settings(config)
    if new := [key for key, value in now.items() if key not in before or before[key] != value]:
        click.echo(f"Settings remembered with the index: {_listed(new)}")
    if config.provenance is None or config.store.kind == "memory":
        return
    file = find_settings_file(Path(config.index))
    missing = left_out(config, now)
    code = [key for key in missing if names_code(key, reduce(getattr, key.split("."), config))]
    if code:
        click.echo(f"Not remembered, since it is custom code: {_listed(code)}. Set it in each command.")
    if missing := [key for key in missing if key not in code]:
        place = FILE_NAME if file is None else str(file)
        click.echo(f"Not remembered: {_listed(missing)}. To use them without flags, put them in {place}.")


def _listed(keys: Collection[str]) -> str:
    shown = ", ".join(list(keys)[:MOST_KEYS])
    return shown if len(keys) <= MOST_KEYS else f"{shown} and {len(keys) - MOST_KEYS} more"
