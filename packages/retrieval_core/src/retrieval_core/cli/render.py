"""Print results, contexts and answers for people."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import islice
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import click

from retrieval_core.cli.common import (
    count,
    count_verified,
    format_footer,
    format_seconds,
    harmless,
    name_stage,
    print_error,
    print_table,
    say,
    styled,
    warn,
    warn_degraded,
)
from retrieval_core.pipeline.results import syntax_summary
from retrieval_core.pipeline.stages.format import shown_text
from retrieval_core.run.observe.observer import explain
from retrieval_core.types import AnswerChunk, AnswerFailed, Fallback, RetrievalDone, format_citation
from retrieval_core.types.documents import format_range, name_document
from retrieval_core.types.escapes import escape_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from retrieval_core.service.grep import GrepResponse
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import (
        Answer,
        AnswerEvent,
        AnswerSentence,
        Citation,
        CitationCheck,
        ContextPack,
        EvaluationScores,
        FallbackStep,
        Hit,
        LedgerEntry,
        Relevance,
        RetrievalResult,
        Scores,
        SentenceCheck,
        Span,
        Verdict,
    )

EXCERPT = 600
"""Most code points shown of a chunk; ``--json`` gives all of it."""
QUOTE = 120
"""Most code points shown of a quote or of a sentence; ``--json`` gives all of it."""
PROBLEMS = 10
"""Most lines about sentences without a source."""
SCORE_NOTE = (
    "Score: how near a result's ranking score is to that of the best result, which has 1.00; not a probability, and "
    "not comparable between queries."
)
INCOMPLETE = "No results, but the search was incomplete."
_STEPS: dict[FallbackStep, str] = {
    "dense": "Fallback: vector search only.",
    "without_documents": "Fallback: an answer without documents.",
    "extracted": "Fallback: an answer extracted from the documents.",
}
_SIGNS: dict[Verdict, tuple[str, str]] = {
    "supported": ("✓", "green"),
    "contradicted": ("✗", "red"),
    "not_found": ("?", "yellow"),
}


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
    _print_problems(result)
    sides = _searched_sides(result)
    for rank, (hit, score) in enumerate(zip(result.hits, relative_scores(result.hits), strict=True), start=1):
        click.echo(_heading(rank, hit, score, sides))
        if is_verbose:
            say(f"    Raw scores: {_raw_scores(hit.scores)}", dim=True)
        for line in _excerpt(analyzer.highlight_spans(result.query, shown := shown_text(hit)), shown).split("\n"):
            click.echo(_indented(line))  # so that no line of it can pass for a heading
        click.echo()
    if result.evaluation is not None:
        say(", ".join(_scores(result.evaluation)), dim=True)
    for line in _explanations(result, fusion) if is_verbose else ():
        say(line, dim=True)
    say(format_footer(count(len(result.hits), "result"), format_seconds(result.latency_ms)), dim=True)
    if with_trace:
        say(explain(result))


def _indented(line: str) -> str:
    """Return a line with its indentation, wrapped on a terminal."""
    if not sys.stdout.isatty():
        return f"    {line}".rstrip()
    return click.wrap_text(line, max(get_terminal_size().columns, 20), "    ", "    ")


def _print_problems(result: RetrievalResult) -> None:
    """Print what did not work, and why there are no results."""
    error, note = ("", "") if result.hits else (str(result.metadata.get(name) or "") for name in ("error", "note"))
    if summary := syntax_summary(result):
        say(f"Query: {summary}", dim=True)
    warn_degraded(result.degraded, besides=error or note)
    for told in () if result.relevance is None else result.relevance.notes:
        warn(told)
    if error:
        print_error(error)
    elif not result.hits:
        say(note or (INCOMPLETE if result.degraded else "No results."))


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


def _scores(evaluation: EvaluationScores) -> Iterator[str]:
    """Yield both scores, each with how it was computed, or why not."""
    for name in ("context_precision", "response_relevancy"):
        score, method = getattr(evaluation, name), evaluation.methods.get(name)
        yield f"{name} {'-' if score is None else f'{score:.3f}'}" + (f" ({method})" if method else "")


def _explanations(result: RetrievalResult, fusion: str) -> Iterator[str]:
    """Yield how the results, their scores and the relevance came about."""
    for rewrite in result.rewrites:
        yield f"Also searched: {rewrite.rewritten_query}"
    if result.hits:
        yield SCORE_NOTE
        yield "Raw scores: vector is a cosine from 0 to 1, keyword is BM25 without an upper limit."
    if any(hit.scores.fused is not None for hit in result.hits):
        yield f"Fusion: {fusion} (search.fusion) combines vector and keyword scores."
    yield from _explain_relevance(result.relevance)


def _explain_relevance(relevance: Relevance | None) -> Iterator[str]:
    """Yield a relevance with what it means and how it was computed; nothing if it is unknown."""
    if relevance is not None and relevance.value is not None:
        told = f"Relevance {relevance.value:.2f}: estimated probability that the results answer the query."
        yield f"{told} {' '.join(relevance.explanation.split())}".strip()


def print_matches(found: GrepResponse) -> None:
    """Print each matching line after its path and number, and lines around it with dashes, as grep does."""
    has_context = any(not line.is_match for document in found.documents for line in document.lines)
    before: tuple[str, int] | None = None
    for document in found.documents:
        path = styled(escape_name(name_document(document.id, document.source)), fg="cyan")
        if not document.lines:
            click.echo(path if document.count is None else f"{path}: {document.count}")
        for line in document.lines:
            if has_context and before is not None and before != (document.id, line.number - 1):
                click.echo("--")
            mark = ":" if line.is_match else "-"
            click.echo(f"{path}{mark}{line.number}{mark} {harmless(line.text)}")
            before = document.id, line.number
    if found.incomplete is not None:
        warn(f"the index is still being built: {found.incomplete}")
    if found.timed_out:
        warn("not everything was searched within a second. Continue with --cursor, or narrow the search with PATH")
    if found.next_cursor is not None:
        click.echo(f"cursor: {found.next_cursor}", err=True)


def _heading(rank: int, hit: Hit, score: float, sides: Collection[str]) -> str:
    chunk = hit.chunk
    lines = f":{format_range(*hit.lines)}" if hit.lines else ""
    places = [] if hit.source_index is None else [f" in {escape_name(hit.source_index)}"]
    if chunk.page_span:
        first, last = chunk.page_span.first, chunk.page_span.last
        places.append(f", page {first}" if first == last else f", pages {first}-{last}")
    if headings := chunk.section_path or ((chunk.title,) if chunk.title else ()):
        places.append(f" > {' > '.join(map(escape_name, headings))}")
    ranks = [
        f"{name} #{place}" if (place := getattr(hit.scores, f"{side}_rank")) else f"{name} –"  # noqa: RUF001
        for side, name in (("dense", "vector"), ("lexical", "keyword"))
        if side in sides
    ]
    if not (hit.scores.dense_rank or hit.scores.lexical_rank):
        ranks += [f"via {kind}" for kind in dict.fromkeys(origin.kind for origin in hit.found_by)]
    return (
        styled(f"{rank}. ", bold=True)
        + styled(escape_name(name_document(chunk.document_id, chunk.source)) + lines, fg="cyan", bold=True)
        + styled("".join(places), fg="cyan")
        + styled(f"   {' · '.join([f'score {score:.2f}', *ranks])}", dim=True)
    )


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


def _excerpt(spans: Sequence[Span], passage: str) -> str:
    """Return the part of a chunk around the first words of the query, with all of them highlighted."""
    start = max(0, spans[0].start - EXCERPT // 4) if spans and len(passage) > EXCERPT else 0
    start = passage.rfind(" ", 0, start) + 1 if start else 0
    end = start + EXCERPT
    if end < len(passage):
        end = max(start + EXCERPT // 2, passage.rfind(" ", start, end))
    pieces, done = ["… " if start else ""], start
    for span in spans:
        first, last = max(span.start, done), min(span.end, end)
        if first < last:
            pieces += [harmless(passage[done:first]), styled(passage[first:last], fg="yellow", bold=True)]
            done = last
    return "".join((*pieces, harmless(passage[done:end]), " …" if end < len(passage) else ""))


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
    error = error_of(pack)
    warn_degraded(pack.degraded, besides=error or pack.note or "")
    if error is not None:
        print_error(error)
    elif pack.note or not pack.passages:
        warn(pack.note or "no results")
    for passage, check in zip(pack.passages, checks, strict=True):
        line = styled(f"[{passage.citation.number}] {format_citation(passage.citation)}  ", fg="cyan")
        size = f"{passage.role.replace('_', ' ')}, {count(passage.tokens, 'token')}{', shortened' * passage.shortened}"
        click.echo(line + styled(f"({size})", dim=True), err=True)
        for difference in check.differences:
            say(f"    Not verified: {difference}", err=True, fg="red")
    if with_ledger:
        head = ("Chunk", "Role", "Outcome", "Reason")
        print_table(map(_ledger_row, pack.ledger), head, err=True)
    relevance = pack.relevance
    for told in _explain_relevance(relevance) if is_verbose else ():
        say(told, err=True, dim=True)
    told = format_footer(
        None if relevance is None or relevance.value is None else f"relevance {relevance.value:.2f}",
        count(len(pack.passages), "passage"),
        f"{pack.token_count:,}/{pack.max_tokens:,} tokens",
        count_verified(checks),
        format_seconds(pack.latency_ms),
    )
    say(told, err=True, dim=True)


def _ledger_row(item: LedgerEntry) -> tuple[str, ...]:
    where = f"{item.outcome} in [{item.passage}]" if item.passage is not None else item.outcome
    return item.id, item.role.replace("_", " "), where, item.reason


def error_of(pack: ContextPack) -> str | None:
    """Return why a context is empty, if a part that failed is the reason."""
    reasons = {entry.reason for entry in pack.degraded}
    return pack.note if not pack.passages and pack.note in reasons else None


class AnswerPrinter:
    """Prints an answer as it comes: its text and sources on standard output, warnings and errors on standard error.

    Args:
        verify: Whether verification was asked for, so that its absence is explained.
        is_verbose: Whether explanations are printed too.
    """

    def __init__(self, *, verify: bool = False, is_verbose: bool = False) -> None:
        self._verify = verify
        self._is_verbose = is_verbose
        self._last = ""
        self._told: set[str] = set()
        self._of_passages = ""

    def take(self, event: AnswerEvent) -> None:
        """Print an event's text or failure."""
        if isinstance(event, AnswerChunk):
            click.echo(harmless(event.content), nl=False)
            self._last = event.content[-1:] or self._last
        elif isinstance(event, RetrievalDone):
            self._of_passages = "" if event.confidence is None else event.confidence.explanation
        elif isinstance(event, Fallback):
            self.end_line()
            stage, colon, reason = event.reason.partition(": ")
            told = f"{name_stage(stage)}: {reason}" if colon else event.reason
            warn(f"{told.rstrip('.')}. {_STEPS[event.step]}")
            self._told.add(event.reason)
        elif isinstance(event, AnswerFailed):
            self.end_line()
            print_error(f"{name_stage(event.stage)}: {event.reason}")
            self._told.add(f"{event.stage}: {event.reason}")

    def end_line(self) -> None:
        """End the line that the text is in, unless it ends with one."""
        if self._last not in {"", "\n"}:
            click.echo()
            self._last = "\n"

    def end(self, answer: Answer, checks: Sequence[CitationCheck] | None) -> None:
        """Print an answer's sources, problems and verdicts, and the footer.

        Args:
            checks: Of its sources, in their order; ``None`` if they could not be checked.
        """
        self.end_line()
        warn_degraded(entry for entry in answer.degraded if f"{entry.stage}: {entry.reason}" not in self._told)
        if (pack := answer.pack) is not None and not pack.passages:
            say(pack.note or "No results.", dim=True)
        elif answer.note is not None and answer.kind != "abstained":  # whose text says so
            warn(answer.note)
        if answer.kind == "without_documents" and answer.text:
            warn("answered without documents, since nothing could be searched")
        self._print_sources(answer.sources, checks)
        _warn_of_problems(answer.sentences)
        for check in filter(None, (sentence.check for sentence in answer.sentences)):
            click.echo(_verdict(answer.sentences[check.sentence].text, check))
        if answer.sources and checks is None:
            warn("citations could not be verified against the index")
        is_verified = any(sentence.check is not None for sentence in answer.sentences)
        if self._verify and not is_verified and all(entry.stage != "verify_answer" for entry in answer.degraded):
            warn("sentences not verified: only claims that a language model writes from documents are")
        click.echo()
        if self._is_verbose:
            for line in _answer_explanations(answer, self._of_passages):
                say(line, dim=True)
        say(_footer(answer, checks), dim=True)

    def _print_sources(self, sources: Sequence[Citation], checks: Sequence[CitationCheck] | None) -> None:
        if sources:
            say("\nSources", bold=True)
        for number, source in enumerate(sources):
            say(f"[{source.number}] {_place(source)}", fg="cyan")
            for quote in source.quotes:
                say(f"    {_shown(quote.text)}")
            for difference in checks[number].differences if checks else ():
                say(f"    Not verified: {difference}", fg="red")


def _warn_of_problems(sentences: Sequence[AnswerSentence]) -> None:
    found = Counter(problem for sentence in sentences for problem in _problems(sentence))
    for problem, number in islice(found.items(), PROBLEMS):
        warn(problem + (f" ({number:,} times)" if number > 1 else ""))
    if rest := sum(islice(found.values(), PROBLEMS, None)):
        warn(f"{rest:,} more sentences with problems; --json lists all")


def _shown(text: str) -> str:
    """Return a text on one line, in quotation marks, shortened at a blank."""
    return f"“{_short(text)}”"


def _short(text: str) -> str:
    line = " ".join(harmless(text).split())
    if len(line) > QUOTE:
        line = line[: max(line.rfind(" ", 0, QUOTE), QUOTE // 2)] + " …"
    return line


def _place(source: Citation) -> str:
    """Return a source's citation, with its title unless the citation holds it already."""
    place = format_citation(source)
    title = " ".join((source.title or "").split())
    return place if not title or title.casefold() in place.casefold() else f"{place} | Title: {_short(title)}"


def _problems(sentence: AnswerSentence) -> Iterator[str]:
    """Yield the problems with a sentence's sources, a line each."""
    said = _shown(sentence.text)
    for attribution in sentence.attributions:
        if attribution.problem == "unknown":
            yield f"[{attribution.number}] is no source: {said}"
        elif attribution.problem == "unsupported":  # what is contradicted has a verdict
            yield f"not in source [{attribution.number}]: {said}"
    if sentence.needs_source and not sentence.attributions:
        yield f"no source: {said}"


def _verdict(sentence: str, check: SentenceCheck) -> str:
    sign, colour = _SIGNS[check.verdict]
    by = "" if check.passage is None else f" by [{check.passage}]"
    quoted = "" if check.quote is None else f" {_shown(check.quote.text)}"
    reason = f" ({' '.join(harmless(check.reason).split())})" if check.reason else ""
    told = f" {_shown(sentence)} {check.verdict.replace('_', ' ')}{by}{quoted}{reason}"
    return styled(sign, fg=colour, bold=True) + harmless(told)


def _answer_explanations(answer: Answer, of_passages: str) -> Iterator[str]:
    """Yield how the answer, its relevance and its confidence came about.

    Args:
        of_passages: The explanation of the confidence before there was an answer, with which the final one begins.
    """
    if answer.kind == "extracted":
        failed = any(fallback.step == "extracted" for fallback in answer.fallbacks)
        why = "the language model failed" if failed else "no language model is configured (llm.kind)"
        yield f"Extracted from the documents: {why}."
    yield from _explain_relevance(None if answer.pack is None else answer.pack.relevance)
    if (confidence := answer.confidence) is not None and _has_confidence(answer):
        told = " ".join(confidence.explanation.removeprefix(of_passages).split())
        yield f"Confidence {confidence.value:.2f}: relevance times the share of supported sentences. {told}".strip()


def _has_confidence(answer: Answer) -> bool:
    """Whether the confidence is more than the relevance: there is a complete, written answer."""
    return answer.kind not in {"abstained", "extracted"} and bool(answer.text) and answer.error is None


def _footer(answer: Answer, checks: Sequence[CitationCheck] | None) -> str:
    """Return relevance, confidence, verified citations and time on one line, as far as they apply."""
    confidence = answer.confidence
    return format_footer(
        None if confidence is None else f"relevance {confidence.retrieval:.2f}",
        None if confidence is None or not _has_confidence(answer) else f"confidence {confidence.value:.2f}",
        count_verified(checks or ()),
        format_seconds(answer.latency_ms),
    )
