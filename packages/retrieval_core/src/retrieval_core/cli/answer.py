"""``retrieval answer``: answer a question with citations, as a stream."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from retrieval_core.cli.common import exit_code, print_json_line, question_options, warn
from retrieval_core.cli.process import FAILURE
from retrieval_core.errors import RetrievalError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import IO

    from retrieval_core.cli.common import Given
    from retrieval_core.index.federated import FederatedIndex
    from retrieval_core.index.index import Index
    from retrieval_core.types import Answer, AnswerEvent, CitationCheck


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
    options: dict[str, Any] = {"max_tokens": max_tokens, "verify": verify or None, "prompt_override": prompt}
    options["history"] = None if history_file is None else _turns(history_file)
    try:
        config, condition = given.config(), given.condition()
        if config.llm.kind == "none" and prompt:
            warn("--prompt has no effect without a language model. Set llm.kind.")
        went_well = False
        with given.open(config) as index, closing(index.answer_stream(query, condition, **options)) as events:
            show = _print_line
            if not given.as_json:
                show = _text_printer(verify=verify or config.answer.verify, is_verbose=given.is_verbose)
            for event in events:
                checks = None
                if event.type == "done":
                    checks = _checked(index, event.answer)
                    went_well = _went_well(event.answer, checks)
                show(event, checks)
    except (RetrievalError, OSError) as error:
        if isinstance(error, BrokenPipeError) or not given.as_json:
            raise
        print_json_line({"type": "error", "stage": None, "error": type(error).__name__, "reason": str(error)})
        raise SystemExit(exit_code(error)) from error
    if not went_well:
        raise SystemExit(FAILURE)


def _turns(file: IO[bytes]) -> Any:
    """Return a file's JSON, whose form is checked where it is used."""
    try:
        return json.loads(file.read())
    except (ValueError, RecursionError) as error:
        msg = f"--history: {file.name} is not a JSON list of turns: {error}"
        raise click.UsageError(msg) from error


def _print_line(event: AnswerEvent, checks: Sequence[CitationCheck] | None) -> None:
    from retrieval_core.index.serialization import event_to_json  # noqa: PLC0415

    print_json_line(event_to_json(event, checks))


def _text_printer(*, verify: bool, is_verbose: bool) -> Callable[[AnswerEvent, Sequence[CitationCheck] | None], None]:
    """Return what prints text as it comes and its sources below it."""
    from retrieval_core.cli.render_answer import AnswerPrinter  # noqa: PLC0415

    printer = AnswerPrinter(verify=verify, is_verbose=is_verbose)

    def show(event: AnswerEvent, checks: Sequence[CitationCheck] | None) -> None:
        printer.take(event)
        if event.type == "done":
            printer.end(event.answer, checks)

    return show


def _checked(index: Index | FederatedIndex, answer: Answer) -> Sequence[CitationCheck] | None:
    """Return the checks of an answer's sources against the index; ``None`` where that fails."""
    try:
        return index.verify(answer.sources) if answer.sources else ()
    except RetrievalError:
        return None


def _went_well(answer: Answer, checks: Sequence[CitationCheck] | None) -> bool:
    """Whether an answer is complete, made from passages, and quotes what the index holds."""
    return answer.error is None and answer.pack is not None and all(check.matches for check in checks or ())
