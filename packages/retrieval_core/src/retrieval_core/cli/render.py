"""Terminal output: tables and highlighted passages."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, NoReturn

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from retrieval_core.pipeline.stages.excerpts import shown_text
from retrieval_core.run.observe.trace import explain
from retrieval_core.types import format_citation
from retrieval_core.types.escapes import CONTROLS, escape_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from retrieval_core.cli.probes import Finding
    from retrieval_core.evaluate import EvaluationReport, SettingsComparison
    from retrieval_core.ingest.report import IndexReport
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import (
        CitationCheck,
        ContextPack,
        EvaluationScores,
        Hit,
        IntegrityReport,
        RetrievalResult,
        Span,
    )

MOST_TYPES = 8
"""Suffixes of skipped files that are named; ``--json`` names all."""
EXCERPT = 600
MOST_FILES = 5
"""Files that a warning names."""
"""Most code points shown of a passage; ``--json`` gives all of it."""

_CONTROL = re.compile(rf"(?![\t\n])[{CONTROLS}]")
"""Characters that could steer a terminal, such as changing the writing direction, or cannot be printed."""

_SIGNS = {"ok": ("✓", "green"), "missing": ("-", "yellow"), "wrong": ("✗", "red")}


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError  # as every other output does; rich would end the process by itself


INCOMPLETE = "The search was incomplete, and what was searched has no results."


def console_of(*, stderr: bool = False) -> Console:
    """Return a console that breaks lines only on a terminal."""
    console = _Console(stderr=stderr)
    return console if console.is_terminal else _Console(width=10_000, stderr=stderr)


def harmless(text: str) -> str:
    """Return text with control characters shown as a replacement character, so that it cannot steer a terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def print_report(report: IndexReport, store: str | None) -> None:
    """Print the report of an indexing run.

    Args:
        store: The name of the store that was filled, if there is one.
    """
    console = console_of()
    counts = {name: getattr(report, name) for name in ("added", "updated", "unchanged", "removed")}
    console.print(
        f"{report.documents:,} document{'s' * (report.documents != 1)}, "
        f"{report.chunks:,} chunk{'s' * (report.chunks != 1)}{f' in {store}' * (store is not None)} "
        f"({report.seconds:.1f} s): " + ", ".join(f"{count:,} {name}" for name, count in counts.items()),
        highlight=False,
        markup=False,
    )
    for warning in _warnings(report):
        console.print(Text(harmless(f"! {warning}"), style="yellow"), soft_wrap=True)
    if report.failed:
        table = Table("File", "Why it was not read", title=f"{len(report.failed)} failed", title_justify="left")
        for file in report.failed:
            table.add_row(Text(harmless(file.path)), Text(harmless(file.error)))
        console.print(table)


def _warnings(report: IndexReport) -> Iterator[str]:
    if report.skipped_links:
        yield f"{report.skipped_links:,} symbolic links lead out of their folder and were skipped (--follow-links)"
    if report.ignored:
        told = f"{report.ignored:,} files and folders are excluded by .gitignore and were skipped (--no-ignore)"
        lost = f"; {report.removed_as_ignored:,} documents of theirs were removed from the index"
        yield told + lost * bool(report.removed_as_ignored)
    if report.empty:
        yield f"{report.empty:,} file{'s are' if report.empty > 1 else ' is'} empty"
    if report.skipped_types:
        yield _skipped_files(report.skipped_types)
    files: dict[str, list[str]] = {}
    for note in report.notes:
        files.setdefault(note.message, []).append(note.path)
    for message, paths in files.items():
        more = f" and {len(paths) - MOST_FILES:,} more" * (len(paths) > MOST_FILES)
        yield f"{', '.join(paths[:MOST_FILES])}{more}: {message}"


def _skipped_files(types: Mapping[str, int]) -> str:
    """Return how many files were skipped, by suffix, the most frequent ones by name.

    Args:
        types: How many have a suffix, the most frequent one first.
    """
    total, named = sum(types.values()), list(types.items())[:MOST_TYPES]
    counts = [f"{count:,} {suffix or 'without suffix'}" for suffix, count in named]
    counts += [f"{rest:,} others"] if (rest := total - sum(count for _, count in named)) else []
    return f"{total:,} file{'s' * (total != 1)} of types that are not read were skipped: {', '.join(counts)}"


def print_integrity(report: IntegrityReport) -> None:
    """Print what differs between an index and its originals, and a line with the counts."""
    console = console_of()
    for chunk in report.mismatches:
        console.print(Text(harmless(f"✗ {chunk.chunk_id}: {chunk.mismatch_details}"), style="red"), soft_wrap=True)
    for document in report.differences:
        name = document.document_id or document.source
        told = f"✗ {name}: {document.problem}" if name else f"✗ {document.problem}"
        if (parted := document.difference) is not None:
            told += f"; first difference at byte {parted.first} ({parted.stored_bytes} vs {parted.original_bytes})"
        console.print(Text(harmless(told), style="red"), soft_wrap=True)
    if report.unverifiable:
        count = report.unverifiable
        have = f"{count:,} chunk{'s have' if count != 1 else ' has'}"
        told = f"! {have} nothing to be compared with: neither a text that is kept nor a file"
        console.print(Text(told, style="yellow"), soft_wrap=True)
    if report.unsealed:
        told = (
            f"! an older version wrote {report.unsealed:,} chunk{'s' * (report.unsealed != 1)} without checksums: "
            "vectors, pages and sections could not be compared"
        )
        console.print(Text(told, style="yellow"), soft_wrap=True)
    if report.absent_sources:
        count = len(report.absent_sources)
        are, them = ("files are", "them") if count != 1 else ("file is", "it")
        told = f"! {count:,} {are} not there any more; what is kept of {them} was compared"
        console.print(Text(told, style="yellow"), soft_wrap=True)
    found = len(report.mismatches) + len(report.differences)
    told = f"{report.documents:,} document{'s' * (report.documents != 1)}, "
    told += f"{report.chunks:,} chunk{'s' * (report.chunks != 1)} compared: "
    told += f"{found:,} differ{'s' * (found == 1)}" if found else "none differs"
    if report.repaired:
        told += f", {len(report.repaired):,} document{'s' * (len(report.repaired) != 1)} repaired"
    console.print(Text(f"{told} ({report.seconds:.1f} s)"), soft_wrap=True)


def print_result(result: RetrievalResult, analyzer: Analyzer, *, with_trace: bool = False) -> None:
    """Print hits, best first, each with its source and the words of the question highlighted.

    Args:
        analyzer: Finds the words of the question in a passage.
        with_trace: Whether the table of :func:`explain` follows.
    """
    console = console_of()
    error = None if result.hits else result.metadata.get("error")
    for entry in result.degraded:
        if entry.reason != error:
            console.print(Text(f"! {entry.stage}: {entry.reason}", style="yellow"))
    if result.relevance is not None and (notes := result.relevance.notes):
        console.print(Text(harmless("\n".join(notes)), style="yellow"), soft_wrap=True)
    if error is not None:
        console_of(stderr=True).print(Text(harmless(f"Error: {error}"), style="red"))
    elif not result.hits:
        nothing = INCOMPLETE if result.degraded else "Nothing was found."
        console.print(Text(harmless(str(result.metadata.get("note") or nothing))))
    for rewrite in result.rewrites:
        console.print(Text(harmless(f"searched for {rewrite.rewritten_query!r} too"), style="dim"))
    for rank, hit in enumerate(result.hits, start=1):
        console.print(_heading(rank, hit))
        excerpt = _excerpt(analyzer.highlight_spans(result.query, shown := shown_text(hit)), shown)
        # Indented, so that no line of it can pass for a heading.
        console.print(Text("\n").join(Text.assemble("    ", line) for line in excerpt.split("\n", allow_blank=True)))
        console.print()
    if result.evaluation is not None:
        console.print(Text(_scores(result.evaluation), style="dim"), soft_wrap=True)
    count = len(result.hits)
    console.print(Text(f"{count} passage{'s' * (count != 1)} in {result.latency_ms:.0f} ms", style="dim"))
    if with_trace:
        console.print(Text(explain(result)))


def _scores(evaluation: EvaluationScores) -> str:
    """Return both scores on one line, each with how it was computed, or why not."""
    scores = {name: getattr(evaluation, name) for name in ("context_precision", "response_relevancy")}
    told: list[str] = []
    for name, score in scores.items():
        method = evaluation.methods.get(name)
        told.append(f"{name} {'-' if score is None else f'{score:.3f}'}" + (f" ({method})" if method else ""))
    return harmless(", ".join(told))


def _heading(rank: int, hit: Hit) -> Text:
    chunk, scores = hit.chunk, hit.scores
    line = Text.assemble((f"{rank}. ", "bold"), (escape_name(chunk.document_id), "bold cyan"))
    if hit.source_index is not None:
        line.append(f" in {escape_name(hit.source_index)}", "cyan")
    if chunk.page_span:
        first, last = chunk.page_span.first, chunk.page_span.last
        line.append(f", page {first}" if first == last else f", pages {first}-{last}", "cyan")
    headings = chunk.section_path or ((chunk.title,) if chunk.title else ())
    if headings:
        line.append(f" > {' > '.join(map(escape_name, headings))}", "cyan")
    found = [
        f"dense {scores.dense:.3f}" if scores.dense is not None else "",
        f"lexical {_lexical(scores.lexical)}" if scores.lexical is not None else "",
    ]
    line.append(f"  ({', '.join(filter(None, found))})", "dim")
    return line


def _lexical(score: float) -> str:
    """Return a score with two decimals; one that would round to zero as ``<0.01``."""
    return "<0.01" if 0 < score < 0.01 else f"{score:.2f}"


def _excerpt(spans: Sequence[Span], passage: str) -> Text:
    """Return the part of a passage around the first words of the question, with all of them highlighted."""
    start = max(0, spans[0].start - EXCERPT // 4) if spans and len(passage) > EXCERPT else 0
    start = passage.rfind(" ", 0, start) + 1 if start else 0
    end = start + EXCERPT
    if end < len(passage):
        end = max(start + EXCERPT // 2, passage.rfind(" ", start, end))
    text = Text(harmless(passage[start:end]))
    for span in spans:
        text.stylize("bold yellow", max(0, span.start - start), max(0, span.end - start))
    before, after = "… " if start else "", " …" if end < len(passage) else ""
    return Text.assemble(before, text, after)


def print_pack(pack: ContextPack, checks: Sequence[CitationCheck], *, with_ledger: bool = False) -> None:
    """Print a context on standard output, and its citations and degradations on standard error.

    Args:
        checks: Of the pack's citations, in their order.
        with_ledger: Whether a table of the ledger follows.
    """
    click.echo(harmless(pack.context_pack) if sys.stdout.isatty() else pack.context_pack)
    console = console_of(stderr=True)
    error = error_of(pack)
    for entry in pack.degraded:
        if entry.reason != error:
            console.print(Text(harmless(f"! {entry.stage}: {entry.reason}"), style="yellow"))
    if error is not None:
        console.print(Text(harmless(f"Error: {error}"), style="red"))
    elif pack.note or not pack.passages:
        console.print(Text(harmless(pack.note or "Nothing was found."), style="yellow"), soft_wrap=True)
    for passage, check in zip(pack.passages, checks, strict=True):
        line = f"[{passage.citation.number}] {format_citation(passage.citation)}  "
        size = f"({passage.role.replace('_', ' ')}, {passage.tokens} tokens{', shortened' * passage.shortened})"
        console.print(Text.assemble((harmless(line), "cyan"), (size, "dim")), soft_wrap=True)
        for difference in check.differences:
            console.print(Text(harmless(f"    {difference}"), style="red"), soft_wrap=True)
    if with_ledger:
        table = Table("Chunk", "Role", "Outcome", "Why")
        for item in pack.ledger:
            where = f"{item.outcome} in [{item.passage}]" if item.passage is not None else item.outcome
            table.add_row(Text(harmless(item.id)), item.role.replace("_", " "), where, Text(harmless(item.reason)))
        console.print(table)
    held = sum(check.matches for check in checks)
    told = (
        f"{len(pack.passages)} passages, {pack.token_count:,} of {pack.max_tokens:,} tokens, "
        f"{held} of {len(checks)} citations match the index, {pack.latency_ms:.0f} ms"
    )
    console.print(Text(told, style="dim"))


def error_of(pack: ContextPack) -> str | None:
    """Return why a context is empty, where a part that failed is the reason."""
    reasons = {entry.reason for entry in pack.degraded}
    return pack.note if not pack.passages and pack.note in reasons else None


def print_evaluation(report: EvaluationReport, name: str) -> None:
    """Print an evaluation's measures."""
    table = Table("Measure", "Value", title=name, title_justify="left")
    for key, value in report.to_json().items():
        if isinstance(value, dict):
            for inner, figure in value.items():
                table.add_row(f"{key} {inner}", f"{figure:.1f}")
        else:
            shown = "-" if value is None else str(value)
            table.add_row(key, f"{value:.4f}" if isinstance(value, float) else shown)
    console_of().print(table)


def print_comparison(comparison: SettingsComparison, name: str) -> None:
    """Print the measures of several configurations, a line each."""
    table = Table(title=name, title_justify="left")
    table.add_column("Settings")
    for header in ("nDCG@10", "recall@10", "ms a question", "index", "difference of nDCG@10 (95 %)"):
        table.add_column(header, justify="right")
    for each in comparison.compared:
        report, difference = each.report, "" if each.difference is None else f"{each.difference:+.4f}"
        if each.low is not None:
            difference += f" ({each.low:+.4f} to {each.high:+.4f})"
        table.add_row(
            Text(harmless(each.name)),
            f"{report.ndcg_at_10:.4f}",
            f"{report.recall_at_10:.4f}",
            f"{report.latency_p50_ms:.1f}",
            "-" if report.index_bytes is None else f"{report.index_bytes / 1e6:,.1f} MB",
            difference,
        )
    console = console_of()
    console.print(table)
    for failed, reason in comparison.failed.items():
        console.print(Text(harmless(f"! {failed} could not be evaluated: {reason}")), soft_wrap=True)


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names and values."""
    table = Table(show_header=False)
    for name, value in facts.items():
        table.add_row(name, Text(harmless("-" if value is None else str(value))))
    console_of().print(table)


def print_findings(findings: Sequence[Finding]) -> None:
    """Print findings, each with a sign for its verdict."""
    console = console_of()
    for finding in findings:
        sign, colour = _SIGNS[finding.verdict]
        line = Text.assemble((sign, f"bold {colour}"), " ", (finding.subject, "bold"), ": ", harmless(finding.detail))
        console.print(line, soft_wrap=True)
