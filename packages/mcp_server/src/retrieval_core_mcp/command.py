"""The command ``retrieval-mcp``: options, settings, signals, and the end of the process."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import re
import signal
import sys
from contextlib import ExitStack
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from retrieval_core.cli.process import FAILURE, INTERRUPTED, WRONG_USE
from retrieval_core.errors import ConfigurationError
from retrieval_core_mcp import __version__
from retrieval_core_mcp.wording import CONFIG_HELP, DESCRIPTION_HELP, INDEX_HELP, NO_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from _typeshed import SupportsWrite

    from retrieval_core.service.served import ServedIndexes
    from retrieval_core_mcp.settings import ServerSettings

EPILOG = """\
Run retrieval-mcp open to search in your browser; it takes the same options.
Run retrieval-mcp setup to add this server to the assistants on this machine.

environment variables:
  RETRIEVAL_MCP__MAX_CHARACTERS   Limit each answer to this many characters (8000).
  RETRIEVAL_MCP__WAIT_SECONDS     Wait this long for a model that is still loading (1.0).
  RETRIEVAL_MCP__DESCRIPTION      Describe the documents, so that assistants know when to search them.
  RETRIEVAL_MCP__TOOLS            Offer these tools, comma-separated, or all.
  RETRIEVAL_MCP__STRUCTURED       Add structured content to results (false).
  RETRIEVAL_MCP__ALLOW_WRITES     Let clients index files and remove documents (false).
  RETRIEVAL_MCP__ROOTS            Let clients index files in these folders, comma-separated.
  RETRIEVAL_MCP__FOLDER           Index this folder at the start.
  RETRIEVAL_MCP__WATCH            Index changes in these folders at once (false).
  RETRIEVAL_MCP__HTTP__TOKENS     With --http: accept these tokens, as sha256:HASH or sha256:HASH:TENANT.
  RETRIEVAL_MCP__HTTP__...        With --http: see docs/http.md.
  RETRIEVAL_...                   Settings of the search, such as RETRIEVAL_SEARCH__TOP_K.
"""
_FOR_HTTP = frozenset({"--port", "--host", "--transport"})
"""Options of other servers, which have one counterpart here."""
WAITING = (
    "retrieval-mcp is waiting for an MCP client on its standard input. An assistant starts it by itself; there is "
    "nothing to type here. Ctrl+C ends it."
)
THE_FILE = "The index is {index}."
FREE_PORT = "127.0.0.1:0"
_OWN = ("allow_writes", "roots", "watch", "tools", "structured", "folder", "description")
"""Options that are settings of the same name."""
_NEW_OBJECTS = 10_000
"""Objects after which garbage is collected. Python's own 700 or 2,000 make it 50 times while an index is opened,
some 10 ms in all."""


def serve(arguments: Sequence[str] | None = None) -> None:
    """Read the options, and serve until standard input is closed or a signal comes.

    After ``setup``, they are those of :func:`retrieval_core_mcp.setup.command.setup`, which is run instead.
    After ``open``, they are those of a service over HTTP, whose page a browser then shows.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] in (["setup"], ["install"]):
        from retrieval_core_mcp.setup.command import setup  # noqa: PLC0415 - for who installs

        setup(given[1:], by_old_name=given[0] == "install")
        return
    is_open = given[:1] == ["open"]
    options = _options(["--http", FREE_PORT, *given[1:]] if is_open else given)
    logging.basicConfig(
        level=options.log_level.upper(), stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s"
    )
    logging.captureWarnings(True)
    gc.disable()  # while importing, it takes a fifth of the time
    try:
        run = _stdio(options) if options.http is None else _http(options, is_open=is_open)
    except ConfigurationError as error:
        sys.stderr.write(f"Error: {error}\n")
        raise SystemExit(WRONG_USE) from None
    finally:
        gc.freeze()
        gc.set_threshold(_NEW_OBJECTS)
        gc.enable()
    raise SystemExit(run())


class _Parser(argparse.ArgumentParser):
    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        if message:  # the original ignores an output that can't be written
            (file or sys.stderr).write(message)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="retrieval-mcp",
        description="Serve an index to assistants over the Model Context Protocol, on standard input and output, or to "
        "any program over HTTP.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--index", metavar="FILE|NAME=FILE", action="append", help=INDEX_HELP)
    http = "serve HTTP: MCP at /mcp, API at /v1 (127.0.0.1:8000)"
    add("--http", metavar="HOST:PORT", nargs="?", const="", help=http)
    add("--workers", metavar="N", help="with --http: answer with N processes (1)")
    add("--folder", metavar="FOLDER", help="index this folder at the start; its index is in .retrieval")
    add("--description", metavar="TEXT", help=DESCRIPTION_HELP)
    add("--allow-writes", action="store_true", help="let clients index files in --root and remove documents")
    folder = "folder that may be indexed; repeatable (the index's)"
    add("--root", metavar="FOLDER", action="append", dest="roots", help=folder)
    add("--tools", metavar="NAME,...|all", help="offer these tools, or all (five that assistants need)")
    add("--structured", action="store_true", help="add output schemas, and structured content to results")
    add("--no-browser", action="store_true", help="with open: print the address only")
    add("--watch", action="store_true", help="index changes in these folders at once")
    add("--config", metavar="FILE|PRESET", help=CONFIG_HELP)
    level = "log this level and above to standard error (warning)"
    add("--log-level", choices=("debug", "info", "warning", "error"), default="warning", help=level)
    add("--version", action="version", version=f"%(prog)s {__version__}")
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        given, known = unknown[0].partition("=")[0], re.findall(r"--[a-z-]+", parser.format_usage())
        near = get_close_matches(given, (*known, "setup", "open"), n=1, cutoff=0.5)
        if given in _FOR_HTTP:
            near = ["--http HOST:PORT"]
        hint = f"did you mean {near[0]}?" if near else f"the options are {', '.join(known)}"
        parser.error(f"unknown {'option' if given.startswith('-') else 'argument'} {given!r:.80}; {hint}")
    if options.workers is not None and options.http is None:
        parser.error("--workers is for --http")
    if options.watch and options.roots and len(options.index or ()) > 1:
        parser.error("--watch with several indexes follows the folder of each index. Remove --root")
    return options


def _stdio(options: argparse.Namespace) -> Callable[[], int]:
    """Import the server, and return what serves on standard input and output."""
    from retrieval_core_mcp.settings import serve_indexes  # noqa: PLC0415 - slow

    settings = _settings(options)
    indexes = serve_indexes(settings, options.index or ())
    is_file = settings.retrieval.store.kind == "sqlite"
    if sys.stdin.isatty():
        index = settings.retrieval.index
        place = (THE_FILE if Path(index).is_file() else NO_FILE).format(index=index)
        sys.stderr.write(f"{WAITING}\n{place}\n" if is_file else f"{WAITING}\n")
    import anyio  # noqa: PLC0415 - likewise

    for module in ("peek", "server", "stdio"):
        import_module(f"retrieval_core_mcp.{module}")
    return lambda: anyio.run(_serve, settings, indexes)


def _http(options: argparse.Namespace, *, is_open: bool) -> Callable[[], int]:
    """Import the service while its model loads, and return what serves over HTTP."""
    from retrieval_core.adapters.registry import preloaded_embedder  # noqa: PLC0415 - slow, and not needed for --help
    from retrieval_core_mcp.browser import new_token, show_page  # noqa: PLC0415 - likewise
    from retrieval_core_mcp.http.tokens import hashed  # noqa: PLC0415 - likewise

    host, colon, port = options.http.rpartition(":")
    http: dict[str, Any] = {"host": host if colon else port} if options.http else {}
    if colon:
        http["port"] = port
    if options.workers is not None:
        http["workers"] = options.workers
    token = new_token()
    settings = _settings(options, {**http, "tokens": (hashed(token),)} if is_open else http)
    embedder = preloaded_embedder(settings.retrieval) if settings.http.workers == 1 else None
    from retrieval_core_mcp.http.serve import say_where, serve_http  # noqa: PLC0415 - while the model loads

    def run() -> int:
        with ExitStack() as until_the_end:
            browser = None if options.no_browser else until_the_end
            listens = partial(show_page, token, browser) if is_open else say_where
            return serve_http(settings, options.index or (), options.log_level, embedder=embedder, listens=listens)

    return run


def _settings(options: argparse.Namespace, http: Mapping[str, Any] | None = None) -> ServerSettings:
    """Return the settings from all their sources.

    Raises:
        ConfigurationError: They are wrong.
    """
    from retrieval_core.index.settings import named_file  # noqa: PLC0415 - slow
    from retrieval_core_mcp.settings import read_settings  # noqa: PLC0415 - likewise

    index = named_file(options.index[0])[1] if options.index else None
    own = {name: value for name in _OWN if (value := getattr(options, name))}
    return read_settings(index, options.config, os.environ, http=http, **own)


async def _serve(settings: ServerSettings, indexes: ServedIndexes) -> NoReturn:
    """Serve, and end the process without waiting for threads that load a model or search: they can't be stopped.

    Nothing is lost by that: every change of an index is written at once or not at all.
    """
    from retrieval_core_mcp.peek import peek  # noqa: PLC0415 - imported by now
    from retrieval_core_mcp.server import create_server  # noqa: PLC0415 - likewise
    from retrieval_core_mcp.stdio import serve_stdio  # noqa: PLC0415 - likewise

    # SIGTERM is how a client ends its server, SIGINT is Ctrl-C.
    signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(0))
    signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(INTERRUPTED))
    is_file = settings.retrieval.store.kind == "sqlite"
    contents = peek({served.name: served.config.index for served in indexes}) if is_file else ""
    server = create_server(settings, indexes, contents=contents)
    code = 0
    try:
        await serve_stdio(server)
    except* OSError:
        logging.getLogger(__name__).debug("the client is gone", exc_info=True)
    except* Exception:
        logging.getLogger(__name__).exception("the server failed")
        code = FAILURE
    os._exit(code)
