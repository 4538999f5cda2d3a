"""``retrieval info``, ``verify``, ``list`` and ``remove``: the contents of an index."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retrieval_core.cli.common import (
    call_service,
    count,
    format_footer,
    index_options,
    print_json,
    print_table,
    say,
    warn,
)
from retrieval_core.cli.process import FAILURE
from retrieval_core.errors import InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.cli.common import Given
    from retrieval_core.ports import FieldInfo
    from retrieval_core.service.checking import IntegrityResponse
    from retrieval_core.types import DocumentInfo
    from retrieval_core.types.filters import Filter

MOST_FIELDS = 200
"""Fields of an index that are listed."""
UNVERIFIABLE = 2
"""Nothing differs, and for some chunks there is nothing to compare with."""


@click.command("info")
@index_options
def info_command(*, given: Given) -> None:
    """Show the size, embedder and metadata fields of the index."""
    from retrieval_core.adapters.registry import model_source  # noqa: PLC0415
    from retrieval_core.index.open import open_index  # noqa: PLC0415
    from retrieval_core.index.settings import sources_of  # noqa: PLC0415

    config = given.config()
    with open_index(config=config) as index:
        info = index.describe()
        store = index.store
        fields = index.sync.run(store.fields(MOST_FIELDS)) if "fields" in store.capabilities else None
    manifest = info.manifest
    facts: dict[str, Any] = {
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
        return
    shown = {_LABELS.get(name, name): _shown(fact) for name, fact in facts.items()}
    shown["size"] = f"{facts['bytes'] / 1024**2:,.1f} MB" if facts["bytes"] is not None else ""
    shown["not embedded yet"] = f"{info.unembedded:,}" if info.unembedded else ""
    shown["settings"] = "\n".join(f"from {source}: {', '.join(keys)}" for source, keys in sources.items())
    shown["fields"] = "\n".join(_field_line(name, field) for name, field in (fields or {}).items())
    lines = {name: text.split("\n") for name, text in shown.items() if text}
    print_table(("" if number else name, line) for name, text in lines.items() for number, line in enumerate(text))


_LABELS = {"unembedded": "not embedded yet", "unused_vectors": "unused vectors", "sides": "search", "bytes": "size"}
_SIDES = {"dense": "vector", "lexical": "keyword"}


def _shown(fact: str | int | list[str] | None) -> str:
    """Return a fact for people; blank for nothing."""
    if isinstance(fact, list):
        return ", ".join(_SIDES.get(each, each) for each in fact)
    return f"{fact:,}" if isinstance(fact, int) else fact or ""


def _field_line(name: str, info: FieldInfo) -> str:
    """Return a field with its types and how many chunks have it."""
    types = ", ".join(info.types if len(info.types) == 1 else (f"{kind} {n:,}" for kind, n in info.types.items()))
    return f"{' '.join(name.split())}: {types} ({info.passages:,})"


def size_of(path: Path) -> int | None:
    """Return the bytes of a file, or of all files in a folder; ``None`` where there is neither."""
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size if path.is_file() else None


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
    from retrieval_core.service.checking import IntegrityRequest, check_integrity  # noqa: PLC0415 - help needs none

    report = call_service(given, check_integrity, IntegrityRequest, sample=sample, seed=seed, repair=repair)
    if given.as_json:
        print_json(report.model_dump(mode="json"))
    else:
        _print_integrity(report)
    if code := {"clean": 0, "mismatch": FAILURE, "unverifiable": UNVERIFIABLE}[report.verdict]:
        raise SystemExit(code)


def _print_integrity(report: IntegrityResponse) -> None:
    """Print the differences between an index and its originals, and a line with the counts."""
    for chunk in report.mismatches:
        say(f"✗ {chunk.chunk_id}: {chunk.details}", fg="red")
    for document in report.differences:
        name = document.document_id or document.source
        told = f"✗ {name}: {document.details}" if name else f"✗ {document.details}"
        if (first := document.first_difference) is not None:
            told += f"; first difference at byte {first} ({document.stored_bytes} vs {document.original_bytes})"
        say(told, fg="red")
    if report.unverifiable:
        warn(f"{count(report.unverifiable, 'chunk')} not verifiable: neither the text nor the file is available")
    if report.unsealed:
        warn(
            f"{count(report.unsealed, 'chunk')} without checksums, written by an older version: vectors, pages and "
            "sections not verified"
        )
    if report.absent_sources:
        warn(f"{count(len(report.absent_sources), 'file')} no longer found: only the index's own copy was verified")
    found = len(report.mismatches) + len(report.differences)
    total = f"{count(report.documents, 'document')}, {count(report.chunks, 'chunk')} verified"
    repaired = f"{count(len(report.repaired), 'document')} repaired" if report.repaired else None
    differences = count(found, "difference") if found else "no differences"
    say(format_footer(total, differences, repaired, f"{report.seconds:.1f} s"))


@click.command("list")
@click.option("--filter", "filter_json", metavar="JSON", help="List only documents that match this filter.")
@index_options
def list_command(*, given: Given) -> None:
    """List the documents in the index.

    Each line has the name, the number of chunks and the title.
    """
    from retrieval_core.index.open import open_index  # noqa: PLC0415 - help and completion need none of this

    condition = given.condition()
    with open_index(config=given.config()) as index:
        documents = [each for each in index.documents() if _passes(each, condition)]
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

    print_table(
        (escape_name(each.id), count(each.chunks, "chunk"), escape_name(each.title or "")) for each in documents
    )


def _to_json(document: DocumentInfo) -> dict[str, Any]:
    return {
        "id": document.id,
        "title": document.title,
        "source": document.source,
        "chunks": document.chunks,
        "timestamp": document.timestamp.isoformat() if document.timestamp else None,
        "metadata": document.metadata,
    }


def _passes(document: DocumentInfo, condition: Filter | None) -> bool:
    from retrieval_core.types.filters import matches  # noqa: PLC0415 - help and completion need none of this

    listed = _to_json(document)
    fields = {name: listed[name] for name in ("title", "source", "timestamp")}
    return condition is None or matches(condition, {"document_id": document.id, **fields, **document.metadata})
