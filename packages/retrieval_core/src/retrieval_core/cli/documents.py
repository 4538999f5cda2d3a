"""``retrieval list`` and ``retrieval remove``: the documents of an index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from retrieval_core.cli.common import index_options, print_json
from retrieval_core.cli.messages import count
from retrieval_core.errors import InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.cli.common import Given
    from retrieval_core.types import DocumentInfo

WIDEST = 60
"""Characters that a column is padded to at most."""


@click.command("list")
@click.option("--filter", "filter_json", metavar="JSON", help="List only documents that match this filter.")
@index_options
def list_command(*, given: Given) -> None:
    """List the documents in the index.

    Each line has the name, the number of chunks and the title.
    """
    from retrieval_core.index.open import open_index  # noqa: PLC0415 - help and completion need none of this
    from retrieval_core.types.filters import matches  # noqa: PLC0415

    condition = given.condition()
    with open_index(config=given.config()) as index:
        documents = [each for each in index.documents() if condition is None or matches(condition, _fields(each))]
    if given.as_json:
        print_json({"documents": [_to_json(each) for each in documents], "count": len(documents)})
        return
    _print_lines(documents)
    click.echo(f"{count(len(documents), 'document')}, {count(sum(each.chunks for each in documents), 'chunk')}")


@click.command("remove")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@index_options
def remove_command(*, names: tuple[str, ...], given: Given) -> None:
    """Remove documents from the index.

    NAME is a document as 'retrieval list' shows it, the path of a file, or a folder that ends with /. Files on disk are
    not deleted. If one name is unknown, nothing is removed.
    """
    from retrieval_core.index.open import open_index  # noqa: PLC0415 - help and completion need none of this

    with open_index(config=given.config()) as index:
        try:
            documents = index.find_documents(names)
        except InvalidParameterError as error:
            msg = f"{error} Nothing was removed."
            raise InvalidParameterError(msg) from error
        chunks = index.delete(each.id for each in documents)
    if given.as_json:
        removed = [{"id": each.id, "source": each.source, "chunks": each.chunks} for each in documents]
        print_json({"removed": removed, "count": len(removed), "chunks": chunks})
        return
    _print_lines(documents)
    click.echo(
        f"Removed {count(len(documents), 'document')}, {count(chunks, 'chunk')}. "
        "Files on disk stay; indexing them again adds them back."
    )


def _print_lines(documents: Sequence[DocumentInfo]) -> None:
    from retrieval_core.types.escapes import escape_name  # noqa: PLC0415 - for people only

    rows = [(escape_name(each.id), count(each.chunks, "chunk"), escape_name(each.title or "")) for each in documents]
    widths = [min(WIDEST, max((len(row[column]) for row in rows), default=0)) for column in range(2)]
    for name, chunks, title in rows:
        click.echo(f"{name:<{widths[0]}}  {chunks:>{widths[1]}}  {title}".rstrip())


def _fields(document: DocumentInfo) -> dict[str, Any]:
    """Return the fields that filters can name."""
    return {
        "document_id": document.id,
        "title": document.title,
        "source": document.source,
        "timestamp": document.timestamp.isoformat() if document.timestamp else None,
        **document.metadata,
    }


def _to_json(document: DocumentInfo) -> dict[str, Any]:
    return {
        "id": document.id,
        "title": document.title,
        "source": document.source,
        "chunks": document.chunks,
        "timestamp": document.timestamp.isoformat() if document.timestamp else None,
        "metadata": document.metadata,
    }
