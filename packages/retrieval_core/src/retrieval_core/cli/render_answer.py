"""Terminal output of answers: the text as it comes, and its sources below it."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

import click
from rich.text import Text

from retrieval_core.cli.render import console_of, harmless
from retrieval_core.pipeline.answer.attribution import markers_of
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
    "dense": "searching by meaning alone",
    "without_documents": "answering without documents",
    "extracted": "answering in the passages' own words",
}
_SIGNS: dict[Verdict, tuple[str, str]] = {
    "supported": ("✓", "green"),
    "contradicted": ("✗", "red"),
    "not_found": ("?", "yellow"),
}


class AnswerPrinter:
    """Prints an answer as it comes: its text and sources on standard output, failures on standard error.

    Args:
        verify: Whether verification was asked for, so that its absence is explained.
    """

    def __init__(self, *, verify: bool = False) -> None:
        self._verify = verify
        self._out = console_of()
        self._err = console_of(stderr=True)
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
            self._warn(f"{event.reason}; {_STEPS[event.step]}")
            self._told.add(event.reason)
        elif isinstance(event, AnswerFailed):
            self.end_line()
            self._err.print(Text(f"Error: {harmless(event.reason)} ({harmless(event.stage)})", style="red"))
            self._told.add(f"{event.stage}: {event.reason}")

    def end_line(self) -> None:
        """End the line that the text stands in, if it does not end with one."""
        if self._last not in {"", "\n"}:
            click.echo()
            self._last = "\n"

    def end(self, answer: Answer, checks: Sequence[CitationCheck] | None) -> None:
        """Print an answer's sources, problems, verdicts and confidence, after its text.

        Args:
            checks: Of its sources, in their order; ``None`` where they could not be checked.
        """
        self.end_line()
        for entry in answer.degraded:
            if (told := f"{entry.stage}: {entry.reason}") not in self._told:
                self._warn(told)
        if (pack := answer.pack) is not None and not pack.passages:
            self._print(Text(harmless(pack.note or "nothing was found"), style="dim"))
        elif answer.note is not None and answer.kind != "abstained":  # whose text says so
            self._print(Text(harmless(answer.note), style="yellow"))
        if (how := _how(answer)) is not None:
            self._print(Text(f"\n{how}", style="yellow"))
        self._print_sources(answer.sources, checks)
        self._print_problems(answer.sentences)
        for check in filter(None, (sentence.check for sentence in answer.sentences)):
            self._print(_verdict(answer.sentences[check.sentence].text, check))
        if self._verify and (why := _why_not_verified(answer)) is not None:
            self._print(Text(harmless(f"Not verified: {why}."), style="yellow"))
        self._print(Text("\n".join(_summary(answer, checks, self._of_passages)), style="dim"))

    def _print_sources(self, sources: Sequence[Citation], checks: Sequence[CitationCheck] | None) -> None:
        if sources:
            self._print(Text("\nSources", style="bold"))
        for number, source in enumerate(sources):
            self._print(Text(harmless(f"[{source.number}] {_place(source)}"), style="cyan"))
            for quote in source.quotes:
                self._print(Text(f"    {_shown(quote.text)}"))
            for difference in checks[number].differences if checks else ():
                self._print(Text(harmless(f"    does not match the index: {difference}"), style="red"))

    def _print_problems(self, sentences: Sequence[AnswerSentence]) -> None:
        found = Counter(problem for sentence in sentences for problem in _problems(sentence))
        for problem, count in islice(found.items(), PROBLEMS):
            alike = f" (and {count - 1:,} more like it)" if count > 1 else ""
            self._print(Text(f"! {problem}{alike}", style="yellow"))
        if rest := sum(islice(found.values(), PROBLEMS, None)):
            self._print(Text(f"… and {rest:,} more; --json has all", style="yellow"))

    def _print(self, text: Text) -> None:
        self._out.print(text, soft_wrap=True)

    def _warn(self, told: str) -> None:
        self.end_line()
        self._err.print(Text(harmless(f"! {told}"), style="yellow"), soft_wrap=True)


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
            yield f"there is no passage [{attribution.number}]: {said}"
        elif attribution.problem == "unsupported":  # what is contradicted has a verdict
            yield f"[{attribution.number}] does not hold this: {said}"
    if sentence.needs_source and not sentence.attributions:
        yield f"no source: {said}"


def _verdict(sentence: str, check: SentenceCheck) -> Text:
    sign, colour = _SIGNS[check.verdict]
    by = "" if check.passage is None else f" by [{check.passage}]"
    quoted = "" if check.quote is None else f" {_shown(check.quote.text)}"
    reason = f" ({' '.join(harmless(check.reason).split())})" if check.reason else ""
    told = f" {_shown(sentence)} {check.verdict.replace('_', ' ')}{by}{quoted}{reason}"
    return Text.assemble((sign, f"bold {colour}"), told)


def _how(answer: Answer) -> str | None:
    """Return a note on an answer that no language model wrote from the passages; ``None`` for others."""
    if answer.kind == "extracted":
        failed = any(fallback.step == "extracted" for fallback in answer.fallbacks)
        why = "the language model could not be used" if failed else "no language model is configured"
        others = " Other numbers in brackets are the documents' own." if _has_foreign_numbers(answer) else ""
        return f"Extracted from the passages; {why}.{others}"
    if answer.kind == "without_documents" and answer.text:
        return "Written without any document: nothing could be searched."
    return None


def _has_foreign_numbers(answer: Answer) -> bool:
    """Whether the text holds numbers in brackets that were quoted from a document and are no citations."""
    own = {attribution.marker for sentence in answer.sentences for attribution in sentence.attributions}
    return any(marker.span not in own for marker in markers_of(answer.text))


def _why_not_verified(answer: Answer) -> str | None:
    """Return why no sentence of an answer was verified; ``None`` where one was."""
    if answer.error is not None:
        return "the answer is not complete"
    if answer.kind == "extracted":
        return "the answer consists of quotes"
    if answer.kind == "abstained":
        return "nothing was answered"
    if answer.kind == "without_documents":
        return "there are no passages to hold the answer against"
    if any(sentence.check is not None for sentence in answer.sentences):
        return None
    failures = [entry.reason for entry in answer.degraded if entry.stage == "verify_answer"]
    return " ".join(failures[0].split()).rstrip(".") if failures else "no sentence says what could be verified"


def _summary(answer: Answer, checks: Sequence[CitationCheck] | None, of_passages: str) -> Iterator[str]:
    """Yield a line on the passages, one on the answer where there is one, and one on checks and time.

    Args:
        checks: Of the answer's sources; ``None`` where they could not be checked.
        of_passages: The explanation of the confidence before there was an answer, with which the final one begins.
    """
    if (confidence := answer.confidence) is not None:
        of_passages = of_passages or confidence.explanation
        of_answer = confidence.explanation.removeprefix(of_passages)
        yield f"Relevance: {confidence.retrieval:.2f}{_in_brackets(of_passages)}"
        if answer.kind == "abstained":
            yield "Nothing was answered."
        elif answer.kind != "extracted" and answer.text and answer.error is None:
            yield f"Confidence in the answer: {confidence.value:.2f}{_in_brackets(of_answer)}"
    if checks:
        unchanged = sum(check.matches for check in checks)
        compared = f"quotes of {unchanged} of {len(checks)} sources are unchanged in the index"
    else:
        compared = "the sources could not be checked" if answer.sources else ""
    yield f"{compared}{', ' if compared else ''}{answer.latency_ms:,.0f} ms"


def _in_brackets(explanation: str) -> str:
    line = " ".join(harmless(explanation).split())
    return f" ({line})" if line else ""
