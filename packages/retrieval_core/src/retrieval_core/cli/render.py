"""Terminal output of all commands but ``answer`` and ``suite``: results, contexts, reports and tables."""

from __future__ import annotations

import sys
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from retrieval_core.cli.common import (
    count,
    count_verified,
    format_footer,
    format_seconds,
    harmless,
    print_error,
    warn,
    warn_degraded,
)
from retrieval_core.config.remembered import left_out, names_code
from retrieval_core.index.settings import FILE_NAME, find_settings_file, remembered_settings
from retrieval_core.pipeline.stages.format import shown_text
from retrieval_core.run.observe.observer import explain
from retrieval_core.types import format_citation
from retrieval_core.types.escapes import escape_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from retrieval_core.cli.doctor import Finding
    from retrieval_core.config import RetrievalConfig
    from retrieval_core.evaluate import EvaluationReport
    from retrieval_core.ingest.report import IndexReport
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import (
        CitationCheck,
        ContextPack,
        EvaluationScores,
        Hit,
        IntegrityReport,
        Relevance,
        RetrievalResult,
        Scores,
        Span,
    )

MOST_TYPES = 8
"""Suffixes of skipped files that are named; ``--json`` names all."""
MOST_FILES = 5
"""Files that a warning names."""
EXCERPT = 600
"""Most code points shown of a chunk; ``--json`` gives all of it."""
SCORE_NOTE = (
    "Score: how near a result's ranking score is to that of the best result, which has 1.00; not a probability, and "
    "not comparable between queries."
)

_SIGNS = {"ok": ("✓", "green"), "missing": ("-", "yellow"), "wrong": ("✗", "red")}


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError  # as every other output does; rich would end the process by itself


INCOMPLETE = "No results, but the search was incomplete."


def console_of(*, stderr: bool = False) -> Console:
    """Return a console that breaks lines only on a terminal."""
    console = _Console(stderr=stderr)
    return console if console.is_terminal else _Console(width=10_000, stderr=stderr)


def print_report(report: IndexReport, store: str | None) -> None:
    """Print the report of an indexing run; its warnings and errors go to standard error.

    Args:
        store: The name of the store that was filled, if there is one.
    """
    counts = [
        f"{number:,} {name}"
        for name in ("added", "updated", "removed", "unchanged")
        if (number := getattr(report, name))
    ]
    total = f"{count(report.documents, 'document')}, {count(report.chunks, 'chunk')}"
    total += f" in {store}" if store is not None else ""
    _print_line(console_of(), format_footer(total, *counts, f"{report.seconds:.1f} s"))
    for warning in _warnings(report):
        warn(warning)
    for file in report.failed:
        print_error(f"{file.path}: {file.error}")


def _print_line(console: Console, line: str, style: str = "") -> None:
    console.print(Text(harmless(line), style=style), soft_wrap=True)


def _warnings(report: IndexReport) -> Iterator[str]:
    if links := report.skipped_links:
        lead = "leads out of its folder" if links == 1 else "lead out of their folders"
        yield f"{count(links, 'symbolic link')} skipped: {lead}. To follow: --follow-links."
    if report.ignored:
        told = f"{report.ignored:,} skipped by .gitignore (files and folders). To index: --no-ignore."
        if report.removed_as_ignored:
            told += f" Removed from the index: {count(report.removed_as_ignored, 'document')}."
        yield told
    if report.empty:
        yield f"{count(report.empty, 'empty file')} skipped"
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
    counts = [f"{number:,} {suffix or 'without suffix'}" for suffix, number in named]
    counts += [f"{rest:,} others"] if (rest := total - sum(number for _, number in named)) else []
    return f"{count(total, 'file')} of unsupported types skipped: {', '.join(counts)}"


def print_integrity(report: IntegrityReport) -> None:
    """Print the differences between an index and its originals, and a line with the counts."""
    console = console_of()
    for chunk in report.mismatches:
        _print_line(console, f"✗ {chunk.chunk_id}: {chunk.mismatch_details}", "red")
    for document in report.differences:
        name = document.document_id or document.source
        told = f"✗ {name}: {document.problem}" if name else f"✗ {document.problem}"
        if (parted := document.difference) is not None:
            told += f"; first difference at byte {parted.first} ({parted.stored_bytes} vs {parted.original_bytes})"
        _print_line(console, told, "red")
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
    _print_line(console, format_footer(total, differences, repaired, f"{report.seconds:.1f} s"))


def print_result(
    result: RetrievalResult,
    analyzer: Analyzer,
    *,
    fusion: str = "",
    with_trace: bool = False,
    is_verbose: bool = False,
) -> None:
    """Print results, best first, each with its source, score and ranks, and the words of the query highlighted.

    Args:
        analyzer: Finds the words of the query in a chunk.
        fusion: The configured method.
        with_trace: Whether the table of :func:`explain` follows.
        is_verbose: Whether raw scores and explanations are printed too.
    """
    console = console_of()
    _print_problems(result)
    sides = _searched_sides(result)
    for rank, (hit, score) in enumerate(zip(result.hits, relative_scores(result.hits), strict=True), start=1):
        console.print(_heading(rank, hit, score, sides), soft_wrap=True)
        if is_verbose:
            _print_line(console, f"    Raw scores: {_raw_scores(hit.scores)}", "dim")
        excerpt = _excerpt(analyzer.highlight_spans(result.query, shown := shown_text(hit)), shown)
        # Indented, so that no line of it can pass for a heading.
        console.print(Text("\n").join(Text.assemble("    ", line) for line in excerpt.split("\n", allow_blank=True)))
        console.print()
    if result.evaluation is not None:
        _print_line(console, _scores(result.evaluation), "dim")
    for line in _explanations(result, fusion) if is_verbose else ():
        _print_line(console, line, "dim")
    _print_line(console, format_footer(count(len(result.hits), "result"), format_seconds(result.latency_ms)), "dim")
    if with_trace:
        console.print(Text(explain(result)))


def _print_problems(result: RetrievalResult) -> None:
    """Print what did not work, and why there are no results."""
    error = None if result.hits else result.metadata.get("error")
    note = None if result.hits else result.metadata.get("note")
    printed = error or note
    warn_degraded(result.degraded, besides=None if printed is None else str(printed))
    for told in () if result.relevance is None else result.relevance.notes:
        warn(told)
    if error is not None:
        print_error(str(error))
    elif not result.hits:
        _print_line(console_of(), str(note or (INCOMPLETE if result.degraded else "No results.")))


def relative_scores(hits: Sequence[Hit]) -> list[float]:
    """Return how near each hit's ranking score is to the best one's, which has 1; the order stays, and none is 0.

    Ranking scores have a scale of their own for each way of fusing and reranking, some with negative values, so that
    they can't be shown as they are. The distance to the best one is taken in units of the best one itself or, if that
    is larger, of the distance of the last one.
    """
    if not hits:
        return []
    values = [hit.score for hit in hits]
    best = max(values)
    unit = max(abs(best), best - min(values)) or 1.0
    return [1 / (1 + (best - value) / unit) for value in values]


def _searched_sides(result: RetrievalResult) -> Collection[str]:
    """Return the sides whose ranks are shown: those that ranked something, and that were searched without success."""
    ranked = {side for side in ("dense", "lexical") if any(getattr(hit.scores, f"{side}_rank") for hit in result.hits)}
    if not ranked or result.metadata.get("mode") != "hybrid":
        return ranked
    failed = {entry.stage for entry in result.degraded}
    return ranked | {"dense", "lexical"} - failed - ({"dense"} if "embed" in failed else set[str]())


def _scores(evaluation: EvaluationScores) -> str:
    """Return both scores on one line, each with how it was computed, or why not."""
    scores = {name: getattr(evaluation, name) for name in ("context_precision", "response_relevancy")}
    told: list[str] = []
    for name, score in scores.items():
        method = evaluation.methods.get(name)
        told.append(f"{name} {'-' if score is None else f'{score:.3f}'}" + (f" ({method})" if method else ""))
    return ", ".join(told)


def _explanations(result: RetrievalResult, fusion: str) -> Iterator[str]:
    """Yield how the results, their scores and the relevance came about."""
    for rewrite in result.rewrites:
        yield f"Also searched: {rewrite.rewritten_query}"
    if result.hits:
        yield SCORE_NOTE
        yield "Raw scores: vector is a cosine from 0 to 1, keyword is BM25 without an upper limit."
    if any(hit.scores.fused is not None for hit in result.hits):
        yield f"Fusion: {fusion} (search.fusion) combines vector and keyword scores."
    if result.relevance is not None and (told := explain_relevance(result.relevance)) is not None:
        yield told


def explain_relevance(relevance: Relevance) -> str | None:
    """Return a relevance with what it means and how it was computed; ``None`` if there is none."""
    if relevance.value is None:
        return None
    told = f"Relevance {relevance.value:.2f}: estimated probability that the results answer the query."
    return f"{told} {' '.join(relevance.explanation.split())}".strip()


def _heading(rank: int, hit: Hit, score: float, sides: Collection[str]) -> Text:
    chunk = hit.chunk
    line = Text.assemble((f"{rank}. ", "bold"), (escape_name(chunk.document_id), "bold cyan"))
    if hit.source_index is not None:
        line.append(f" in {escape_name(hit.source_index)}", "cyan")
    if chunk.page_span:
        first, last = chunk.page_span.first, chunk.page_span.last
        line.append(f", page {first}" if first == last else f", pages {first}-{last}", "cyan")
    headings = chunk.section_path or ((chunk.title,) if chunk.title else ())
    if headings:
        line.append(f" > {' > '.join(map(escape_name, headings))}", "cyan")
    ranks = [
        f"{name} #{place}" if (place := getattr(hit.scores, f"{side}_rank")) else f"{name} –"  # noqa: RUF001
        for side, name in (("dense", "vector"), ("lexical", "keyword"))
        if side in sides
    ]
    if not (hit.scores.dense_rank or hit.scores.lexical_rank):
        ranks += [f"via {harmless(kind)}" for kind in dict.fromkeys(origin.kind for origin in hit.found_by)]
    line.append(f"   {' · '.join([f'score {score:.2f}', *ranks])}", "dim")
    return line


def _raw_scores(scores: Scores) -> str:
    """Return all scores that a hit has, by the names of their stages."""
    named = {
        "vector": scores.dense,
        "keyword": scores.lexical,
        "fused": scores.fused,
        "diversity": scores.mmr,
        "reranker": scores.rerank,
        "relevance filter": scores.relevance,
        "final": scores.final,
    }
    return " · ".join(f"{name} {_raw_score(score)}" for name, score in named.items() if score is not None)


def _raw_score(score: float) -> str:
    """Return a score with three decimals; one that would round to zero as ``<0.001``."""
    return "<0.001" if 0 < score < 0.001 else f"{score:.3f}"


def _excerpt(spans: Sequence[Span], passage: str) -> Text:
    """Return the part of a chunk around the first words of the query, with all of them highlighted."""
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


def print_pack(
    pack: ContextPack, checks: Sequence[CitationCheck], *, with_ledger: bool = False, is_verbose: bool = False
) -> None:
    """Print a context on standard output, and its citations and warnings on standard error.

    Args:
        checks: Of the pack's citations, in their order.
        with_ledger: Whether a table of the ledger follows.
        is_verbose: Whether explanations are printed too.
    """
    click.echo(harmless(pack.context_pack) if sys.stdout.isatty() else pack.context_pack)
    console = console_of(stderr=True)
    error = error_of(pack)
    warn_degraded(pack.degraded, besides=error or pack.note)
    if error is not None:
        print_error(error)
    elif pack.note or not pack.passages:
        warn(pack.note or "no results")
    for passage, check in zip(pack.passages, checks, strict=True):
        line = f"[{passage.citation.number}] {format_citation(passage.citation)}  "
        size = (
            f"({passage.role.replace('_', ' ')}, {count(passage.tokens, 'token')}{', shortened' * passage.shortened})"
        )
        console.print(Text.assemble((harmless(line), "cyan"), (size, "dim")), soft_wrap=True)
        for difference in check.differences:
            _print_line(console, f"    Not verified: {difference}", "red")
    if with_ledger:
        table = Table("Chunk", "Role", "Outcome", "Reason")
        for item in pack.ledger:
            where = f"{item.outcome} in [{item.passage}]" if item.passage is not None else item.outcome
            table.add_row(Text(harmless(item.id)), item.role.replace("_", " "), where, Text(harmless(item.reason)))
        console.print(table)
    relevance = pack.relevance
    if is_verbose and relevance is not None and (told := explain_relevance(relevance)) is not None:
        _print_line(console, told, "dim")
    told = format_footer(
        None if relevance is None or relevance.value is None else f"relevance {relevance.value:.2f}",
        count(len(pack.passages), "passage"),
        f"{pack.token_count:,}/{pack.max_tokens:,} tokens",
        count_verified(checks),
        format_seconds(pack.latency_ms),
    )
    _print_line(console, told, "dim")


def error_of(pack: ContextPack) -> str | None:
    """Return why a context is empty, if a part that failed is the reason."""
    reasons = {entry.reason for entry in pack.degraded}
    return pack.note if not pack.passages and pack.note in reasons else None


def print_evaluation(report: EvaluationReport, name: str) -> None:
    """Print the measures of an evaluation."""
    table = Table("Measure", "Value", title=name, title_justify="left")
    for key, value in report.to_json().items():
        if isinstance(value, dict):
            for inner, figure in value.items():
                table.add_row(f"{key} {inner}", f"{figure:.1f}")
        else:
            shown = "-" if value is None else str(value)
            table.add_row(key, f"{value:.4f}" if isinstance(value, float) else shown)
    console_of().print(table)


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names and values."""
    width = max(map(len, facts))
    for name, value in facts.items():
        for number, line in enumerate(harmless("–" if value is None else str(value)).split("\n")):  # noqa: RUF001
            click.echo(f"{'' if number else name:<{width}}  {line}".rstrip())


def print_findings(findings: Sequence[Finding]) -> None:
    """Print findings, each with a sign for its verdict."""
    console = console_of()
    for finding in findings:
        sign, colour = _SIGNS[finding.verdict]
        line = Text.assemble((sign, f"bold {colour}"), " ", (finding.subject, "bold"), ": ", harmless(finding.detail))
        console.print(line, soft_wrap=True)
    wrong, missing = (sum(finding.verdict == verdict for finding in findings) for verdict in ("wrong", "missing"))
    problems = count(wrong, "problem") if wrong else "no problems"
    optional = f"{missing} optional not installed or not set up" if missing else None
    _print_line(console, format_footer(problems, optional))


MOST_KEYS = 6
"""Keys in one line."""


def print_memory(config: RetrievalConfig, before: Mapping[str, Any]) -> None:
    """Say which settings the index remembers since it was written to, and which it does not.

    Args:
        before: The settings that it remembered until then.
    """
    now = remembered_settings(config)
    if new := [key for key, value in now.items() if key not in before or before[key] != value]:
        click.echo(f"Settings remembered with the index: {_listed(new)}")
    if config.provenance is None or config.store.kind == "memory":
        return
    file = find_settings_file(Path(config.index))
    missing = left_out(config, now)
    code = [key for key in missing if names_code(key, reduce(getattr, key.split("."), config))]
    if code:
        click.echo(f"Not remembered, since it is custom code: {_listed(code)}. Set it in each command.")
    if missing := [key for key in missing if key not in code]:
        place = FILE_NAME if file is None else str(file)
        click.echo(f"Not remembered: {_listed(missing)}. To use them without flags, put them in {place}.")


def _listed(keys: Collection[str]) -> str:
    shown = ", ".join(list(keys)[:MOST_KEYS])
    return shown if len(keys) <= MOST_KEYS else f"{shown} and {len(keys) - MOST_KEYS} more"
