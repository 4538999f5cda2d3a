"""``retrieval info``, ``verify``, ``list`` and ``remove``: the contents of an index."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from retrieval_core.cli.common import (
    call_service,
    count,
    format_footer,
    index_options,
    json_option,
    print_error,
    print_json,
    print_table,
    progress_bar,
    say,
    warn,
)
from retrieval_core.cli.process import FAILURE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from retrieval_core.cli.common import Given
    from retrieval_core.service.checking import IntegrityResponse
    from retrieval_core.service.managing import DocumentRecord, FieldCounts, RemovedDocument
    from retrieval_core.types import CopyProgress

UNVERIFIABLE = 2
"""Nothing differs, and for some chunks there is nothing to compare with."""


@click.command("info")
@index_options
def info_command(*, given: Given) -> None:
    """Show the size, embedder and metadata fields of the index."""
    from retrieval_core.service.contents import IndexRequest  # noqa: PLC0415 - help and completion need none of this
    from retrieval_core.service.managing import describe_details  # noqa: PLC0415 - likewise

    details = call_service(given, describe_details, IndexRequest)
    if given.as_json:
        print_json(details)
        return
    facts: dict[str, Any] = {name: getattr(details, name) for name in type(details).model_fields}
    shown = {_LABELS.get(name, name): _shown(fact) for name, fact in facts.items() if not isinstance(fact, dict)}
    shown["size"] = f"{details.bytes / 1024**2:,.1f} MB" if details.bytes is not None else ""
    shown["not embedded yet"] = f"{details.unembedded:,}" if details.unembedded else ""
    shown["settings"] = "\n".join(f"from {source}: {', '.join(keys)}" for source, keys in details.settings.items())
    shown["fields"] = "\n".join(_field_line(name, each) for name, each in (details.fields or {}).items())
    lines = {name: text.split("\n") for name, text in shown.items() if text}
    print_table(("" if number else name, line) for name, text in lines.items() for number, line in enumerate(text))


_LABELS = {"unembedded": "not embedded yet", "unused_vectors": "unused vectors", "sides": "search", "bytes": "size"}
_SIDES = {"dense": "vector", "lexical": "keyword"}


def _shown(fact: str | int | tuple[str, ...] | None) -> str:
    """Return a fact for people; blank for nothing."""
    if isinstance(fact, tuple):
        return ", ".join(_SIDES.get(each, each) for each in fact)
    return f"{fact:,}" if isinstance(fact, int) else fact or ""


def _field_line(name: str, info: FieldCounts) -> str:
    """Return a field with its types and how many chunks have it."""
    types = ", ".join(info.types if len(info.types) == 1 else (f"{kind} {n:,}" for kind, n in info.types.items()))
    return f"{' '.join(name.split())}: {types} ({info.passages:,})"


@click.command("verify")
@click.argument("name", required=False)
@click.option("--quote", metavar="TEXT", help="Verify that NAME contains this quote.")
@click.option("--sample", type=click.IntRange(1), metavar="N", help="Verify N random documents.  [default: all]")
@click.option("--seed", type=int, metavar="N", help="Draw the same sample again with this seed.")
@click.option("--repair", is_flag=True, help="Repair differences, then verify again.")
@index_options
def verify_command(
    *, name: str | None, quote: str | None, sample: int | None, seed: int | None, repair: bool, given: Given
) -> None:
    """Verify a quote, or the index against its files.

    With --quote, NAME is a path with lines (guide.md:120-160), a path or the ID of a chunk. If the quote is elsewhere
    in the document, its lines are printed.

    Without NAME, it verifies text, fields, vectors and postings of each chunk, and files that changed. Exit codes: 0 no
    differences, 1 differences, 2 no differences, but some chunks can't be verified.
    """
    if name is not None or quote is not None:
        if name is None or quote is None:
            msg = "a quote is verified with both: retrieval verify guide.md:120-160 --quote TEXT"
            raise click.UsageError(msg)
        _verify_quote(given, name, quote)
        return
    from retrieval_core.service.checking import IntegrityRequest, check_integrity  # noqa: PLC0415 - help needs none

    report = call_service(given, check_integrity, IntegrityRequest, sample=sample, seed=seed, repair=repair)
    if given.as_json:
        print_json(report)
    else:
        _print_integrity(report)
    if code := {"clean": 0, "mismatch": FAILURE, "unverifiable": UNVERIFIABLE}[report.verdict]:
        raise SystemExit(code)


def _verify_quote(given: Given, name: str, quote: str) -> None:
    from retrieval_core.service.checking import QuoteRequest, verify_quote  # noqa: PLC0415 - help needs none

    response = call_service(given, verify_quote, QuoteRequest, id=name, quote=quote)
    is_there = response.is_cited
    if given.as_json:
        print_json(response)
    elif is_there:
        say(f"✓ {response.location} contains the quote ({response.verdict})", fg="green")
    elif response.verdict == "not_found":
        say(f"✗ The document of {name} doesn't contain the quote", fg="red")
    else:
        say(f"✗ {name} doesn't contain the quote; {response.location} does ({response.verdict})", fg="red")
    if response.file_changed:
        warn("The file was changed after it was indexed: these are the lines of then")
    if not is_there:
        raise SystemExit(FAILURE)


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


@click.command("fetch")
@click.argument("names", nargs=-1, required=True)
@click.option("--lines-around", type=click.IntRange(0), default=0, help="Add N lines before and after.  [default: 0]")
@index_options
def fetch_command(*, names: tuple[str, ...], lines_around: int, given: Given) -> None:
    """Print the text of chunks, documents or lines.

    NAMES are IDs, paths, paths with lines (guide.md:120-160) or pages (guide.pdf:p2-3), or globs (docs/**/*.md).
    Lines are those of the indexed text. Each text has its path and lines above it.
    """
    from retrieval_core.service.passages import PassagesRequest, read_passages  # noqa: PLC0415 - help needs none

    response = call_service(given, read_passages, PassagesRequest, ids=names, lines_around=lines_around)
    if given.as_json:
        print_json(response)
    else:
        for number, passage in enumerate(response.passages):
            if passage.error is not None:
                warn(passage.error)
                continue
            say("\n" * (number > 0) + (passage.location or passage.id), fg="cyan")
            if passage.file_changed:
                warn(f"{passage.source} was changed after it was indexed: these are the lines of then")
            say(passage.text)
        if response.omitted:
            warn(f"{count(response.omitted, 'document')} more not shown: use a narrower glob")
    if any(passage.error is not None for passage in response.passages):
        raise SystemExit(FAILURE)


@click.command("list")
@click.argument("path", required=False)
@click.option("--filter", "filter_json", metavar="JSON", help="List only documents that match this filter.")
@index_options
def list_command(*, path: str | None, given: Given) -> None:
    """List the documents in the index, or the sections of one.

    Each line has the name of a document, the number of chunks and the title. With PATH, a document, each line has the
    lines or pages of a section and its title.
    """
    if path is not None:
        _print_outline(given, path)
        return
    from retrieval_core.service.managing import FindRequest, find_documents  # noqa: PLC0415 - help needs none of this

    found = call_service(given, find_documents, FindRequest, filters=given.filters())
    if given.as_json:
        print_json(found)
        return
    if found.note is not None:
        warn(found.note)
    _print_lines(found.documents)
    click.echo(f"{count(found.count, 'document')}, {count(sum(each.chunks for each in found.documents), 'chunk')}")


@click.command("remove")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@index_options
def remove_command(*, names: tuple[str, ...], given: Given) -> None:
    """Remove documents from the index.

    NAME is a document as 'retrieval list' shows it, the path of a file, or a folder that ends with /. Files on disk are
    not deleted. If one name is unknown, nothing is removed.
    """
    from retrieval_core.service.managing import RemoveNamedRequest, remove_named  # noqa: PLC0415 - help needs none

    removal = call_service(given, remove_named, RemoveNamedRequest, names=names)
    if given.as_json:
        print_json(removal)
        return
    _print_lines(removal.removed)
    click.echo(
        f"Removed {count(removal.count, 'document')}, {count(removal.chunks, 'chunk')}. "
        "Files on disk stay; indexing them again adds them back."
    )


@click.command("copy")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@json_option
def copy_command(*, source: str, target: str, given: Given) -> None:
    """Copy an index to another store without embedding again.

    FROM and TO are index files such as .retrieval/index.db, or .toml files with settings. TO must be empty. Afterwards
    both are compared. If the command is interrupted, run it again to continue.
    """
    from dataclasses import asdict  # noqa: PLC0415 - help needs none of this

    from retrieval_core.errors import RetrievalError  # noqa: PLC0415 - likewise
    from retrieval_core.index.copying import copy_index  # noqa: PLC0415 - likewise
    from retrieval_core.index.settings import load_settings_of  # noqa: PLC0415 - likewise

    has_written = False
    origin, destination = (load_settings_of(place, os.environ) for place in (source, target))
    for config in (origin, destination):
        for warning in config.provenance.warnings if config.provenance is not None else ():
            warn(warning)
    with progress_bar() as show:

        def on_progress(progress: CopyProgress) -> None:
            nonlocal has_written
            has_written = True
            step = "Copying" if progress.step == "copy" else "Verifying"
            show(f"{step} ({progress.chunks:,} chunks)", progress.done, progress.total)

        try:
            report = copy_index(origin, destination, on_progress)
        except (RetrievalError, OSError):
            if has_written:
                print_error("The copy is not complete. Run the same command again to continue it.")
            raise
    if given.as_json:
        print_json(asdict(report))
        return
    counts = f"{count(report.documents, 'document')}, {count(report.chunks, 'chunk')} copied to {report.target}"
    vectors = f"{count(report.rounded, 'vector')} rounded by up to {report.largest_difference:.1g}"
    say(format_footer(counts, "no differences", vectors if report.rounded else None, f"{report.seconds:.1f} s"))
    say(f"Checksum {report.checksum}")
    for note in report.notes:
        warn(note)


def _print_outline(given: Given, path: str) -> None:
    from retrieval_core.service.outline import OutlineRequest, outline  # noqa: PLC0415 - help needs none of this
    from retrieval_core.types.documents import format_range  # noqa: PLC0415 - likewise
    from retrieval_core.types.escapes import escape_name  # noqa: PLC0415 - likewise

    if given.filters() is not None:
        msg = f"--filter lists documents, and {path!r:.80} is one. Leave one of them out."
        raise click.UsageError(msg)
    found = call_service(given, outline, OutlineRequest, id=path)
    if given.as_json:
        print_json(found)
        return
    say(escape_name(found.id))
    print_table(
        (
            format_range(*each.lines) if each.lines else f"p. {format_range(*each.pages)}" if each.pages else "",
            "  " * (each.level - 1) + escape_name(each.title or "(no heading)"),
        )
        for each in found.sections
    )


def _print_lines(documents: Iterable[DocumentRecord | RemovedDocument]) -> None:
    from retrieval_core.types.escapes import escape_name  # noqa: PLC0415 - for people only

    print_table(
        (escape_name(each.id), count(each.chunks, "chunk"), escape_name(each.title or "")) for each in documents
    )
