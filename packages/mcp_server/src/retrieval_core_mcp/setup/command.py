"""The command ``retrieval-mcp setup``: shows how it changes the configuration of assistants, asks, and writes it."""

from __future__ import annotations

import argparse
import os
import re
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from io import TextIOWrapper
from pathlib import Path
from tempfile import gettempdir, mkstemp
from typing import TYPE_CHECKING, Any, NoReturn, cast

from retrieval_core.cli.process import FAILURE
from retrieval_core.errors import ConfigurationError, IndexBusyError
from retrieval_core.run.file_lock import one_writer
from retrieval_core_mcp.setup.clients import CLIENTS, Machine
from retrieval_core_mcp.setup.errors import NotEditableError
from retrieval_core_mcp.setup.skill import OWNER, skill_text
from retrieval_core_mcp.wording import CONFIG_HELP, DESCRIPTION_HELP, INDEX_HELP, NO_FILE

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from retrieval_core_mcp.setup.clients import Client

DESCRIPTION = (
    "Add this server, and a skill that says when to use it, to the assistants on this machine. They start the server "
    "by themselves. The changes are shown and asked about."
)
OLD_NAME = "retrieval-mcp install is deprecated: use retrieval-mcp setup, which takes the same options."
CACHED = (
    "Note: this program is in the cache of uv, which may be emptied. Install it first, with `uv tool install` or "
    "`pip install`, and run that one."
)
NO_TERMINAL = "Nothing was changed: there is no terminal to ask at. Add --yes to write this without a question."
NO_CLIENT = f"No assistant was found on this machine. Name one with --client: {', '.join(CLIENTS)}."
ANOTHER_SERVER = '"{name}" is another server there. Choose a name with --name'
ANOTHER_SKILL = "it is another skill. Choose a name with --name"
CHANGED = "another program has changed it meanwhile. Run the command again"
READ_ONLY = "it is read-only"
BUSY = "Nothing was changed: another setup is still writing. Run the command again."
PATIENCE = 30.0
"""Seconds to wait for another run."""
OWNER_ONLY = 0o600
"""The mode of a new file: other servers may be added to it with their keys."""
_UV_CACHE = "archive-v0"
"""The folder of uv's cache with the environments of ``uvx``."""
_OURS = re.compile(r"retrieval_core_mcp|(?:.*[/\\])?retrieval(?:-core)?-mcp(?:\.exe)?")
"""A word in the command line of each entry that starts this server."""
_NAME = re.compile(r"[a-z0-9]+(?:[-_][a-z0-9]+)*", re.IGNORECASE)


class _LeftError(Exception):
    """A file is left as it is; the message says why, and what to do by hand."""


@dataclass(frozen=True, slots=True)
class _Change:
    """What becomes of a file; a text is ``None`` if there is no file.

    Attributes:
        keep: Where the text before is kept.
        drop: A copy that is not needed any more.
        is_skill: Whether it is the file of a skill.
    """

    path: Path
    before: str | None
    after: str | None
    keep: Path | None = None
    drop: Path | None = None
    is_skill: bool = False

    @property
    def lines(self) -> Iterator[str]:
        """The lines that differ, without those around them: other servers have their keys there."""
        old, new = ((text or "").splitlines() for text in (self.before, self.after))
        start = _common_length(old, new)
        old, new = old[start:], new[start:]
        end = _common_length(old[::-1], new[::-1])
        old, new = _without_common_text(old[: len(old) - end], new[: len(new) - end])
        yield from (f"- {line}" for line in old)
        yield from (f"+ {line}" for line in new)


def _without_common_text(old: list[str], new: list[str]) -> tuple[list[str], list[str]]:
    """Return lines without what the first two have in common: a file may have all servers in one line."""
    if not old or not new or not old[0][: (head := _common_length(old[0], new[0]))].strip():
        return old, new
    tail = 0
    if len(old) == len(new) == 1:
        tail = _common_length(old[0][head:][::-1], new[0][head:][::-1])

    def shown(lines: list[str]) -> list[str]:
        changed = lines[0][head : len(lines[0]) - tail]
        return [f"…{changed}{'…' * bool(tail)}"] * bool(changed) + lines[1:]

    return shown(old), shown(new)


def _common_length(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many items at the beginning are the same."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def setup(arguments: Sequence[str], *, by_old_name: bool = False) -> None:
    """Add the server to assistants, or remove it from them.

    Args:
        arguments: What stands behind ``setup``.
        by_old_name: Whether it was called ``install``.

    Raises:
        SystemExit: Nothing had to be changed, or something was not.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # what the terminal's encoding lacks is shown as a question mark
            stream.reconfigure(errors="replace")
    if by_old_name:
        sys.stderr.write(f"{OLD_NAME}\n")
    options, command, documents = _options(arguments)
    plan = _Plan(options, Machine())
    plan.add_configurations(command)
    plan.add_skills(documents)
    if not plan.changes:
        _stop("" if plan.has_failed else "There is nothing to change.", FAILURE if plan.has_failed else 0)
    if options.dry_run:
        _stop("Nothing was changed, since this is a dry run.", FAILURE if plan.has_failed else 0)
    if not options.yes:
        _ask()
    try:
        with one_writer(_lock_of(Machine().home), PATIENCE):
            for change in plan.changes:
                with plan.reported(f"{change.path}"):
                    _carry_out(change)
    except IndexBusyError:
        _stop(BUSY)
    if plan.has_failed:
        raise SystemExit(FAILURE)
    _say("Done. Indexes stay where they are." if options.uninstall else "Done.")


def _lock_of(home: Path) -> Path:
    """Return the file that one run at a time locks for the configurations of a user."""
    return Path(gettempdir()) / f"retrieval-mcp-setup-{sha256(os.fsencode(home)).hexdigest()[:12]}.lock"


class _Plan:
    """The changes that are to be made, as they are found and shown."""

    def __init__(self, options: argparse.Namespace, machine: Machine) -> None:
        self._options = options
        self._machine = machine
        self._clients = _clients(options, machine)
        self.changes: list[_Change] = []
        self.has_failed = False

    @contextmanager
    def reported(self, name: str) -> Generator[None]:
        """Say why a file is left as it is, and go on with the others."""
        try:
            yield
        except _LeftError as reason:
            text = f"{name} was left as it is: {reason}"
            sys.stderr.write(text if text.endswith("\n") else f"{text}.\n")
            self.has_failed = True

    def add_configurations(self, command: Sequence[str]) -> None:
        """Add the changes of the assistants' configurations."""
        for client in self._clients:
            path = _real(client.config(self._machine))
            with self.reported(f"{client.title}: {path}"):
                entry = None if self._options.uninstall else client.entry(command)
                change = _configuration(path, client, self._options.name, entry)
                if change is not None:
                    self.changes.append(change)
                    is_new = change.before is None and not client.is_found(self._machine)
                    _say(f"{client.title}: {path}{' (is it installed?)' if is_new else ''}", *change.lines)
                    _say(f"Afterwards: {client.afterwards}.")
                elif entry is not None:
                    _say(f"{client.title}: {path} is up to date.")

    def add_skills(self, documents: str) -> None:
        """Add the changes of the skills; one that another assistant uses stays."""
        options, name = self._options, self._options.name.lower().replace("_", "-")
        for folder in dict.fromkeys(found for client in self._clients if (found := client.skills(self._machine))):
            path = _real(folder / name / "SKILL.md")
            with self.reported(f"The skill {path}"):
                change = _skill(path, None if options.uninstall else skill_text(name, documents))
                is_used = options.uninstall and _is_used(folder, options.name, self._clients, self._machine)
                if change is not None and not is_used:
                    self.changes.append(change)
                    _say(f"Skill: {path}", *change.lines)


def _options(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str], str]:
    """Return the options, the command line that they ask for, and a sentence about the documents."""
    parser = argparse.ArgumentParser(prog="retrieval-mcp setup", description=DESCRIPTION)
    add = parser.add_argument
    add("folder", nargs="?", metavar="FOLDER", help="folder to index (the current one)")
    add("--client", choices=list(CLIENTS), action="append", help="only this assistant; repeatable (all that are found)")
    add("--description", metavar="TEXT", default="", help=DESCRIPTION_HELP)
    add("--watch", action="store_true", help="index changes in the folder at once")
    add("--allow-writes", action="store_true", help="let assistants index files and remove documents")
    add("--index", metavar="FILE|NAME=FILE", action="append", help=f"in place of FOLDER: {INDEX_HELP}")
    add("--config", metavar="FILE|PRESET", help=CONFIG_HELP)
    add("--name", default="documents", help="name of the server in the assistants (documents)")
    add("--dry-run", action="store_true", help="only show what would change")
    add("--yes", action="store_true", help="do not ask")
    add("--uninstall", "--undo", action="store_true", help="remove the server and the skill of this name")
    options = parser.parse_args(arguments)
    if not _NAME.fullmatch(options.name):
        parser.error(f"--name must have letters and digits, with single hyphens in between: {options.name!r:.80}")
    if options.uninstall:
        return options, [], ""
    try:
        command, documents = _command(options)
        "".join(command).encode()
    except ConfigurationError as error:
        parser.error(str(error))
    except UnicodeEncodeError:
        parser.error("all paths have to be Unicode texts, or no configuration can hold them")
    return options, command, documents


def _command(options: argparse.Namespace) -> tuple[list[str], str]:
    """Return the command line of the server, and a sentence about its documents.

    Raises:
        ConfigurationError: Options are wrong.
    """
    from retrieval_core.index.settings import named_file  # noqa: PLC0415 - slow
    from retrieval_core_mcp.settings import LONGEST_DESCRIPTION, check_folder, named_indexes  # noqa: PLC0415 - likewise

    if len(described := " ".join(options.description.split())) > LONGEST_DESCRIPTION:
        msg = f"--description has {len(described):,} characters; it may have {LONGEST_DESCRIPTION}"
        raise ConfigurationError(msg)
    # -P: a module in the folder that the assistant works in is not taken for one of the server's.
    line = [sys.executable, "-P", "-m", "retrieval_core_mcp"]
    if options.index:
        if options.folder:
            msg = "FOLDER and --index exclude each other: an index is a file that retrieval index has made"
            raise ConfigurationError(msg)
        named = [(name, _whole(file)) for name, file in map(named_file, options.index)]
        places = [f"{name}={file}" if name else file for name, file in named]
        named_indexes(places, "")
        line += [word for place in places for word in ("--index", place)]
        documents = f"Indexed: {', '.join(places)}."
        _say(*(NO_FILE.format(index=file) for _, file in named if not Path(file).exists()))
    else:
        folder = Path(_whole(options.folder or "."))
        check_folder(folder)
        line += ["--folder", str(folder)]
        documents = f"Indexed: the folder {folder}."
    line += ["--description", described] * bool(described)
    line += ["--watch"] * options.watch + ["--allow-writes"] * options.allow_writes
    if options.config is not None:
        line += ["--config", _whole(options.config) if Path(options.config).is_file() else options.config]
    if _UV_CACHE in Path(sys.prefix).parts:
        _say(CACHED)
    about = f"{described}{'.' * (described[-1:] not in ('.', '!', '?'))} " if described else ""
    return line, f"{about}{documents}"


def _clients(options: argparse.Namespace, machine: Machine) -> list[Client]:
    """Return the assistants that were named, else all that are found; to uninstall, all that there may be."""
    if options.client:
        return [CLIENTS[name] for name in dict.fromkeys(options.client)]
    found = [client for client in CLIENTS.values() if options.uninstall or client.is_found(machine)]
    if not found:
        _stop(NO_CLIENT)
    return found


def _configuration(path: Path, client: Client, name: str, entry: dict[str, Any] | None) -> _Change | None:
    """Return the change that adds, renews or removes an entry; ``None`` if nothing has to change.

    What else was written into an entry of ours, such as ``env``, stays.

    Raises:
        _LeftError: The file can't be changed.
    """
    try:
        text = _read(path)
        old = client.editor.entry_of(text or "", client.servers, name)
        if old is None and entry is None:
            return None
        if old is not None and not _is_ours(old):
            if entry is None:
                _say(f'{client.title}: {path}: "{name}" is another server there, and stays.')
                return None
            raise _LeftError(ANOTHER_SERVER.format(name=name))
        backup = path.with_name(f"{path.name}.before-{name}")
        new: dict[str, Any] = {**(old or {}), **(entry or {})}
        if entry is not None and old == new:
            return None
        _check_writable(path)
        if entry is None:
            return _Change(path, text, _removed(text or "", client, name, old, backup), drop=backup)
        after = client.editor.with_entry(text or "", client.servers, name, new)
        return _Change(path, text, after, keep=backup if old is None else None)
    except NotEditableError as reason:
        if entry is None:
            advice = f'Remove "{name}" from it by hand if it is there'
        else:
            snippet = client.editor.with_entry("", client.servers, name, entry)
            advice = f"Put this into it by hand:\n{snippet}"
        raise _LeftError(f"{reason}. {advice}") from None


def _check_writable(path: Path) -> None:
    """Raise :class:`NotEditableError` if a file is there and read-only: replacing it needs no such right."""
    if path.exists() and not path.stat().st_mode & 0o222:
        raise NotEditableError(READ_ONLY)


def _removed(text: str, client: Client, name: str, entry: Any, backup: Path) -> str | None:
    """Return the text without an entry: the text as it was before, if nothing else was changed since."""
    with_entry = partial(client.editor.with_entry, group=client.servers, name=name)
    with suppress(NotEditableError):
        former = _read(backup)
        if with_entry(former or "", entry=entry) == text:
            return former
    return with_entry(text, entry=None)


def _skill(path: Path, text: str | None) -> _Change | None:
    try:
        before = _read(path)
    except NotEditableError as reason:
        raise _LeftError(str(reason)) from None
    if before is not None and OWNER not in before.splitlines():
        if text is None:
            return None
        raise _LeftError(ANOTHER_SKILL)
    return None if before == text else _Change(path, before, text, is_skill=True)


def _is_used(folder: Path, name: str, leaving: Sequence[Client], machine: Machine) -> bool:
    """Return whether another assistant with the server reads the skills in a folder, too."""
    for client in CLIENTS.values():
        if client not in leaving and client.skills(machine) == folder:
            path = _real(client.config(machine))
            try:
                if _is_ours(client.editor.entry_of(_read(path) or "", client.servers, name)):
                    return True
            except NotEditableError:
                continue
    return False


def _is_ours(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    found = cast("dict[str, Any]", entry)
    line: list[Any] = []
    for key in ("command", "args"):
        value = found.get(key)
        line += value if isinstance(value, list) else [value]
    return any(isinstance(word, str) and _OURS.fullmatch(word) for word in line)


def _whole(path: str) -> str:
    """Return the whole path of a file; links stay, since documents are named relative to the index."""
    return os.path.abspath(Path(path).expanduser())  # noqa: PTH100 - resolve() follows links


def _real(path: Path) -> Path:
    """Return where a file really is: a link to it stays one."""
    return Path(os.path.realpath(path))


def _read(path: Path) -> str | None:
    """Return the text of a file; ``None`` if there is none.

    Raises:
        NotEditableError: It can't be read.
    """
    try:
        return path.read_bytes().decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError:
        msg = "it is not UTF-8"
        raise NotEditableError(msg) from None
    except OSError as error:
        msg = f"it can't be read ({error.strerror or error})"
        raise NotEditableError(msg) from None


def _ask() -> None:
    if sys.stdin is None or not sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison] - pythonw
        _stop(NO_TERMINAL)
    sys.stdout.write("Write this? [y/N] ")
    sys.stdout.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        _stop("Nothing was changed.")


def _carry_out(change: _Change) -> None:
    """Carry out a change, if the file is still as it was.

    Raises:
        _LeftError: The file has changed meanwhile, or can't be written.
    """
    try:
        is_unchanged = _read(change.path) == change.before
    except NotEditableError as reason:
        raise _LeftError(str(reason)) from None
    if not is_unchanged:
        raise _LeftError(CHANGED)
    try:
        _write_change(change)
    except OSError as error:
        if change.keep is not None:
            with suppress(OSError):
                change.keep.unlink()  # the copy of a file that was not changed
        msg = f"it can't be written ({error.strerror or error})"
        raise _LeftError(msg) from None


def _write_change(change: _Change) -> None:
    """Write a change, and before it the copy of the file as it was."""
    mode = OWNER_ONLY if change.before is None else change.path.stat().st_mode & 0o777
    if change.keep is not None and change.before is not None:
        _write(change.keep, change.before, mode)
    if change.after is not None:
        change.path.parent.mkdir(parents=True, exist_ok=True)
        _write(change.path, change.after, mode)
    else:
        change.path.unlink()
        if change.is_skill:
            with suppress(OSError):  # the folder of the skill, unless it has other files
                change.path.parent.rmdir()
    if change.drop is not None:
        change.drop.unlink(missing_ok=True)


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
    (sys.stderr if code else sys.stdout).write(f"{message}\n" if message else "")
    raise SystemExit(code)
