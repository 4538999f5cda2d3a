"""``retrieval search``, ``context`` and ``answer``: ask an index, or several as one."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from retrieval_core.cli.common import (
    exit_code,
    index_options,
    print_json,
    print_json_line,
    question_options,
    read_request,
    warn,
)
from retrieval_core.cli.process import FAILURE
from retrieval_core.errors import RetrievalError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import IO

    from retrieval_core.cli.common import Given, LocalService
    from retrieval_core.types import Answer, Citation, CitationCheck

NOT_FOUND = 1
"""The exit code of ``retrieval grep`` if no line matches, as of grep."""
KINDS = ("text", "keywords", "passage")
"""Kinds of further queries."""


@click.command("search")
@click.argument("query")
@click.option("--trace", is_flag=True, help="Show each stage with its time and decision.")
@click.option(
    "--transform",
    "transforms",
    multiple=True,
    metavar="NAME",
    help="Transform the query: keywords, decompose, hyde, graph.",
)
@click.option(
    "--also",
    "queries",
    multiple=True,
    metavar="KIND=TEXT",
    help="Also search for text, keywords or a passage. Repeatable.",
)
@click.option("--intent", metavar="TEXT", help="Say why you ask, for vector search.")
@question_options
def search_command(
    *, query: str, trace: bool, transforms: tuple[str, ...], queries: tuple[str, ...], intent: str | None, given: Given
) -> None:
    """Search the index with keywords and vectors.

    Each result has a score relative to the best one, and its rank in vector and keyword search.

    In QUERY, "a phrase" must occur, -word at the end must not, path:docs/* and field:value filter. All else is text.
    If nothing has a phrase that a long sentence quotes, its words are searched for.
    """
    config = given.config()
    given.filters()  # a wrong filter fails before the index is opened
    with given.serve(config, with_queries=True) as service:
        from retrieval_core.adapters.registry import build_analyzer  # noqa: PLC0415 - while the model loads
        from retrieval_core.cli.render import print_result  # noqa: PLC0415 - likewise
        from retrieval_core.index.serialization import result_to_json  # noqa: PLC0415 - likewise
        from retrieval_core.service import searching  # noqa: PLC0415 - likewise

        result = service.call(
            searching.search,
            searching.SearchIndexRequest,
            **service.query(given, query),
            queries=tuple(map(_further_query, queries)) or None,
            intent=intent,
            transforms=transforms or None,
            with_trace=trace,
            with_fallback=not config.raise_on_error,
        )
    if given.as_json:
        print_json(result_to_json(result, with_trace=trace))
    else:
        analyzer = build_analyzer(config.analysis)
        print_result(result, analyzer, fusion=config.search.fusion, with_trace=trace, is_verbose=given.is_verbose)
    if "error" in result.metadata:
        raise SystemExit(FAILURE)


@click.command("grep")
@click.argument("pattern")
@click.argument("path", required=False)
@click.option("-i", "--ignore-case", is_flag=True, help="Ignore case.  [default: if PATTERN is lowercase]")
@click.option("-s", "--case-sensitive", is_flag=True, help="Match case.")
@click.option("-w", "--word-regexp", "word", is_flag=True, help="Match whole words only.")
@click.option(
    "-F", "--fixed-strings", "literal", is_flag=True, help="Take PATTERN as text, not as a regular expression."
)
@click.option("-C", "--context", default=0, metavar="LINES", help="Show lines around each match.  [default: 0]")
@click.option("-l", "--files-with-matches", "files_only", is_flag=True, help="Show only the paths.")
@click.option("-c", "--count", "counts", is_flag=True, help="Show paths with the number of matching lines.")
@click.option("-g", "--glob", metavar="GLOB", help="Search only these paths; the same as PATH.")
@click.option("--limit", default=1000, metavar="N", help="Limit the matching lines or paths.  [default: 1000]")
@click.option("--cursor", metavar="CURSOR", help="Continue from here; the previous output ends with it.")
@click.option("--filter", "filter_json", metavar="JSON", help='Filter by metadata, as {"price": {"$lte": 150}}.')
@index_options
def grep_command(
    *,
    pattern: str,
    path: str | None,
    ignore_case: bool,
    case_sensitive: bool,
    word: bool,
    literal: bool,
    context: int,
    files_only: bool,
    counts: bool,
    glob: str | None,
    limit: int,
    cursor: str | None,
    given: Given,
) -> None:
    r"""Search the indexed text for a regular expression.

    It finds lines in all documents, PDF and Word files too. PATH is a glob such as "docs/*.md", or a part of a path.
    Case is ignored if PATTERN has no uppercase letter.

    The syntax is that of RE2: without lookaround and backreferences; \d, \w, \s and \b are ASCII. The search takes at
    most a second; if it isn't done by then, it prints a cursor that continues it. Exit codes: 0 found, 1 not found.
    """
    from retrieval_core.cli.common import call_service  # noqa: PLC0415 - help and completion need none of this
    from retrieval_core.cli.render import print_matches  # noqa: PLC0415
    from retrieval_core.service.grep import GrepRequest, grep  # noqa: PLC0415

    if ignore_case and case_sensitive:
        msg = "Use --ignore-case or --case-sensitive, not both."
        raise click.UsageError(msg)
    if path and glob:
        msg = f"Give PATH or --glob, not both: {path} and {glob}."
        raise click.UsageError(msg)
    found = call_service(
        given,
        grep,
        GrepRequest,
        pattern=pattern,
        path=path or glob,
        filters=given.filters(),
        ignore_case=True if ignore_case else False if case_sensitive else None,
        word=word,
        literal=literal,
        context=context,
        output="files" if files_only else "counts" if counts else "lines",
        limit=limit,
        cursor=cursor,
    )
    if given.as_json:
        print_json(found)
    else:
        print_matches(found)
    if not found.documents:
        raise SystemExit(NOT_FOUND)


def _further_query(given: str) -> dict[str, str]:
    kind, equals, text = given.partition("=")
    if not equals or not text.strip() or kind not in KINDS:
        msg = f"--also: {given!r:.80} is not KIND=TEXT, with the kind {', '.join(KINDS)}"
        raise click.UsageError(msg)
    return {"kind": kind, "text": text}


@click.command("context")
@click.argument("query")
@click.option("--max-tokens", type=click.IntRange(1), help="Limit the context, in tokens.  [default: 12000]")
@click.option("--ledger", is_flag=True, help="Show which chunks were kept, shortened or dropped.")
@question_options
def context_command(*, query: str, max_tokens: int | None, ledger: bool, given: Given) -> None:
    """Print a context for a language model, within a token budget.

    The text goes to standard output. Its citations, verified against the index, go to standard error.
    """
    config = given.config(context__max_tokens=max_tokens)
    given.filters()  # a wrong filter fails before the index is opened
    with given.serve(config, with_queries=True) as service:
        from retrieval_core.cli.render import error_of, print_pack  # noqa: PLC0415 - while the model loads
        from retrieval_core.index.serialization import pack_to_json  # noqa: PLC0415 - likewise
        from retrieval_core.service import searching  # noqa: PLC0415 - likewise

        pack = service.call(searching.pack_context, searching.ContextRequest, **service.query(given, query))
        checks = _check_sources(service, pack.sources)
    if given.as_json:
        print_json(pack_to_json(pack, checks))
    else:
        print_pack(pack, checks, with_ledger=ledger, is_verbose=given.is_verbose)
    if error_of(pack) is not None or not all(check.matches for check in checks):
        raise SystemExit(FAILURE)


@click.command("answer")
@click.argument("query")
@click.option("--max-tokens", type=click.IntRange(1), help="Limit the context, in tokens.  [default: 12000]")
@click.option("--verify", is_flag=True, help="Verify each sentence a language model writes.")
@click.option("--prompt", metavar="TEXT", help="Replace the instructions to the language model.")
@click.option(
    "--history",
    "history_file",
    type=click.File("rb"),
    metavar="FILE",
    help="Read the conversation so far from a JSON file.",
)
@question_options
def answer_command(
    *,
    query: str,
    max_tokens: int | None,
    verify: bool,
    prompt: str | None,
    history_file: IO[bytes] | None,
    given: Given,
) -> None:
    """Answer a question from the index, with citations.

    A configured language model writes the answer. Without one, the answer is extracted from your documents. Citations
    are verified against the index. With --json, each event is one line.

    --history FILE is a JSON list of turns, oldest first: [{"role": "user", "content": "…"}].
    """
    options: dict[str, Any] = {"max_tokens": max_tokens, "verify": verify or None, "prompt": prompt}
    history = None if history_file is None else _read_json(history_file)
    try:
        config = given.config()
        given.filters()  # a wrong filter fails before the index is opened
        if config.llm.kind == "none" and prompt:
            warn("--prompt has no effect without a language model. Set llm.kind.")
        went_well = False
        with given.serve(config, with_queries=True) as service:
            from retrieval_core.cli.render import AnswerPrinter  # noqa: PLC0415 - while the model loads
            from retrieval_core.index.serialization import event_to_json  # noqa: PLC0415 - likewise
            from retrieval_core.pipeline.options import turns  # noqa: PLC0415 - likewise
            from retrieval_core.run.sync import in_step  # noqa: PLC0415 - likewise
            from retrieval_core.service import searching  # noqa: PLC0415 - likewise

            options["history"] = turns(history) or None
            request = read_request(searching.AnswerRequest, **service.query(given, query), **options)
            printer = AnswerPrinter(verify=verify or config.answer.verify, is_verbose=given.is_verbose)
            with closing(in_step(service.engine.sync, searching.answer_events(service.context, request))) as events:
                for event in events:
                    checks = None
                    if event.type == "done":
                        checks = _checked(service, event.answer)
                        went_well = _went_well(event.answer, checks)
                    if given.as_json:
                        print_json_line(event_to_json(event, checks))
                    elif event.type == "done":
                        printer.end(event.answer, checks)
                    else:
                        printer.take(event)
    except (RetrievalError, OSError) as error:
        if isinstance(error, BrokenPipeError) or not given.as_json:
            raise
        print_json_line({"type": "error", "stage": None, "error": type(error).__name__, "reason": str(error)})
        raise SystemExit(exit_code(error)) from error
    if not went_well:
        raise SystemExit(FAILURE)


def _read_json(file: IO[bytes]) -> Any:
    """Return a file's JSON, whose form is checked where it is used."""
    try:
        return json.loads(file.read())
    except (ValueError, RecursionError) as error:
        msg = f"--history: {file.name} is not a JSON list of turns: {error}"
        raise click.UsageError(msg) from error


def _check_sources(service: LocalService, sources: Iterable[Citation]) -> Sequence[CitationCheck]:
    """Return the checks of citations against the index."""
    from retrieval_core.service.searching import SourcesRequest, check_sources  # noqa: PLC0415 - help needs none

    return service.call(check_sources, SourcesRequest, sources=tuple(sources), indexes=service.names)


def _checked(service: LocalService, answer: Answer) -> Sequence[CitationCheck] | None:
    """Return the checks of an answer's sources against the index; ``None`` if that fails."""
    try:
        return _check_sources(service, answer.sources) if answer.sources else ()
    except RetrievalError:
        return None


def _went_well(answer: Answer, checks: Sequence[CitationCheck] | None) -> bool:
    """Whether an answer is complete, made from passages, and quotes what the index holds."""
    return answer.error is None and answer.pack is not None and all(check.matches for check in checks or ())
