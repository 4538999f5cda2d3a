"""Terminal output of answers: the text as it comes, and its sources below it."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

import click
from rich.text import Text

from retrieval_core.cli.common import (
    count_verified,
    format_footer,
    format_seconds,
    harmless,
    name_stage,
    print_error,
    warn,
    warn_degraded,
)
from retrieval_core.cli.render import console_of, explain_relevance
from retrieval_core.types import AnswerChunk, AnswerFailed, Fallback, RetrievalDone, format_citation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from retrieval_core.types import (
        Answer,
        AnswerEvent,
        AnswerSentence,
        Citation,
        CitationCheck,
        FallbackStep,
        SentenceCheck,
        Verdict,
    )

QUOTE = 120
"""Most code points shown of a quote or of a sentence; ``--json`` gives all of it."""
PROBLEMS = 10
"""Most lines about sentences without a source."""

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


class AnswerPrinter:
    """Prints an answer as it comes: its text and sources on standard output, warnings and errors on standard error.

    Args:
        verify: Whether verification was asked for, so that its absence is explained.
        is_verbose: Whether explanations are printed too.
    """

    def __init__(self, *, verify: bool = False, is_verbose: bool = False) -> None:
        self._verify = verify
        self._is_verbose = is_verbose
        self._out = console_of()
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
            self._print(Text(harmless(pack.note or "No results."), style="dim"))
        elif answer.note is not None and answer.kind != "abstained":  # whose text says so
            warn(answer.note)
        if answer.kind == "without_documents" and answer.text:
            warn("answered without documents, since nothing could be searched")
        self._print_sources(answer.sources, checks)
        _warn_of_problems(answer.sentences)
        for check in filter(None, (sentence.check for sentence in answer.sentences)):
            self._print(_verdict(answer.sentences[check.sentence].text, check))
        if answer.sources and checks is None:
            warn("citations could not be verified against the index")
        is_verified = any(sentence.check is not None for sentence in answer.sentences)
        if self._verify and not is_verified and all(entry.stage != "verify_answer" for entry in answer.degraded):
            warn("sentences not verified: only claims that a language model writes from documents are")
        self._print(Text(""))
        if self._is_verbose:
            for line in _explanations(answer, self._of_passages):
                self._print(Text(harmless(line), style="dim"))
        self._print(Text(_footer(answer, checks), style="dim"))

    def _print_sources(self, sources: Sequence[Citation], checks: Sequence[CitationCheck] | None) -> None:
        if sources:
            self._print(Text("\nSources", style="bold"))
        for number, source in enumerate(sources):
            self._print(Text(harmless(f"[{source.number}] {_place(source)}"), style="cyan"))
            for quote in source.quotes:
                self._print(Text(f"    {_shown(quote.text)}"))
            for difference in checks[number].differences if checks else ():
                self._print(Text(harmless(f"    Not verified: {difference}"), style="red"))

    def _print(self, text: Text) -> None:
        self._out.print(text, soft_wrap=True)


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


def _verdict(sentence: str, check: SentenceCheck) -> Text:
    sign, colour = _SIGNS[check.verdict]
    by = "" if check.passage is None else f" by [{check.passage}]"
    quoted = "" if check.quote is None else f" {_shown(check.quote.text)}"
    reason = f" ({' '.join(harmless(check.reason).split())})" if check.reason else ""
    told = f" {_shown(sentence)} {check.verdict.replace('_', ' ')}{by}{quoted}{reason}"
    return Text.assemble((sign, f"bold {colour}"), told)


def _explanations(answer: Answer, of_passages: str) -> Iterator[str]:
    """Yield how the answer, its relevance and its confidence came about.

    Args:
        of_passages: The explanation of the confidence before there was an answer, with which the final one begins.
    """
    if answer.kind == "extracted":
        failed = any(fallback.step == "extracted" for fallback in answer.fallbacks)
        why = "the language model failed" if failed else "no language model is configured (llm.kind)"
        yield f"Extracted from the documents: {why}."
    relevance = None if answer.pack is None else answer.pack.relevance
    if relevance is not None and (told := explain_relevance(relevance)) is not None:
        yield told
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
