"""The command ``retrieval`` and its subcommands."""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retrieval_core.cli.answer import answer_command
from retrieval_core.cli.common import (
    common_options,
    index_options,
    print_error,
    print_json,
    print_json_line,
    progress_bar,
    question_options,
    show_renamed_settings,
    warn,
)
from retrieval_core.cli.contents import (
    info_command,
    list_command,
    remove_command,
    verify_command,
)
from retrieval_core.cli.process import FAILURE, INTERRUPTED, ends_quietly
from retrieval_core.cli.suite import suite_group
from retrieval_core.errors import EmbeddingError, RetrievalError, ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrieval_core.cli.common import Given
    from retrieval_core.index.index import Index
    from retrieval_core.ingest.report import IndexProgress, IndexReport


_REMOVED = {
    "stats": "Use the address /metrics of the server, or Metrics in your program",
    "graph": "Search with: retrieval search QUERY --transform graph",
    "evaluate --compare": "Evaluate each setting and compare the measures, or see: retrieval suite compare --help",
    "evaluate --run": "Make a run file from the results of rank_documents() in your program",
    "run --url": "Run the suite where the index is, with --index",
    "run --before": "Write a report and compare it with: retrieval suite compare BEFORE AFTER",
}
"""Replacements of removed commands and options."""


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
def main() -> None:
    """Search and ask your own files, with citations you can verify."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # what the terminal's encoding lacks is shown as a question mark
            stream.reconfigure(errors="replace")
    # What was done without is printed with the result; without a handler, Python would print the log's line too.
    logging.getLogger("retrieval_core").addHandler(logging.NullHandler())
    show_renamed_settings()


@main.command("index")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option("--follow-links", is_flag=True, help="Follow symbolic links that leave their folder.")
@click.option("--watch", is_flag=True, help="Keep indexing changes until Ctrl-C.")
@click.option("--no-ignore", is_flag=True, help="Index files that .gitignore excludes, too.")
@index_options
def index_command(*, paths: tuple[Path, ...], follow_links: bool, no_ignore: bool, watch: bool, given: Given) -> None:
    """Index files and folders.

    New files are added, changed files are replaced, and files that are gone from a folder are removed from the index.
    """
    from retrieval_core.cli.render import print_memory, print_report  # noqa: PLC0415 - help needs none of this
    from retrieval_core.index.open import open_index  # noqa: PLC0415 - help and completion need none of this
    from retrieval_core.index.serialization import report_to_json  # noqa: PLC0415
    from retrieval_core.index.settings import place_of, remembered_settings, store_name  # noqa: PLC0415

    config = given.config()
    place = place_of(config)
    before: dict[str, Any] | None = remembered_settings(config)

    def run(index: Index, paths: tuple[Path, ...] = paths) -> IndexReport:
        with progress_bar("chunks") as show:

            def on_progress(progress: IndexProgress) -> None:
                if progress.to_embed:
                    show("Embedding (words are searchable)", progress.embedded, progress.to_embed)
                else:
                    show(f"Indexing ({progress.chunks_done} chunks)", progress.files_done, progress.files_total)

            return index.ingest(paths, on_progress, follow_links=follow_links, gitignore=not no_ignore)

    def tell(report: IndexReport) -> None:
        nonlocal before
        if given.as_json:
            (print_json_line if watch else print_json)(
                {**report_to_json(report), "store": store_name(config, index.store.location)}
            )
        else:
            print_report(report, store_name(config, index.store.location))
            if before is not None:
                print_memory(config, before)
            before = None  # settings are stored once, by the first run

    with open_index(config=config) as index:
        if watch:
            _keep_up(paths, place, lambda folders: run(index, folders), tell)
        else:
            tell(report := _run_once(lambda: run(index)))
            if report.failed:
                raise SystemExit(FAILURE)


def _run_once(run: Callable[[], IndexReport]) -> IndexReport:
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
    run: Callable[[tuple[Path, ...]], IndexReport],
    tell: Callable[[IndexReport], None],
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
    told: IndexReport | None = None
    try:
        for found in follow_folders(folders, place, warn):
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


@main.command("search")
@click.argument("query")
@click.option("--trace", is_flag=True, help="Show each stage with its time and decision.")
@click.option(
    "--transform",
    "transforms",
    multiple=True,
    metavar="NAME",
    help="Transform the query: keywords, decompose, hyde, graph.",
)
@question_options
def search_command(*, query: str, trace: bool, transforms: tuple[str, ...], given: Given) -> None:
    """Search the index with keywords and vectors.

    Each result has a score relative to the best one, and its rank in vector and keyword search.
    """
    config, condition = given.config(), given.condition()
    with given.open(config) as index:
        from retrieval_core.adapters.registry import build_analyzer  # noqa: PLC0415 - likewise
        from retrieval_core.cli.render import print_result  # noqa: PLC0415 - while the model loads
        from retrieval_core.index.serialization import result_to_json  # noqa: PLC0415 - likewise

        result = index.retrieve(query, condition, transforms=transforms or None)
    if given.as_json:
        print_json(result_to_json(result, with_trace=trace))
    else:
        analyzer = build_analyzer(config.analysis)
        print_result(result, analyzer, fusion=config.search.fusion, with_trace=trace, is_verbose=given.is_verbose)
    if "error" in result.metadata:
        raise SystemExit(FAILURE)


@main.command("context")
@click.argument("query")
@click.option("--max-tokens", type=click.IntRange(1), help="Limit the context, in tokens.  [default: 12000]")
@click.option("--ledger", is_flag=True, help="Show which chunks were kept, shortened or dropped.")
@question_options
def context_command(*, query: str, max_tokens: int | None, ledger: bool, given: Given) -> None:
    """Print a context for a language model, within a token budget.

    The text goes to standard output. Its citations, verified against the index, go to standard error.
    """
    config, condition = given.config(context__max_tokens=max_tokens), given.condition()
    with given.open(config) as index:
        from retrieval_core.cli.render import error_of, print_pack  # noqa: PLC0415 - while the model loads
        from retrieval_core.index.serialization import pack_to_json  # noqa: PLC0415 - likewise

        pack = index.context(query, condition)
        checks = index.verify(pack.sources)
    if given.as_json:
        print_json(pack_to_json(pack, checks))
    else:
        print_pack(pack, checks, with_ledger=ledger, is_verbose=given.is_verbose)
    if error_of(pack) is not None or not all(check.matches for check in checks):
        raise SystemExit(FAILURE)


@main.command("open", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS]")
def open_command(*, arguments: tuple[str, ...]) -> None:
    """Open the search page in your browser.

    It has the options of retrieval-mcp, such as --index FILE and --allow-writes. To list them: retrieval open --help.
    """
    if find_spec("retrieval_core_mcp") is None:
        from retrieval_core.installation import SERVER, install_command  # noqa: PLC0415 - only this error needs it

        msg = f"the page needs the server package. Install it: {install_command(package=SERVER)}"
        raise click.ClickException(msg)
    import_module("retrieval_core_mcp.command").serve(["open", *arguments])


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

    from retrieval_core.cli.render import print_evaluation  # noqa: PLC0415
    from retrieval_core.evaluate import evaluate, load_collection  # noqa: PLC0415

    config = given.config(is_for_index=False, search__fusion=fusion)
    collection = load_collection(folder, qrels)
    with progress_bar("") as show:
        report = asyncio.run(evaluate(collection, config, limit=limit, on_progress=show))
    if given.as_json:
        print_json(report.to_json())
    else:
        print_evaluation(report, folder.name)


@main.command("doctor")
@index_options
def doctor_command(*, given: Given) -> None:
    """Check the installation and every configured service.

    Each service gets one small request: a language model writes one word, an embedder embeds one query, a cache looks
    up one key.
    """
    from retrieval_core.cli.doctor import examine  # noqa: PLC0415 - help and completion need none of this
    from retrieval_core.cli.render import print_findings  # noqa: PLC0415

    config = given.config()
    findings = list(examine(config))
    healthy = all(finding.verdict != "wrong" for finding in findings)
    if given.as_json:
        entries = [{"subject": f.subject, "verdict": f.verdict, "detail": f.detail} for f in findings]
        print_json({"healthy": healthy, "findings": entries})
    else:
        print_findings(findings)
    if not healthy:
        raise SystemExit(FAILURE)


for command in (
    answer_command,
    info_command,
    list_command,
    remove_command,
    suite_group,
    verify_command,
):
    main.add_command(command)
