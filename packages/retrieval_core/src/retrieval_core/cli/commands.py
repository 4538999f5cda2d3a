"""The command ``retrieval`` and its subcommands."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import asdict
from functools import partial, reduce
from importlib import import_module
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retrieval_core.cli.common import (
    common_options,
    count,
    format_footer,
    index_options,
    listed,
    print_error,
    print_json,
    print_json_line,
    print_table,
    progress_bar,
    say,
    show_renamed_settings,
    warn,
)
from retrieval_core.cli.contents import (
    copy_command,
    fetch_command,
    info_command,
    list_command,
    remove_command,
    verify_command,
)
from retrieval_core.cli.process import FAILURE, INTERRUPTED, ends_quietly
from retrieval_core.cli.queries import answer_command, context_command, grep_command, search_command
from retrieval_core.cli.suite import suite_group
from retrieval_core.errors import EmbeddingError, RetrievalError, ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from retrieval_core.cli.common import Given
    from retrieval_core.config import RetrievalConfig
    from retrieval_core.evaluate import EvaluationReport
    from retrieval_core.ingest.report import IndexProgress
    from retrieval_core.service.managing import IngestPathsResponse


_REMOVED = {
    "stats": "Use the address /metrics of the server, or Metrics in your program",
    "graph": "Search with: retrieval search QUERY --transform graph",
    "evaluate --compare": "Evaluate each setting and compare the measures, or see: retrieval suite compare --help",
    "evaluate --run": "Make a run file from the results of rank_documents() in your program",
    "run --url": "Run the suite where the index is, with --index",
    "run --before": "Write a report and compare it with: retrieval suite compare BEFORE AFTER",
}
"""Replacements of removed commands and options."""
MOST_TYPES = 8
"""Suffixes of skipped files that are named; ``--json`` names all."""
MOST_FILES = 5
"""Files that a warning or an error names; ``--json`` names all."""
MOST_KEYS = 6
"""Keys in one line."""


class _Retrieval(click.Group):
    """The commands; however they are started, Ctrl-C and an output that is gone end them in the same way."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with ends_quietly():  # help and version are printed here
            return super().make_context(*args, **kwargs)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args[0] in _REMOVED:
            ctx.fail(f"The command {args[0]!r} was removed. {_REMOVED[args[0]]}.")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with ends_quietly():
            try:
                return super().invoke(ctx)
            except click.NoSuchOption as error:
                command = error.ctx.info_name if error.ctx is not None else ""
                if (advice := _REMOVED.get(f"{command} {error.option_name}")) is None:
                    raise
                msg = f"The option {error.option_name!r} was removed. {advice}."
                raise click.UsageError(msg, error.ctx) from None


@click.group(cls=_Retrieval, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="retrieval-core", prog_name="retrieval")
@click.pass_context
def main(context: click.Context) -> None:
    """Search and ask your own files, with citations you can verify."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # what the terminal's encoding lacks is shown as a question mark
            stream.reconfigure(errors="replace")
    if os.environ.get("NO_COLOR"):
        context.color = False
    # What was done without is printed with the result; without a handler, Python would print the log's line too.
    logging.getLogger("retrieval_core").addHandler(logging.NullHandler())
    show_renamed_settings()


@main.command("index")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option("--follow-links", is_flag=True, help="Follow symbolic links that leave their folder.")
@click.option("--watch", is_flag=True, help="Keep indexing changes until Ctrl-C.")
@click.option("--no-ignore", is_flag=True, help="Index ignored, vendored, generated and minified files, too.")
@index_options
def index_command(*, paths: tuple[Path, ...], follow_links: bool, no_ignore: bool, watch: bool, given: Given) -> None:
    """Index files and folders.

    New files are added, changed files are replaced, and files that are gone from a folder are removed from the index.
    """
    from retrieval_core.index.settings import place_of, remembered_settings  # noqa: PLC0415 - help needs none of this
    from retrieval_core.service.managing import IngestPathsRequest, ingest_paths  # noqa: PLC0415 - likewise

    config = given.config()
    place = place_of(config)
    before: dict[str, Any] | None = remembered_settings(config)

    def tell(report: IngestPathsResponse) -> None:
        nonlocal before
        if given.as_json:
            (print_json_line if watch else print_json)(report)
        else:
            _print_report(report)
            if before is not None:
                _print_memory(config, before)
            before = None  # settings are stored once, by the first run

    with given.serve(config) as service:

        def run(paths: tuple[Path, ...] = paths) -> IngestPathsResponse:
            with progress_bar() as show:

                def on_progress(progress: IndexProgress) -> None:
                    if progress.to_embed:
                        show("Embedding (words are searchable)", progress.embedded, progress.to_embed)
                    else:
                        show(f"Indexing ({progress.chunks_done} chunks)", progress.files_done, progress.files_total)

                return service.call(
                    partial(ingest_paths, on_progress=on_progress),
                    IngestPathsRequest,
                    paths=paths,
                    follow_links=follow_links,
                    gitignore=not no_ignore,
                )

        if watch:
            _keep_up(paths, place, run, tell)
        else:
            tell(report := _run_once(run))
            if report.failed:
                raise SystemExit(FAILURE)


def _run_once(run: Callable[[], IngestPathsResponse]) -> IngestPathsResponse:
    try:
        return run()
    except EmbeddingError as error:
        if not isinstance(error.__cause__, ServiceError):
            raise
        msg = f"{str(error).rstrip('.')}. Files indexed so far are kept. Run the command again to continue."
        raise EmbeddingError(msg) from error.__cause__


def _keep_up(
    folders: tuple[Path, ...],
    place: Path,
    run: Callable[[tuple[Path, ...]], IngestPathsResponse],
    tell: Callable[[IngestPathsResponse], None],
) -> None:
    """Index what changes until Ctrl-C; only the first run may fail, since later ones are made again.

    Raises:
        SystemExit: With :data:`INTERRUPTED`, at Ctrl-C.
    """
    from retrieval_core.cli.watching import follow_folders  # noqa: PLC0415 - reads what formats there are

    for path in folders:
        if not path.is_dir():
            msg = f"--watch needs folders, but {str(path)!r} {'is a file' if path.exists() else 'does not exist'}"
            raise click.UsageError(msg)
    told: IngestPathsResponse | None = None
    try:
        for found, _ in follow_folders(folders, place, warn):
            try:
                report = run(found)
            except RetrievalError as error:
                if told is None:
                    raise
                print_error(f"{error}. The files are read again after the next change.")
                continue
            same = told is not None and (report.failed, report.ignored) == (told.failed, told.ignored)
            if not same or report.added or report.updated or report.removed:
                tell(report)
                sys.stdout.flush()
            if told is None:
                click.echo(f"Watching {', '.join(map(str, folders))}. Press Ctrl-C to stop.", err=True)
            told = report
    except KeyboardInterrupt:
        click.echo("\nStopped watching.", err=True)
        raise SystemExit(INTERRUPTED) from None


def _print_report(report: IngestPathsResponse) -> None:
    """Print the report of an indexing run; its warnings and errors go to standard error."""
    counts = [
        f"{number:,} {name}"
        for name in ("added", "updated", "removed", "unchanged")
        if (number := getattr(report, name))
    ]
    total = f"{count(report.documents, 'document')}, {count(report.chunks, 'chunk')}"
    total += f" in {report.store}" if report.store is not None else ""
    say(format_footer(total, *counts, f"{report.seconds:.1f} s"))
    for warning in _warnings(report):
        warn(warning)
    for line in _by_message((file.error, file.path) for file in report.failed):
        print_error(line)


def _warnings(report: IngestPathsResponse) -> Iterator[str]:
    if links := report.skipped_links:
        lead = "leads out of its folder" if links == 1 else "lead out of their folders"
        yield f"{count(links, 'symbolic link')} skipped: {lead}. To follow: --follow-links."
    if report.ignored:
        told = f"{report.ignored:,} skipped by .gitignore (files and folders). To index: --no-ignore."
        if report.removed_as_ignored:
            told += f" Removed from the index: {count(report.removed_as_ignored, 'document')}."
        yield told
    if report.empty:
        yield f"{count(report.empty, 'empty file')} skipped"
    if report.skipped_types:
        yield _skipped_files(report.skipped_types)
    if report.skipped:
        counts = ", ".join(f"{number:,} {reason}" for reason, number in report.skipped.items())
        total = count(sum(report.skipped.values()), "file")
        remedy = "name the file" if set(report.skipped) == {"secrets"} else "--no-ignore, or name the file"
        yield f"{total} skipped: {counts}. To index: {remedy}."
    yield from _by_message((note.message, note.path) for note in report.notes)


def _by_message(told: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Return one line for each message, with the files that it is about."""
    files: dict[str, list[str]] = {}
    for message, path in told:
        files.setdefault(message, []).append(path)
    return (f"{listed(paths, MOST_FILES)}: {message}" for message, paths in files.items())


def _skipped_files(types: Mapping[str, int]) -> str:
    """Return how many files were skipped, by suffix, the most frequent ones by name.

    Args:
        types: How many have a suffix, the most frequent one first.
    """
    total, named = sum(types.values()), list(types.items())[:MOST_TYPES]
    counts = [f"{number:,} {suffix or 'without suffix'}" for suffix, number in named]
    counts += [f"{rest:,} others"] if (rest := total - sum(number for _, number in named)) else []
    return f"{count(total, 'file')} of unsupported types skipped: {', '.join(counts)}"


def _print_memory(config: RetrievalConfig, before: Mapping[str, Any]) -> None:
    """Say which settings the index remembers since it was written to, and which it does not.

    Args:
        before: The settings that it remembered until then.
    """
    from retrieval_core.config.remembered import left_out, names_code  # noqa: PLC0415 - help needs none of this
    from retrieval_core.index.settings import FILE_NAME, find_settings_file, remembered_settings  # noqa: PLC0415

    now = remembered_settings(config)
    if new := [key for key, value in now.items() if key not in before or before[key] != value]:
        click.echo(f"Settings remembered with the index: {listed(new, MOST_KEYS)}")
    if config.provenance is None or config.store.kind == "memory":
        return
    file = find_settings_file(Path(config.index))
    missing = left_out(config, now)
    code = [key for key in missing if names_code(key, reduce(getattr, key.split("."), config))]
    if code:
        click.echo(f"Not remembered, since it is custom code: {listed(code, MOST_KEYS)}. Set it in each command.")
    if missing := [key for key in missing if key not in code]:
        place = FILE_NAME if file is None else str(file)
        click.echo(f"Not remembered: {listed(missing, MOST_KEYS)}. To use them without flags, put them in {place}.")


@main.command("open", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS]")
def open_command(*, arguments: tuple[str, ...]) -> None:
    """Open the search page in your browser.

    It has the options of retrieval-mcp, such as --index FILE and --allow-writes. To list them: retrieval open --help.
    """
    _import_server("command", "the page").serve(["open", *arguments])


@main.command("savings")
@click.argument("questions", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@index_options
def savings_command(given: Given, *, questions: Path, folder: Path) -> None:
    """Compare what assistants read to find answers: search, or grep.

    QUESTIONS has a JSON object on each line, with "question" and "gold": the places of the answer, such as
    [{"path": "guide.md", "lines": [3, 5]}]. FOLDER has the indexed files.
    """
    _import_server("savings", "this command").run_savings(given.config, questions, folder, as_json=given.as_json)


def _import_server(module: str, needing: str) -> Any:
    if find_spec("retrieval_core_mcp") is None:
        from retrieval_core.installation import SERVER, install_command  # noqa: PLC0415 - only this error needs it

        msg = f"{needing} needs the server package. Install it: {install_command(package=SERVER)}"
        raise click.ClickException(msg)
    return import_module(f"retrieval_core_mcp.{module}")


@main.command("evaluate")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="BEIR_FOLDER")
@click.option(
    "--qrels",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Read the relevance judgements from this file.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Evaluate only the first N queries.", metavar="N")
@click.option("--store", metavar="KIND", help="Set store.kind, such as lancedb.")
@click.option("--mode", metavar="MODE", help="Set search.mode: hybrid, vector or keyword.")
@click.option("--fusion", metavar="METHOD", help="Set search.fusion, such as rrf.")
@common_options
def evaluate_command(
    *,
    folder: Path,
    qrels: Path | None,
    limit: int | None,
    fusion: str | None,
    given: Given,
) -> None:
    """Measure search quality on a BEIR collection.

    The folder contains corpus.jsonl, queries.jsonl and qrels/test.tsv. It is indexed into a temporary index with the
    given settings.
    """
    import asyncio  # noqa: PLC0415 - help and completion need none of this

    from retrieval_core.evaluate import evaluate, load_collection  # noqa: PLC0415

    config = given.config(is_for_index=False, search__fusion=fusion)
    collection = load_collection(folder, qrels)
    with progress_bar() as show:
        report = asyncio.run(evaluate(collection, config, limit=limit, on_progress=show))
    if given.as_json:
        print_json(report.to_json())
    else:
        say(folder.name, italic=True)
        print_table(_measures(report), ("Measure", "Value"))


def _measures(report: EvaluationReport) -> Iterator[tuple[str, str]]:
    for key, value in report.to_json().items():
        if isinstance(value, dict):
            yield from ((f"{key} {inner}", f"{figure:.1f}") for inner, figure in value.items())
        else:
            yield key, "-" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)


@main.command("doctor")
@index_options
def doctor_command(*, given: Given) -> None:
    """Check the installation and every configured service.

    Each service gets one small request: a language model writes one word, an embedder embeds one query, a cache looks
    up one key.
    """
    from retrieval_core.cli.doctor import examine, print_findings  # noqa: PLC0415 - help and completion need none of this

    config = given.config()
    findings = list(examine(config))
    healthy = all(finding.verdict != "wrong" for finding in findings)
    if given.as_json:
        print_json({"healthy": healthy, "findings": [asdict(finding) for finding in findings]})
    else:
        print_findings(findings)
    if not healthy:
        raise SystemExit(FAILURE)


for command in (
    answer_command,
    context_command,
    grep_command,
    info_command,
    copy_command,
    fetch_command,
    list_command,
    remove_command,
    search_command,
    suite_group,
    verify_command,
):
    main.add_command(command)
