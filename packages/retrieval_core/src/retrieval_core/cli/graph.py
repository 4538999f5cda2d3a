"""``retrieval graph``: the contents of the knowledge graph, and its facts for a question."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from retrieval_core.cli.common import index_options, print_json

if TYPE_CHECKING:
    from retrieval_core.adapters.graph import Facts, GraphQueryTranslator
    from retrieval_core.cli.common import Given
    from retrieval_core.ports import Transformed


@click.command("graph")
@click.argument("question", required=False)
@index_options
def graph_command(*, question: str | None, given: Given) -> None:
    """Show entities, facts and chunks of the knowledge graph.

    Without QUESTION, show the size of the graph. Name the graph with --set graph.file=FILE.
    """
    from retrieval_core.adapters.graph.knowledge import describe  # noqa: PLC0415 - help and completion need none of this
    from retrieval_core.adapters.registry import build_graph_translator  # noqa: PLC0415
    from retrieval_core.errors import ConfigurationError  # noqa: PLC0415
    from retrieval_core.index.open import open_index  # noqa: PLC0415

    config = given.config()
    with open_index(config=config) as index:
        translator = build_graph_translator(config.graph, index.store)
        if translator is None:
            msg = "no knowledge graph is configured. Name a file of triples: --set graph.file=FILE"
            raise ConfigurationError(msg, missing_keys=("graph.file",))
        try:
            run = index.sync.run
            if question is None:
                document: dict[str, Any] = describe(run(translator.graph()))
                if given.as_json:
                    print_json(document)
                else:
                    _print_counts(document)
                return
            facts, made = run(_asked(translator, question))
        finally:
            translator.close()
    if given.as_json:
        print_json(_to_json(facts, made))
    else:
        _print(facts, made)


async def _asked(translator: GraphQueryTranslator, question: str) -> tuple[Facts, Transformed]:
    from retrieval_core.ports import QueryContext  # noqa: PLC0415

    return await translator.facts(question), await translator.transform(question, QueryContext())


def _to_json(facts: Facts, made: Transformed) -> dict[str, Any]:
    return {
        "entities": list(facts.entities),
        "relations": list(facts.relations),
        "facts": [{**asdict(fact.triple), "score": fact.score} for fact in facts.facts],
        "chunks": [
            {"chunk_id": candidate.chunk_id, "score": candidate.score}
            for linked in made.linked
            for candidate in linked.candidates
        ],
        "searched_for": [variant.text for variant in made.variants],
    }


def _print_counts(document: dict[str, Any]) -> None:
    for name, count in document.items():
        click.echo(f"{name.replace('_', ' ')}: {count}")


def _print(facts: Facts, made: Transformed) -> None:
    click.echo(f"entities: {', '.join(facts.entities) or 'none'}")
    click.echo(f"relations: {', '.join(facts.relations) or 'none'}")
    for fact in facts.facts:
        place = fact.triple.chunk_id or fact.triple.document_id
        click.echo(f"  {fact.score:g}  {fact.triple}" + (f"  ({place})" if place else ""))
    for linked in made.linked:
        click.echo("chunks:")
        for candidate in linked.candidates:
            click.echo(f"  {candidate.score:.2f}  {candidate.chunk_id}")
    for variant in made.variants:
        click.echo(f"also searched: {variant.text}")
