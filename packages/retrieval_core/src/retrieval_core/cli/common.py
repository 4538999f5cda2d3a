"""What all commands share: their options, their configuration, and how they end."""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

import click

from retrieval_core.cli.process import FAILURE, WRONG_USE
from retrieval_core.config import RetrievalConfig, load_config, parse_value
from retrieval_core.errors import (
    ConfigurationError,
    FilterError,
    InvalidParameterError,
    MissingExtraError,
    ModelNotFoundError,
    QueryValidationError,
    RetrievalError,
)
from retrieval_core.types.escapes import CONTROLS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

P = ParamSpec("P")
R = TypeVar("R")

MODES = click.Choice(("hybrid", "dense", "lexical"))
_STORE = "retrieval_core.store"
"""Where the option ``--store`` is kept, so that each command need not hand it on."""
_NOT_PLAIN = re.compile(rf"(?![\x00-\x1f])[{CONTROLS}]")
"""What JSON may hold as it is, and what steers a terminal, or ends a line for some readers."""


def index_option(command: Callable[P, R]) -> Callable[P, R]:
    """Give a command the option that names the index."""
    text = "The index file, or the folder of LanceDB.  [default: .retrieval/index.db]"
    index = click.option("--index", "index_file", metavar="FILE", multiple=True, callback=_only_one, help=text)
    return index(_store_option(command))


def _only_one(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> str | None:
    """Return the value of an option that may be given once; of several, none is silently left out."""
    if len(values) > 1:
        msg = f"this command takes one index; got {len(values)}: {', '.join(values)}"
        raise click.BadParameter(msg)
    return one_of(values)


def _remember_store(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    context.meta[_STORE] = value


def indexes_option(command: Callable[P, R]) -> Callable[P, R]:
    """Give a command the option that names the index, or several of them."""
    text = "The index file; repeat it to search several as one, as FILE or NAME=FILE.  [default: .retrieval/index.db]"
    return click.option("--index", "index_files", metavar="FILE", multiple=True, help=text)(_store_option(command))


def _store_option(command: Callable[P, R]) -> Callable[P, R]:
    store = click.option(
        "--store",
        metavar="KIND",
        expose_value=False,
        callback=_remember_store,
        help="The same as --set store.kind=KIND, for instance lancedb.",
    )
    return store(command)


def question_options(command: Callable[P, R]) -> Callable[P, R]:
    """Give a command the options of those that ask an index something."""
    options = [
        click.option("--top-k", type=click.IntRange(1, 1000), help="The most hits.  [default: 10]"),
        click.option("--mode", type=MODES, help="Search by meaning, by words, or by both.  [default: hybrid]"),
        click.option("--filter", "filter_json", metavar="JSON", help='For instance \'{"price": {"$lte": 150}}\'.'),
        indexes_option,
    ]
    for option in reversed(options):
        command = option(command)
    return command


def common_options(command: Callable[P, R]) -> Callable[P, R]:
    """Give a command the options that every command has."""
    options = [
        click.option("--config", "config_file", metavar="FILE|PRESET", help="A TOML file, or the name of a preset."),
        click.option("--set", "assignments", metavar="KEY=VALUE", multiple=True, help="Set one key; may be repeated."),
        click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output, and nothing else."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def read_config(config_file: str | None, assignments: tuple[str, ...], **given: str | int | None) -> RetrievalConfig:
    """Put defaults, file, environment and options together; ``given`` keys are dotted with ``__``.

    Raises:
        click.UsageError: An assignment has no ``=``.
        ConfigurationError: A setting is wrong.
    """
    overrides: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            # What was given may be a key that lacks its name, so it is not shown.
            msg = "--set takes KEY=VALUE, for instance --set search.top_k=5; there is no = in what was given"
            raise click.UsageError(msg)
        overrides[key.strip()] = parse_value(value)
    context = click.get_current_context(silent=True)
    if context is not None and context.meta.get(_STORE) is not None:
        overrides["store.kind"] = context.meta[_STORE]
    overrides.update({key.replace("__", "."): value for key, value in given.items() if value is not None})
    return load_config(config_file, overrides, os.environ)


def one_of(index_files: tuple[str, ...]) -> str | None:
    """Return the file of an option that was given once, as a setting; ``None`` where it was not, or names several."""
    return index_files[0] if len(index_files) == 1 else None


def print_json(document: dict[str, Any]) -> None:
    """Print one JSON document, readable where standard output can express it."""
    text = json.dumps(document, ensure_ascii=False, indent=2)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(document, indent=2)
    click.echo(text)


def print_json_line(document: dict[str, Any]) -> None:
    """Print a JSON document as one line, at once; what could steer a terminal is escaped."""
    line = json.dumps(document, ensure_ascii=False)
    line = _NOT_PLAIN.sub(lambda found: f"\\u{ord(found[0]):04x}", line)
    try:
        line.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        line = json.dumps(document)
    click.echo(line)


def ends_well(command: Callable[P, R]) -> Callable[P, R]:
    """Turn the library's errors, and the file system's, into one message and an exit code.

    It is 2 for wrong use and 1 for every other failure.
    """

    @wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except BrokenPipeError:  # see retrieval_core.cli.process
            raise
        except (RetrievalError, OSError) as error:
            show = print_json_line if kwargs.get("watch") else print_json
            _end_with(error, show if kwargs.get("as_json") else None)

    return wrapped


def exit_code(error: Exception) -> int:
    """Return what a command ends with because of an error."""
    wrong_use = (ConfigurationError, FilterError, InvalidParameterError, QueryValidationError)
    not_installed = (MissingExtraError, ModelNotFoundError)
    return WRONG_USE if isinstance(error, wrong_use) and not isinstance(error, not_installed) else FAILURE


def _end_with(error: Exception, show: Callable[[dict[str, Any]], None] | None) -> NoReturn:
    if show is not None:
        show({"error": {"type": type(error).__name__, "message": str(error)}})
    else:
        click.secho(f"Error: {error}", fg="red", err=True)
    raise SystemExit(exit_code(error))


@contextmanager
def progress_bar(unit: str) -> Generator[Callable[[str, int, int], None]]:
    """Show a bar with rate and time left on standard error, where that is a terminal.

    Yields:
        A function that takes a description, how much is done, and how much there is.
    """
    from rich.console import Console  # noqa: PLC0415 - for people only
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text  # noqa: PLC0415

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text(f"{speed:.1f} {unit}/s" if speed else "", style="progress.data.speed")

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=None)

        def show(description: str, done: int, total: int) -> None:
            progress.update(bar, description=description, completed=done, total=total)

        yield show
