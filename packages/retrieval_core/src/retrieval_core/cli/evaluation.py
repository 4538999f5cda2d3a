"""``retrieval evaluate``: measure retrieval on a collection with judgements."""

from __future__ import annotations

from pathlib import Path

import click

from retrieval_core.cli.common import common_options, ends_well, print_json, progress_bar, read_config


@click.command("evaluate")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="BEIR_FOLDER")
@click.option("--qrels", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Other judgements.")
@click.option("--run", "run_file", type=click.Path(path_type=Path, dir_okay=False), help="Write a TREC run here.")
@click.option("--limit", type=click.IntRange(min=1), help="Evaluate the first so many queries only.")
@click.option("--store", metavar="KIND", help="The same as --set store.kind=KIND.")
@click.option("--mode", metavar="MODE", help="The same as --set search.mode=MODE.")
@click.option("--fusion", metavar="METHOD", help="The same as --set search.fusion=METHOD.")
@common_options
@ends_well
def evaluate_command(
    *,
    folder: Path,
    qrels: Path | None,
    run_file: Path | None,
    limit: int | None,
    store: str | None,
    mode: str | None,
    fusion: str | None,
    config_file: str | None,
    assignments: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure retrieval on a collection in BEIR form.

    The folder holds corpus.jsonl, queries.jsonl and qrels/test.tsv. It is indexed into a temporary index with the
    settings given, so that they can be compared: try --fusion rrf, --mode lexical, --set chunking.max_tokens=256.
    """
    import asyncio  # noqa: PLC0415 - help and completion need none of this

    from retrieval_core.cli.render import print_evaluation  # noqa: PLC0415
    from retrieval_core.evaluate import evaluate, load_collection  # noqa: PLC0415

    config = read_config(config_file, assignments, store__kind=store, search__mode=mode, search__fusion=fusion)
    collection = load_collection(folder, qrels)
    with progress_bar("") as show:
        report = asyncio.run(evaluate(collection, config, limit=limit, on_progress=show, run_file=run_file))
    if as_json:
        print_json(report.to_json())
    else:
        print_evaluation(report, folder.name)
