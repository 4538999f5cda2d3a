"""Answers for people: the text as it comes, and below it what it rests on."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import click
from rich.text import Text

from retrieval_core.cli.render import console_of, harmless
from retrieval_core.types import AnswerChunk, AnswerFailed, Fallback, format_citation

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
    """Prints an answer as it comes: its text and sources on standard output, what did not work on standard error."""

    def __init__(self) -> None:
        self._out = console_of()
        self._err = console_of(stderr=True)
        self._last = ""
        self._told: set[str] = set()

    def take(self, event: AnswerEvent) -> None:
        """Print what is to be seen at once of an event."""
        if isinstance(event, AnswerChunk):
            click.echo(harmless(event.content), nl=False)
            self._last = event.content[-1:] or self._last
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
        """Print what an answer rests on, and how far it can be relied on.

        Args:
            answer: Whose text was printed.
            checks: Of its sources, in their order; ``None`` where they could not be checked.
        """
        self.end_line()
        for entry in answer.degraded:
            if (told := f"{entry.stage}: {entry.reason}") not in self._told:
                self._warn(told)
        if (pack := answer.pack) is not None and not pack.passages:
            self._print(Text(harmless(pack.note or "nothing was found"), style="dim"))
        if (how := _how(answer)) is not None:
            self._print(Text(f"\n{how}", style="yellow"))
        self._print_sources(answer.sources, checks)
        for problem in chain.from_iterable(map(_problems, answer.sentences)):
            self._print(Text(f"! {problem}", style="yellow"))
        for check in filter(None, (sentence.check for sentence in answer.sentences)):
            self._print(_verdict(answer.sentences[check.sentence].text, check))
        self._print(Text(_summary(answer, checks), style="dim"))

    def _print_sources(self, sources: Sequence[Citation], checks: Sequence[CitationCheck] | None) -> None:
        if sources:
            self._print(Text("\nSources", style="bold"))
        for number, source in enumerate(sources):
            self._print(Text(harmless(f"[{source.number}] {format_citation(source)}"), style="cyan"))
            for quote in source.quotes:
                self._print(Text(f"    {_shown(quote.text)}"))
            for difference in checks[number].differences if checks else ():
                self._print(Text(harmless(f"    does not match the index: {difference}"), style="red"))

    def _print(self, text: Text) -> None:
        self._out.print(text, soft_wrap=True)

    def _warn(self, told: str) -> None:
        self.end_line()
        self._err.print(Text(harmless(f"! {told}"), style="yellow"), soft_wrap=True)


def _shown(text: str) -> str:
    """Return a text on one line, in quotation marks, shortened at a blank."""
    line = " ".join(harmless(text).split())
    if len(line) > QUOTE:
        line = line[: max(line.rfind(" ", 0, QUOTE), QUOTE // 2)] + " …"
    return f"“{line}”"


def _problems(sentence: AnswerSentence) -> Iterator[str]:
    """Yield what is wrong with the sources of a sentence, each in one line."""
    said = _shown(sentence.text)
    for attribution in sentence.attributions:
        if attribution.problem == "unknown":
            yield f"there is no passage [{attribution.number}]: {said}"
        elif attribution.problem == "unsupported":
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
    """Return how an answer came about, where a language model did not write it from the passages."""
    if answer.kind == "extracted":
        failed = any(fallback.step == "extracted" for fallback in answer.fallbacks)
        why = "the language model could not be used" if failed else "no language model is configured"
        return f"Extracted from the passages; {why}."
    if answer.kind == "without_documents" and answer.text:
        return "Written without any document: nothing could be searched."
    return None


def _summary(answer: Answer, checks: Sequence[CitationCheck] | None) -> str:
    """Return confidence in one line; checks and time in another."""
    confidence = "" if answer.confidence is None else f"Confidence {answer.confidence.value:.2f}. "
    explanation = "" if answer.confidence is None else " ".join(harmless(answer.confidence.explanation).split())
    if checks:
        compared = f"{sum(check.matches for check in checks)} of {len(checks)} sources match the index, "
    else:
        compared = "the sources could not be checked, " if answer.sources else ""
    return f"{confidence}{explanation}".rstrip() + f"\n{compared}{answer.latency_ms:,.0f} ms"
