"""``retrieval info``, ``verify``, ``list`` and ``remove``: the contents of an index."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retrieval_core.cli.common import count, index_options, print_json
from retrieval_core.cli.process import FAILURE
from retrieval_core.errors import InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.cli.common import Given
    from retrieval_core.ports import FieldInfo
    from retrieval_core.types import DocumentInfo

MOST_FIELDS = 200
"""Fields of an index that are listed."""
UNVERIFIABLE = 2
"""Nothing differs, and for some chunks there is nothing to compare with."""


@click.command("info")
@index_options
def info_command(*, given: Given) -> None:
    """Show the size, embedder and metadata fields of the index."""
    from retrieval_core.adapters.registry import model_source  # noqa: PLC0415
    from retrieval_core.cli.render import print_facts  # noqa: PLC0415
    from retrieval_core.index.open import open_index  # noqa: PLC0415
    from retrieval_core.index.settings import sources_of  # noqa: PLC0415

    config = given.config()
    with open_index(config=config) as index:
        info = index.describe()
        store = index.store
        fields = index.sync.run(store.fields(MOST_FIELDS)) if "fields" in store.capabilities else None
    manifest = info.manifest
    facts = {
        "location": info.location,
        "documents": info.documents,
        "chunks": info.chunks,
        "unembedded": info.unembedded,
        "generation": info.generation,
        "embedder": manifest.embedder_id if manifest else None,
        "model": model_source(config.embedder),
        "dimension": manifest.dimension if manifest else None,
        "metric": manifest.metric if manifest else None,
        "analyzer": manifest.analyzer if manifest else None,
        "unused_vectors": list(manifest.vectors) if manifest else [],
        "sides": sorted(info.sides),
        "bytes": size_of(Path(info.location)),
    }
    sources = sources_of(config)
    if given.as_json:
        listed = None if fields is None else {name: asdict(field) for name, field in fields.items()}
        print_json({**facts, "settings": sources, "fields": listed})
    else:
        print_facts(_info_for_people({**facts, "settings": sources}, fields))


def _info_for_people(facts: Mapping[str, Any], fields: Mapping[str, FieldInfo] | None) -> dict[str, object]:
    """Return what is known of an index, by readable names."""
    sides = {"dense": "vector", "lexical": "keyword"}
    shown: dict[str, object] = {
        "location": facts["location"],
        "size": _megabytes(facts["bytes"]),
        "documents": f"{facts['documents']:,}",
        "chunks": f"{facts['chunks']:,}",
        "not embedded yet": f"{facts['unembedded']:,}" if facts["unembedded"] else None,
        "search": ", ".join(sides[side] for side in facts["sides"]),
        "embedder": facts["embedder"],
        "model": facts["model"],
        "dimension": facts["dimension"],
        "metric": facts["metric"],
        "analyzer": facts["analyzer"],
        "unused vectors": ", ".join(facts["unused_vectors"]),
        "generation": facts["generation"],
        "settings": "\n".join(f"from {source}: {', '.join(keys)}" for source, keys in facts["settings"].items()),
        "fields": None if fields is None else _in_lines(fields),
    }
    return {name: value for name, value in shown.items() if value not in (None, "")}


def _in_lines(fields: Mapping[str, FieldInfo]) -> str:
    """Return the fields of an index, one a line, each with its types and how many passages have it."""
    lines: list[str] = []
    for name, info in fields.items():
        types = ", ".join(info.types if len(info.types) == 1 else (f"{kind} {n:,}" for kind, n in info.types.items()))
        lines.append(f"{' '.join(name.split())}: {types} ({info.passages:,})")
    return "\n".join(lines)


def size_of(path: Path) -> int | None:
    """Return the bytes of a file, or of all files in a folder; ``None`` where there is neither."""
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size if path.is_file() else None


def _megabytes(size: Any) -> str | None:
    return None if size is None else f"{size / 1024**2:,.1f} MB"


@click.command("verify")
@click.option("--sample", type=click.IntRange(1), metavar="N", help="Verify N random documents.  [default: all]")
@click.option("--seed", type=int, metavar="N", help="Draw the same sample again with this seed.")
@click.option("--repair", is_flag=True, help="Repair differences, then verify again.")
@index_options
def verify_command(*, sample: int | None, seed: int | None, repair: bool, given: Given) -> None:
    """Verify that the index is undamaged and matches its files.

    It verifies text, fields, vectors and postings of each chunk, and files that changed. Exit codes: 0 no differences,
    1 differences, 2 no differences, but some chunks can't be verified.
    """
    from retrieval_core.cli.render import print_integrity  # noqa: PLC0415 - help and completion need none of this
    from retrieval_core.index.open import open_index  # noqa: PLC0415
    from retrieval_core.index.serialization import integrity_to_json  # noqa: PLC0415

    with open_index(config=given.config()) as index:
        report = index.check_integrity(sample=sample, seed=seed, repair=repair)
    if given.as_json:
        print_json(integrity_to_json(report))
    else:
        print_integrity(report)
    if code := {"clean": 0, "mismatch": FAILURE, "unverifiable": UNVERIFIABLE}[report.verdict]:
        raise SystemExit(code)


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
