"""``retrieval context``: what a language model should be shown to answer a question."""

from __future__ import annotations

import click

from retrieval_core.cli.asking import open_for_questions
from retrieval_core.cli.common import (
    common_options,
    ends_well,
    one_of,
    print_json,
    question_options,
    read_config,
)
from retrieval_core.cli.process import FAILURE


@click.command("context")
@click.argument("query")
@click.option("--max-tokens", type=click.IntRange(1), help="The budget.  [default: 12000]")
@click.option("--ledger", is_flag=True, help="Say of everything that was considered what became of it.")
@question_options
@common_options
@ends_well
def context_command(
    *,
    query: str,
    max_tokens: int | None,
    top_k: int | None,
    mode: str | None,
    filter_json: str | None,
    ledger: bool,
    index_files: tuple[str, ...],
    config_file: str | None,
    assignments: tuple[str, ...],
    as_json: bool,
) -> None:
    """Print what a language model should be shown to answer QUERY, within a token budget.

    The text goes to standard output, ready to be piped on; where each passage comes from, and whether its quotes still
    stand in the index, goes to standard error.
    """
    from retrieval_core.cli.render import print_pack  # noqa: PLC0415
    from retrieval_core.index.serialization import pack_to_json  # noqa: PLC0415
    from retrieval_core.types.filters.syntax import parse_filter  # noqa: PLC0415

    config = read_config(
        config_file,
        assignments,
        index=one_of(index_files),
        search__top_k=top_k,
        search__mode=mode,
        context__max_tokens=max_tokens,
    )
    condition = parse_filter(filter_json) if filter_json is not None else None
    with open_for_questions(config, index_files) as index:
        pack = index.context(query, condition)
        checks = index.verify(pack.sources)
    if as_json:
        print_json(pack_to_json(pack, checks))
    else:
        print_pack(pack, checks, with_ledger=ledger)
    if not all(check.matches for check in checks):
        raise SystemExit(FAILURE)
