"""The command ``retrieval-mcp``: options, settings, signals, and the end of the process."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import signal
import sys
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from retrieval_core.cli.process import FAILURE, INTERRUPTED, WRONG_USE
from retrieval_core_mcp import __version__

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from _typeshed import SupportsWrite

    from retrieval_core.ports import Embedder
    from retrieval_core_mcp.settings import ServerSettings

EPILOG = """\
Run retrieval-mcp open to search in your browser; it takes the same options.
Run retrieval-mcp install --client NAME to add this server to an assistant.

environment variables:
  RETRIEVAL_MCP__MAX_CHARACTERS   Limit each answer to this many characters (5000).
  RETRIEVAL_MCP__WAIT_SECONDS     Wait this long for a model that is still loading (1.0).
  RETRIEVAL_MCP__DESCRIPTION      Describe the documents, so that assistants know when to search them.
  RETRIEVAL_MCP__ALLOW_WRITES     Let clients index files and remove documents (false).
  RETRIEVAL_MCP__ROOTS            Let clients index files in these folders, comma-separated.
  RETRIEVAL_MCP__WATCH            Index changes in these folders at once (false).
  RETRIEVAL_MCP__HTTP__TOKENS     With --http: accept these tokens, as sha256:HASH or sha256:HASH:TENANT.
  RETRIEVAL_MCP__HTTP__...        With --http: see docs/http.md.
  RETRIEVAL_...                   Settings of the search, such as RETRIEVAL_SEARCH__TOP_K.
"""
OPTIONS = (
    "--index",
    "--config",
    "--http",
    "--allow-writes",
    "--root",
    "--watch",
    "--no-browser",
    "--log-level",
    "--version",
    "--help",
)
_FOR_HTTP = frozenset({"--port", "--host", "--transport"})
"""Options of other servers, which have one counterpart here."""
WAITING = (
    "retrieval-mcp is waiting for an MCP client on its standard input. An assistant starts it by itself; there is "
    "nothing to type here. Ctrl+C ends it."
)
THE_FILE = "The index is {index}."
NO_FILE = "There is no index at {index} yet. Make one with: retrieval index FOLDER --index {index}"
FREE_PORT = "127.0.0.1:0"
LEVELS = ("debug", "info", "warning", "error")
_NEW_OBJECTS = 10_000
"""Objects after which garbage is collected. Python's own 700 or 2,000 make it 50 times while an index is opened,
some 10 ms in all."""


def serve(arguments: Sequence[str] | None = None) -> None:
    """Read the options, and serve until standard input is closed or a signal comes.

    Behind ``install``, they are those of :func:`retrieval_core_mcp.install.command.install`, which is run instead.
    Behind ``open``, they are those of a service over HTTP, whose page a browser then shows.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["install"]:
        from retrieval_core_mcp.install.command import install  # noqa: PLC0415 - for who installs

        install(given[1:])
        return
    is_open = given[:1] == ["open"]
    options = _options(["--http", FREE_PORT, *given[1:]] if is_open else given)
    logging.basicConfig(
        level=options.log_level.upper(), stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s"
    )
    logging.captureWarnings(True)
    if options.http is not None:
        with _quick_imports():
            from retrieval_core_mcp.browser import new_token, show_page  # noqa: PLC0415 - for who opens the page

            token = new_token() if is_open else None
            settings = _settings(options, token)
            embedder = _preloaded(settings)
            from retrieval_core_mcp.http.serve import say_where, serve_http  # noqa: PLC0415 - while the model loads
        places = options.index or ()
        with ExitStack() as until_the_end:
            browser = None if options.no_browser else until_the_end
            listens = say_where if token is None else partial(show_page, token, browser)
            code = serve_http(settings, places, options.log_level, embedder=embedder, listens=listens)
        raise SystemExit(code)
    with _quick_imports():
        settings = _settings(options)
        if sys.stdin is not None and sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison] - pythonw
            _greet(settings)
        import anyio  # noqa: PLC0415 - slow, and not needed for --help

        for module in ("library", "server", "stdio"):
            import_module(f"retrieval_core_mcp.{module}")
    anyio.run(_serve, settings, options.index or ())


class _Parser(argparse.ArgumentParser):
    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        if message:  # the original passes over an output that cannot be written
            (file or sys.stderr).write(message)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _Parser(
        prog="retrieval-mcp",
        description="Serve an index to assistants over the Model Context Protocol, on standard input and output, or to "
        "any program over HTTP.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--index",
        metavar="FILE|NAME=FILE",
        action="append",
        help="index file; repeatable with names (.retrieval/index.db)",
    )
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        nargs="?",
        const="",
        help="serve HTTP: MCP at /mcp, API at /v1 (127.0.0.1:8000)",
    )
    parser.add_argument(
        "--allow-writes", action="store_true", help="let clients index files in --root and remove documents"
    )
    parser.add_argument(
        "--root",
        metavar="FOLDER",
        action="append",
        help="folder that may be indexed; repeatable (the index's)",
    )
    parser.add_argument("--no-browser", action="store_true", help="with open: print the address only")
    parser.add_argument("--watch", action="store_true", help="index changes in these folders at once")
    parser.add_argument("--config", metavar="FILE|PRESET", help="read settings from a TOML file or preset")
    parser.add_argument(
        "--log-level", choices=LEVELS, default="warning", help="log this level and above to standard error (warning)"
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        given = unknown[0].partition("=")[0]
        near = get_close_matches(given, (*OPTIONS, "install", "open"), n=1, cutoff=0.5)
        if given in _FOR_HTTP:
            near = ["--http HOST:PORT"]
        hint = f"did you mean {near[0]}?" if near else f"the options are {', '.join(OPTIONS)}"
        parser.error(f"unknown {'option' if given.startswith('-') else 'argument'} {given!r:.80}; {hint}")
    if options.watch and options.root and len(options.index or ()) > 1:
        parser.error("--watch with several indexes follows the folder of each index. Remove --root")
    return options


def _greet(settings: ServerSettings) -> None:
    """Tell a person at a terminal what the server waits for."""
    lines = [WAITING]
    if settings.retrieval.store.kind == "sqlite":
        index = settings.retrieval.index
        lines.append((THE_FILE if Path(index).is_file() else NO_FILE).format(index=index))
    sys.stderr.write("\n".join(lines) + "\n")


def _settings(options: argparse.Namespace, token: str | None = None) -> ServerSettings:
    from retrieval_core.errors import ConfigurationError, MissingExtraError  # noqa: PLC0415 - after the options
    from retrieval_core_mcp.settings import named_indexes, read_settings  # noqa: PLC0415 - likewise

    own: dict[str, Any] = {"allow_writes": True} if options.allow_writes else {}
    if options.watch:
        own["watch"] = True
    if options.root:
        own["roots"] = tuple(options.root)
    try:
        if options.http is None:
            settings = read_settings(_first(options.index), options.config, os.environ, **own)
            named_indexes(options.index or (), settings.retrieval.index)
        else:
            http = _http_options(options)
            if token is not None:
                from retrieval_core_mcp.http.tokens import hashed  # noqa: PLC0415 - for who opens the page

                http["tokens"] = (hashed(token),)
            settings = read_settings(_first(options.index), options.config, os.environ, http=http, **own)
        if settings.watch and find_spec("watchfiles") is None:
            raise MissingExtraError("watch", "retrieval-mcp --watch")
    except ConfigurationError as error:
        sys.stderr.write(f"Error: {error}\n")
        raise SystemExit(WRONG_USE) from None
    return settings


def _preloaded(settings: ServerSettings) -> Embedder | None:
    """Return the embedder, whose model loads while the protocol's library is imported: nobody is answered before."""
    from retrieval_core.adapters.registry import preloaded_embedder  # noqa: PLC0415 - likewise
    from retrieval_core.errors import ConfigurationError  # noqa: PLC0415 - after the options

    try:
        return preloaded_embedder(settings.retrieval)
    except ConfigurationError as error:
        sys.stderr.write(f"Error: {error}\n")
        raise SystemExit(WRONG_USE) from None


def _first(places: Sequence[str] | None) -> str | None:
    """Return the file of the first index that is named; ``None`` where none is."""
    from retrieval_core_mcp.settings import name_and_file  # noqa: PLC0415 - after the options

    return name_and_file(places[0])[1] if places else None


def _http_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return what the command line says of the service."""
    given: dict[str, Any] = {}
    host, colon, port = options.http.rpartition(":")
    if options.http:
        given["host"] = host if colon else options.http
        if colon:
            given["port"] = port
    return given


@contextmanager
def _quick_imports() -> Generator[None]:
    """Import without garbage collection, which takes a fifth of the time, and freeze what was imported.

    Afterwards it is done more seldom than by default: with an index, as much is imported once more.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(_NEW_OBJECTS)
        gc.enable()


async def _serve(settings: ServerSettings, places: Sequence[str]) -> NoReturn:
    """Serve, and end the process without waiting for threads that load a model or search: they can't be stopped.

    Nothing is lost by that: every change of an index is written at once or not at all.
    """
    from retrieval_core_mcp.library import Library  # noqa: PLC0415 - imported by now
    from retrieval_core_mcp.peek import peek  # noqa: PLC0415 - likewise
    from retrieval_core_mcp.server import create_server  # noqa: PLC0415 - likewise
    from retrieval_core_mcp.settings import named_indexes  # noqa: PLC0415 - likewise
    from retrieval_core_mcp.stdio import serve_stdio  # noqa: PLC0415 - likewise

    # SIGTERM is how a client ends its server, SIGINT is Ctrl-C.
    signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(0))
    signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(INTERRUPTED))
    named = named_indexes(places, settings.retrieval.index)
    server = create_server(
        settings,
        {name: Library(settings.of_index(path)) for name, path in named.items()},
        contents=peek(named) if settings.retrieval.store.kind == "sqlite" else "",
    )
    code = 0
    try:
        await serve_stdio(server)
    except* OSError:
        logging.getLogger(__name__).debug("the client is gone", exc_info=True)
    except* Exception:
        logging.getLogger(__name__).exception("the server failed")
        code = FAILURE
    os._exit(code)
