"""Common parts of all commands: options, configuration, messages in plain text, and exit codes."""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, reduce, wraps
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import click

from retrieval_core.cli.process import FAILURE, WRONG_USE
from retrieval_core.errors import (
    ConfigurationError,
    FilterError,
    InvalidParameterError,
    MissingExtraError,
    ModelNotFoundError,
    QueryValidationError,
    RetrievalError,
    SettingRenamedWarning,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
    from types import EllipsisType

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.index.index import Index
    from retrieval_core.pipeline.query_engine import QueryEngine
    from retrieval_core.service.served import ServedIndexes
    from retrieval_core.service.service_context import ServiceContext, ServiceModel
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
WIDEST = 60
"""Characters that a column is padded to at most."""


def styled(text: str, **style: Any) -> str:
    """Return text that cannot steer a terminal, in a style of :func:`click.style`."""
    return click.style(harmless(text), **style) if style else harmless(text)


def say(text: str, *, err: bool = False, **style: Any) -> None:
    """Print a line in a style of :func:`click.style`."""
    click.echo(styled(text, **style), err=err)


def warn(text: str) -> None:
    """Print a warning on standard error."""
    say(f"Warning: {text}", err=True, fg="yellow")


def print_error(text: str) -> None:
    """Print an error on standard error."""
    say(f"Error: {text}", err=True, fg="red")


def print_table(
    rows: Iterable[Sequence[str]],
    head: Sequence[str] = (),
    *,
    colours: Iterable[str | None] = (),
    err: bool = False,
) -> None:
    """Print rows in columns, numbers to the right. A cell longer than 60 characters moves the cells beside it."""
    rows = list(rows)
    if not rows:
        return
    are_numbers = [all(cell[:1] in "-0123456789" for cell in cells) for cells in zip(*rows, strict=True)]
    widths = [min(WIDEST, max(map(len, cells))) for cells in zip(*rows, *([head] if head else []), strict=True)]
    widths[-1] = 0

    def line(cells: Sequence[str]) -> str:
        columns = zip(cells, widths, are_numbers, strict=True)
        return "  ".join(cell.rjust(width) if number else cell.ljust(width) for cell, width, number in columns).rstrip()

    if head:
        say(line(head), err=err, bold=True)
    for row, colour in zip_longest(rows, colours):
        say(line(row), err=err, fg=colour)


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


def warn_degraded(entries: Iterable[Degradation], *, besides: str = "") -> None:
    """Print a warning for each stage that did not work as configured.

    Args:
        besides: A line that is printed besides; a reason that it has is not repeated.
    """
    for entry in entries:
        if entry.reason not in besides:
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


def listed(items: Sequence[str], most: int) -> str:
    """Return items with commas in between; of many, the first ones and how many more there are."""
    return ", ".join(items[:most]) + (f" and {len(items) - most:,} more" if len(items) > most else "")


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


MODES = click.Choice(("hybrid", "vector", "keyword", "dense", "lexical"))
MODE_NAMES = "[hybrid|vector|keyword]"
"""The names that help texts show."""
_Command: TypeAlias = "Callable[..., None]"
_Option: TypeAlias = "Callable[[_Command], _Command]"
_Request = TypeVar("_Request", bound="ServiceModel")
_Response = TypeVar("_Response")


@dataclass(frozen=True, slots=True)
class Given:
    """What was given for the options that commands share, and what follows from them."""

    config_file: str | None = None
    assignments: tuple[str, ...] = ()
    as_json: bool = False
    store: str | None = None
    index_files: tuple[str, ...] = ()
    top_k: int | None = None
    mode: str | None = None
    filter_json: str | None = None
    is_verbose: bool = False

    def config(self, *, is_for_index: bool = True, **settings: str | int | None) -> RetrievalConfig:
        """Put defaults, file, environment and options together; keys of ``settings`` are dotted with ``__``.

        Args:
            is_for_index: Whether an index of the user's is opened, whose own settings count too.

        Raises:
            click.UsageError: An assignment has no ``=``.
            ConfigurationError: A setting is wrong.
        """
        overrides = _assigned(self.assignments)
        settings = {"store__kind": self.store, "search__top_k": self.top_k, "search__mode": self.mode, **settings}
        if len(self.index_files) == 1:
            settings["index"] = self.index_files[0]
        overrides.update({key.replace("__", "."): value for key, value in settings.items() if value is not None})
        if not is_for_index:
            from retrieval_core.config import load_config  # noqa: PLC0415 - help and completion need no settings

            return load_config(self.config_file, overrides, os.environ)
        from retrieval_core.index.settings import load_index_config, load_shared_config, named_file  # noqa: PLC0415 - as above

        if len(self.index_files) > 1:
            files = [named_file(text)[1] for text in self.index_files]
            return load_shared_config(files, file=self.config_file, overrides=overrides, environment=os.environ)
        config = load_index_config(file=self.config_file, overrides=overrides, environment=os.environ)
        if config.provenance is not None:
            for warning in config.provenance.warnings:
                warn(warning)
        return config

    def filters(self) -> dict[str, Any] | None:
        """Return the filter, checked.

        Raises:
            FilterError: It is not well formed.
        """
        if self.filter_json is None:
            return None
        from retrieval_core.types.filters.syntax import parse_filter  # noqa: PLC0415 - most queries have no filter

        parse_filter(self.filter_json)
        return json.loads(self.filter_json)

    @contextmanager
    def serve(self, config: RetrievalConfig, *, with_queries: bool = False) -> Generator[LocalService]:
        """Open what ``--index`` names, once or repeatedly; without it, the configured index.

        Args:
            with_queries: Whether queries follow, so that the model is loaded while the index is opened.

        Yields:
            The service of one index, or of several that are searched as one.
        """
        from retrieval_core.service.served import OpenedIndex, ServedIndexes  # noqa: PLC0415 - help needs none of this
        from retrieval_core.service.service_context import ServiceContext  # noqa: PLC0415 - likewise

        def service(engine: QueryEngine, served: ServedIndexes) -> LocalService:
            context = ServiceContext(served, may_write=True, is_local=True)
            return LocalService(engine, context, ... if with_queries else None)

        if len(self.index_files) < 2:
            from retrieval_core.adapters.registry import preloaded_embedder  # noqa: PLC0415 - likewise

            is_needed = with_queries and config.search.mode != "lexical"
            embedder = preloaded_embedder(config) if is_needed else None
            from retrieval_core.index.open import open_index  # noqa: PLC0415 - while the model loads

            with open_index(config=config, embedder=embedder) as index:
                yield service(index, ServedIndexes(OpenedIndex(index)))
            return
        from retrieval_core.index.open import open_indexes  # noqa: PLC0415

        with open_indexes(_by_name(self.index_files), config=config) as indexes:
            opened = cast("dict[str, Index]", indexes.indexes)
            served = [OpenedIndex(index, name) for name, index in opened.items()]
            yield service(indexes, ServedIndexes(*served, joined=indexes))


@dataclass(frozen=True, slots=True)
class LocalService:
    """The service of the index or the indexes that a command names.

    Attributes:
        engine: Runs calls in its event loop.
        seconds: How long a call may take; ``None`` for as long as it needs, ``...`` for as long as a query may.
    """

    engine: QueryEngine
    context: ServiceContext
    seconds: EllipsisType | None

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of several indexes; ``None`` for one."""
        return tuple(each.name for each in self.context.indexes) if len(self.context.indexes) > 1 else None

    def call(
        self,
        function: Callable[[ServiceContext, _Request], Coroutine[Any, Any, _Response]],
        request: type[_Request],
        **arguments: Any,
    ) -> _Response:
        """Return the response of a function.

        Args:
            arguments: Fields of the request.

        Raises:
            InvalidParameterError: The request refuses an argument.
        """
        return self.engine.sync.run(function(self.context, read_request(request, **arguments)), self.seconds)

    def query(self, given: Given, query: str) -> dict[str, Any]:
        """Return the arguments that requests for searches, contexts and answers share.

        Raises:
            QueryValidationError: The query is empty.
        """
        if not query.strip():
            msg = "the query is empty; ask for something"
            raise QueryValidationError(msg, query)
        return {"query": query, "filters": given.filters(), "indexes": self.names, "mode": given.mode}


def read_request(request: type[_Request], **arguments: Any) -> _Request:
    """Return a request of the service.

    Raises:
        InvalidParameterError: It refuses an argument.
    """
    from pydantic import ValidationError  # noqa: PLC0415 - help and completion need none of this

    from retrieval_core.config.base import problems_of  # noqa: PLC0415 - likewise

    try:
        return request(**arguments)
    except ValidationError as error:
        raise InvalidParameterError("; ".join(problems_of(error, secrets=()))) from None


def _assigned(assignments: Sequence[str]) -> dict[str, Any]:
    """Return settings by their keys."""
    from retrieval_core.config import parse_value  # noqa: PLC0415 - help and completion need no settings

    overrides: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            # What was given may be a key that lacks its name, so it is not shown.
            msg = "--set needs KEY=VALUE, but there is no =. For example: --set search.top_k=5"
            raise click.UsageError(msg)
        overrides[key.strip()] = parse_value(value)
    return overrides


def _by_name(index_files: Sequence[str]) -> dict[str, str] | list[str]:
    """Return files by the names that they were given; a list where none has a name."""
    from retrieval_core.index.settings import named_file  # noqa: PLC0415 - help needs none of this

    named = [named_file(text) for text in index_files]
    if not any(name for name, _ in named):
        return [file for _, file in named]
    given: dict[str, str] = {}
    for name, file in named:
        own = name or Path(file).stem
        if own in given:
            msg = f"--index: {given[own]} and {file} are both named {own!r}. Name them with NAME=FILE."
            raise click.UsageError(msg)
        given[own] = file
    return given


def common_options(command: _Command) -> _Command:
    """Give a command the options that every command has, as the argument ``given``, and an end that says what failed.

    The library's errors, and the file system's, become one message and an exit code: 2 for wrong use and 1 for every
    other failure.
    """
    return _with_options(command)


def json_option(command: _Command) -> _Command:
    """Give a command the option ``--json``, as the argument ``given``, and an end that says what failed."""
    return _with_options(command, common=_COMMON[-1:])


def index_options(command: _Command) -> _Command:
    """Give a command the :func:`common_options`, and those that name one index."""
    text = "Use this index.  [default: .retrieval/index.db]"
    index = click.option("--index", "index_files", metavar="FILE", multiple=True, callback=_only_one, help=text)
    return _with_options(command, index, _STORE)


def question_options(command: _Command) -> _Command:
    """Give a command the :func:`common_options`, and those of asking one index, or several as one."""
    text = "Use this index. Repeatable.  [default: .retrieval/index.db]"
    return _with_options(
        command,
        click.option("--top-k", type=click.IntRange(1, 1000), help="Limit the number of results.  [default: 10]"),
        click.option(
            "--mode",
            type=MODES,
            metavar=MODE_NAMES,
            help="Search with vectors, keywords or both.  [default: hybrid]",
        ),
        click.option(
            "--filter", "filter_json", metavar="JSON", help='Filter by metadata, as {"price": {"$lte": 150}}.'
        ),
        click.option("--index", "index_files", metavar="FILE", multiple=True, help=text),
        _STORE,
        click.option("-v", "--verbose", "is_verbose", is_flag=True, help="Explain scores, relevance and confidence."),
    )


_STORE: _Option = click.option("--store", metavar="KIND", help="Set store.kind, such as lancedb.")
_COMMON: tuple[_Option, ...] = (
    click.option("--config", "config_file", metavar="FILE|PRESET", help="Load settings from a TOML file or a preset."),
    click.option("--set", "assignments", metavar="KEY=VALUE", multiple=True, help="Set one setting. Repeatable."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text."),
)


def _with_options(command: _Command, *options: _Option, common: tuple[_Option, ...] = _COMMON) -> _Command:
    @wraps(command)
    def wrapped(**arguments: Any) -> None:
        given = Given(**{name: arguments.pop(name) for name in Given.__slots__ if name in arguments})
        try:
            command(given=given, **arguments)
        except BrokenPipeError:  # see retrieval_core.cli.process
            raise
        except (RetrievalError, OSError) as error:
            if given.as_json:
                show = print_json_line if arguments.get("watch") else print_json
                show({"error": {"type": type(error).__name__, "message": _message_of(error)}})
            else:
                print_error(_message_of(error))
            raise SystemExit(exit_code(error)) from error

    return reduce(lambda made, option: option(made), reversed((*options, *common)), cast("_Command", wrapped))


def _only_one(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values of an option that may be given once; of several, none is silently left out."""
    if len(values) > 1:
        msg = f"only one index is possible here: {', '.join(values)}. Give --index once."
        raise click.BadParameter(msg)
    return values


def call_service(
    given: Given,
    function: Callable[[ServiceContext, _Request], Coroutine[Any, Any, _Response]],
    request: type[_Request],
    **arguments: Any,
) -> _Response:
    """Return the response of a function of the service, for the index that a command names.

    Args:
        arguments: Fields of the request.

    Raises:
        InvalidParameterError: The request refuses an argument.
    """
    with given.serve(given.config()) as service:
        return service.call(function, request, **arguments)


def exit_code(error: Exception) -> int:
    """Return what a command ends with because of an error."""
    wrong_use = (ConfigurationError, FilterError, InvalidParameterError, QueryValidationError)
    not_installed = (MissingExtraError, ModelNotFoundError)
    return WRONG_USE if isinstance(error, wrong_use) and not isinstance(error, not_installed) else FAILURE


def print_json(response: ServiceModel | dict[str, Any]) -> None:
    """Print a response as one JSON document, readable where standard output can express it."""
    document = _as_json(response)
    _print_encodable(json.dumps(document, ensure_ascii=False, indent=2), lambda: json.dumps(document, indent=2))


def print_json_line(response: ServiceModel | dict[str, Any]) -> None:
    """Print a response as one line of JSON, at once; what could steer a terminal is escaped."""
    document = _as_json(response)
    # JSON may contain characters that control a terminal or that some programs read as the end of a line.
    line = _controls().sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(document, ensure_ascii=False))
    _print_encodable(line, lambda: json.dumps(document))


def _as_json(response: ServiceModel | dict[str, Any]) -> dict[str, Any]:
    return response if isinstance(response, dict) else response.model_dump(mode="json")


def _print_encodable(text: str, in_ascii: Callable[[], str]) -> None:
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = in_ascii()
    click.echo(text)


@contextmanager
def progress_bar() -> Generator[Callable[[str, int, int], None]]:
    """Show a bar with the time left on standard error, if that is a terminal.

    Yields:
        A function that takes a description, how much is done, and how much there is.
    """
    if not sys.stderr.isatty():
        yield _ignore
        return
    with click.progressbar(length=1, width=0, file=sys.stderr, show_pos=True) as bar:

        def show(description: str, done: int, total: int) -> None:
            bar.label, bar.length, bar.finished = description, max(total, 1), False
            bar.make_step(done - bar.pos)
            bar.render_progress()

        yield show


def _ignore(*_: object) -> None:
    pass


def _message_of(error: Exception) -> str:
    """Return what failed; the system names no file if the current folder is missing."""
    if isinstance(error, FileNotFoundError) and error.filename is None:
        return "the current folder does not exist any more: change to another folder"
    return str(error)
