"""The command ``retrieval-mcp install``: shows a change of an assistant's configuration, asks, and writes it."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from dataclasses import dataclass
from difflib import unified_diff
from io import TextIOWrapper
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING, Any, NoReturn, cast

from retrieval_core.cli.process import FAILURE
from retrieval_core.errors import ConfigurationError
from retrieval_core_mcp.command import CONFIG_HELP, INDEX_HELP, NO_FILE
from retrieval_core_mcp.install.clients import CLIENTS, config_file
from retrieval_core_mcp.install.json_text import NotEditableError, entry_of, with_entry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core_mcp.install.clients import Client

DESCRIPTION = (
    "Add this server to the configuration of an assistant, which then starts it. The change is shown and asked about, "
    "and the file as it was is kept beside it."
)
CACHED = (
    "Note: this program is in the cache of uv, which may be emptied. Install it first, with `uv tool install` or "
    "`pip install`, and run that one."
)
NO_TERMINAL = "Nothing was changed: there is no terminal to ask at. Add --yes to write this without a question."
CHANGED = "Nothing was changed: another program has changed the file meanwhile. Run the command again."
OWNER_ONLY = 0o600
"""The mode of a new file: other servers may be added to it with their keys."""
_UV_CACHE = "archive-v0"
"""The folder of uv's cache with the environments of ``uvx``."""
_OURS = re.compile(r"retrieval_core_mcp|(?:.*[/\\])?retrieval(?:-core)?-mcp(?:\.exe)?")
"""A word in the command line of each entry that starts this server."""


@dataclass(frozen=True, slots=True)
class _Change:
    """What becomes of a configuration file; a text is ``None`` where there is no file."""

    before: str | None
    after: str | None
    keep: Path | None = None
    """Where the text before is kept."""
    drop: Path | None = None
    """A copy that is not needed any more, since the file becomes the same again."""


def install(arguments: Sequence[str]) -> None:
    """Add the server to the configuration of an assistant, or take it out again.

    Args:
        arguments: What stands behind ``install``.

    Raises:
        SystemExit: Nothing had to be changed, or nothing was.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # what the terminal's encoding lacks is shown as a question mark
            stream.reconfigure(errors="replace")
    options, entry = _options(arguments)
    client, name = CLIENTS[options.client], options.name
    path = Path(os.path.realpath(config_file(options.client, sys.platform, Path.home(), os.environ)))
    _say(f"The configuration of {client.title} is {path}.")
    try:
        change = _taken_out(path, client, name) if options.undo else _put_in(path, client, name, entry)
    except NotEditableError as reason:
        snippet = json.dumps({client.servers: {name: entry}}, ensure_ascii=False, indent=2)
        advice = f'Take "{name}" out of it by hand.' if options.undo else f"Put this into it by hand:\n{snippet}"
        _stop(f"Error: the file was left as it is, since {reason}. {advice}")
    if change.before is None:
        _say("It is not there yet." if path.parent.is_dir() else f"It is not there yet; is {client.title} installed?")
    before, after = ((text or "").splitlines() for text in (change.before, change.after))
    _say(*unified_diff(before, after, "before", "after", lineterm=""))
    if not options.yes:
        _ask()
    if _read(path) != change.before:
        _stop(CHANGED)
    _carry_out(path, change)
    _say("Done." if change.keep is None else f"Done. The file as it was is {change.keep}.", client.afterwards)


def _options(arguments: Sequence[str]) -> tuple[argparse.Namespace, dict[str, object]]:
    """Return the options, and the entry that they ask for."""
    parser = argparse.ArgumentParser(prog="retrieval-mcp install", description=DESCRIPTION)
    add = parser.add_argument
    add("--client", choices=list(CLIENTS), required=True, help="add the server to this assistant")
    add("--index", metavar="FILE|NAME=FILE", action="append", help=INDEX_HELP)
    add("--config", metavar="FILE|PRESET", help=CONFIG_HELP)
    add("--name", default="documents", help="name of the server in the assistant (documents)")
    add("--yes", action="store_true", help="do not ask")
    add("--undo", action="store_true", help="undo the last change under this name")
    options = parser.parse_args(arguments)
    if not options.name.strip():
        parser.error("--name is empty")

    from retrieval_core_mcp.settings import ServerSettings, name_and_file, named_indexes  # noqa: PLC0415 - slow

    named = [name_and_file(place) for place in options.index or [ServerSettings().retrieval.index]]
    files = [_whole(file) for _, file in named]
    places = [f"{name}={file}" if name else file for (name, _), file in zip(named, files, strict=True)]
    # -P: a module in the folder that the assistant works in is not taken for one of the server's.
    line = ["-P", "-m", "retrieval_core_mcp", *(word for place in places for word in ("--index", place))]
    if options.config is not None:
        line += ["--config", _whole(options.config) if Path(options.config).is_file() else options.config]
    try:
        named_indexes(places, "")
        "".join((options.name, sys.executable, *line)).encode()
    except ConfigurationError as error:
        parser.error(str(error))
    except UnicodeEncodeError:
        parser.error("the name and all paths have to be Unicode texts, or no configuration can hold them")
    if not options.undo:
        _say(*(NO_FILE.format(index=file) for file in files if not Path(file).exists()))
        if _UV_CACHE in Path(sys.prefix).parts:
            _say(CACHED)
    typed = {"type": "stdio"} if CLIENTS[options.client].typed else {}
    return options, {**typed, "command": sys.executable, "args": line}


def _whole(path: str) -> str:
    """Return the whole path of a file; links stay, since documents are named relative to the index."""
    return os.path.abspath(Path(path).expanduser())  # noqa: PTH100 - resolve() follows links


def _put_in(path: Path, client: Client, name: str, entry: Mapping[str, object]) -> _Change:
    """Return the change that adds an entry, or renews it; what else was written into ours, such as ``env``, stays."""
    text = _read(path)
    old = entry_of(text or "", client.servers, name)
    if old is not None and not _is_ours(old):
        _stop(f'Nothing was changed: "{name}" is another server. Choose a name with --name.')
    new: dict[str, object] = {**(old or {}), **entry}
    if old == new:
        _stop("There is nothing to change.", 0)
    after = with_entry(text or "", client.servers, name, new)
    return _Change(text, after, keep=None if text is None else _copies(path)[1])


def _taken_out(path: Path, client: Client, name: str) -> _Change:
    """Return the change that takes the last one back; where the file was edited since, the entry alone is removed."""
    text = _read(path)
    entry = entry_of(text or "", client.servers, name)
    if text is None or entry is None:
        _stop(f'There is nothing to undo: no server is called "{name}".', 0)
    if not _is_ours(entry):
        _stop(f'Nothing was changed: "{name}" is another server.')
    copies, free = _copies(path)
    copy = copies[-1] if copies else None
    former = None if copy is None else _read(copy)
    try:
        untouched = with_entry(former or "", client.servers, name, entry) == text
    except NotEditableError:
        untouched = False
    if untouched:
        return _Change(text, former, drop=copy)
    return _Change(text, with_entry(text, client.servers, name, None), keep=free)


def _is_ours(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    found = cast("dict[str, Any]", entry)
    line = [found.get("command"), *(found["args"] if isinstance(found.get("args"), list) else ())]
    return any(isinstance(word, str) and _OURS.fullmatch(word) for word in line)


def _copies(path: Path) -> tuple[list[Path], Path]:
    """Return the copies of a file, the newest one last, and where the next one is put."""
    copies: list[Path] = []
    while (place := path.with_name(f"{path.name}.bak{len(copies) + 1}")).exists():
        copies.append(place)
    return copies, place


def _read(path: Path) -> str | None:
    """Return the text of a file; ``None`` where there is none."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        msg = "it is not UTF-8"
        raise NotEditableError(msg) from None


def _ask() -> None:
    if sys.stdin is None or not sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison] - pythonw
        _stop(NO_TERMINAL)
    sys.stdout.write("Write this? [y/N] ")
    sys.stdout.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        _stop("Nothing was changed.")


def _carry_out(path: Path, change: _Change) -> None:
    mode = OWNER_ONLY if change.before is None else path.stat().st_mode & 0o777
    if change.keep is not None and change.before is not None:
        _write(change.keep, change.before, mode)
    if change.after is None:
        path.unlink()
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, change.after, mode)
    if change.drop is not None:
        change.drop.unlink()


def _write(path: Path, text: str, mode: int) -> None:
    """Write a file whole or not at all."""
    number, name = mkstemp(dir=path.parent, prefix=f".{path.name}-")
    temporary = Path(name)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(number)
        temporary.chmod(mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink()
        raise


def _say(*lines: str) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)


def _stop(message: str, code: int = FAILURE) -> NoReturn:
    (sys.stderr if code else sys.stdout).write(f"{message}\n")
    raise SystemExit(code)
