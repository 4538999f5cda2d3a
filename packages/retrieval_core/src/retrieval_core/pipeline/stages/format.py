"""Pruning and formatting of hits: only their relevant sentences, and all hits as one text for a prompt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, TypeAlias

from retrieval_core.config.model import BLANK_LINE, DEFAULT_TEMPLATE, checked_delimiter, parse_template
from retrieval_core.pipeline.stages.state import FormattedContext, JudgedHits, Stage, identify
from retrieval_core.ports import Pruner, as_plugin
from retrieval_core.run.outcomes import Failed, in_batches, is_fault_of_an_improvement
from retrieval_core.text.sentences import OMISSION, sentences_of
from retrieval_core.types import Quote, Span, format_citation
from retrieval_core.types.escapes import escape_text
from retrieval_core.types.filters import chunk_fields, lookup

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.config.model import FormatterConfig
    from retrieval_core.pipeline.stages.state import SearchState
    from retrieval_core.run.runner import Run
    from retrieval_core.types import JSON, Hit

    _Piece: TypeAlias = tuple[str, str | None, Callable[[Hit, int], str] | None]
    """Text that stands as it is, the name of the field after it, and how it is written where that is not looked up."""
    from collections.abc import Iterable

    from retrieval_core.ports import Kept
    from retrieval_core.run.outcomes import Ok
    from retrieval_core.text.sentences import Sentence
    from retrieval_core.types import Chunk, Hit

ABSENT = "N/A"
TEXT_OF_REVIEWS = "review_text"
"""The specification's name for a passage's text, which is no metadata: whoever reads a record or row takes it out."""


class Format(Stage):
    """Writes the hits as one text.

    Args:
        settings: Of the pipeline.
    """

    name = "format"
    deadline_share = 0

    def __init__(self, settings: RetrievalConfig) -> None:
        self._settings = settings.format
        self._fingerprint = partial(identify, (settings.format,))

    def fingerprint(self) -> str | None:
        """Return a name for the settings."""
        return self._fingerprint()

    async def __call__(self, _run: Run, state: SearchState) -> SearchState:
        """Return the state with a context."""
        return state.but(context=context_of(state.hits, self._settings))


def context_of(hits: Sequence[Hit], settings: FormatterConfig) -> FormattedContext:
    """Return the hits as one text, as settings say."""
    return format_context(
        hits,
        template=settings.template,
        delimiter=settings.delimiter,
        include_scores=settings.include_scores,
        max_length=settings.max_context_length,
    )


def format_context(
    hits: Sequence[Hit],
    *,
    template: str = DEFAULT_TEMPLATE,
    delimiter: str = "\n\n---\n\n",
    include_scores: bool = False,
    max_length: int | None = None,
) -> FormattedContext:
    """Write the hits as one text; of a hit with excerpts these alone, with ``[…]`` between two.

    Values are put in as they are and never read as a template themselves. Two things are marked where a passage holds
    them: the delimiter (:func:`without_delimiter`), so that splitting at it gives exactly the passages, and a line that
    looks like the default template's heading (:func:`~retrieval_core.types.escapes.escape_text`).

    Args:
        template: Text with fields in braces: ``rank`` (from 1), ``text``, ``citation``, ``score`` and everything that
            filters see of a chunk, with a dotted path for nested metadata. ``review_text`` is the text too, where the
            metadata has no such field. What a chunk lacks, and what is blank, is written ``N/A``.
        delimiter: Stands between two hits: several characters that are not all white space, or an empty line.
        include_scores: Whether a line with the hit's score precedes it.
        max_length: In code points; the text is cut there. ``None`` for no limit.

    Raises:
        ConfigurationError: The template is not well formed, or the delimiter cannot be told from text.
    """
    pieces, delimiter = _pieces_of(template), checked_delimiter(delimiter)
    texts = [_format_hit(hit, rank, pieces, include_scores=include_scores) for rank, hit in enumerate(hits, start=1)]
    if delimiter in "\0".join([text + delimiter[:-1] for text in texts]):  # seldom, and cheaper than to ask each
        texts = [without_delimiter(text, delimiter) for text in texts]
    text = delimiter.join(texts)
    if max_length is None or len(text) <= max_length:
        return FormattedContext(text, len(texts), truncated=False)
    begun, position = 0, 0
    for piece in texts:
        begun += position < max_length
        position += len(piece) + len(delimiter)
    return FormattedContext(text[:max_length], begun, truncated=True)


def without_delimiter(text: str, delimiter: str) -> str:
    """Return a passage's text so that the delimiter occurs nowhere in it, nor where it meets the delimiter behind it.

    A backslash is put into each occurrence, before its first character that is no space, as Markdown does it: a line
    ``---`` between empty lines becomes one of a backslash and ``---``. An empty line, where that is the delimiter, gets
    a space. Nothing is taken away.
    """
    whole = text + delimiter[:-1]
    if not delimiter or delimiter not in whole:
        return text
    mark, inside = (" ", 1) if delimiter == BLANK_LINE else ("\\", len(delimiter) - len(delimiter.lstrip()) or 1)
    parts: list[str] = []
    done = 0
    while (start := whole.find(delimiter, done)) >= 0:
        cut = min(len(text), start + inside)
        parts += (text[done:cut], mark)
        done = cut
    return "".join([*parts, text[done:]])


@lru_cache(maxsize=64)
def _pieces_of(template: str) -> tuple[_Piece, ...]:
    return tuple((literal, name, _OWN_FIELDS.get(name or "")) for literal, name in parse_template(template))


def _format_hit(hit: Hit, rank: int, pieces: Sequence[_Piece], *, include_scores: bool) -> str:
    fields: Mapping[str, JSON] | None = None
    parts = [f"Score: {hit.score:.4f}\n"] if include_scores else []
    for literal, name, own in pieces:
        parts.append(literal)
        if own is not None:
            parts.append(own(hit, rank))
        elif name is not None:
            if fields is None:
                fields = chunk_fields(hit.chunk)
            written = _as_text(lookup(fields, name))
            is_text = written == ABSENT and name == TEXT_OF_REVIEWS
            parts.append(_written_text(hit, rank) if is_text else escape_text(written))
    return "".join(parts)


def _as_text(value: JSON) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_as_text(item) for item in value) or ABSENT
    text = "" if value is None else str(value)
    return text if text and not text.isspace() else ABSENT


def _written_text(hit: Hit, _rank: int) -> str:
    text = shown_text(hit)
    return escape_text(text) if text and not text.isspace() else ABSENT


_OWN_FIELDS: dict[str, Callable[[Hit, int], str]] = {
    "rank": lambda _, rank: str(rank),
    "score": lambda hit, _: f"{hit.score:.4f}",
    "text": _written_text,
    "citation": lambda hit, _: format_citation(hit.chunk if not hit.excerpts else replace(hit.chunk, lines=hit.lines)),
}
"""What a template may name beside a chunk's fields; it wins over metadata of the same name."""


def shown_text(hit: Hit) -> str:
    """Return a hit's text as it is shown: all of it, or its excerpts with a mark between two."""
    if not hit.excerpts:
        return hit.chunk.text
    return OMISSION.join(hit.chunk.text[part.start : part.end] for part in hit.excerpts)


def quotes_of(chunk: Chunk, excerpts: tuple[Span, ...], span: Span | None) -> tuple[Quote, ...]:
    """Return what is shown of a chunk as quotes, in order.

    Args:
        chunk: What is quoted.
        excerpts: The parts of its text; all of it where there are none.
        span: Where its text stands in the document; ``None`` where that is not known.
    """
    whole = Quote(chunk.text, span, lines=chunk.lines)
    return tuple(whole.part(part.start, part.end) for part in excerpts) if excerpts else (whole,)


@dataclass(frozen=True, slots=True)
class _Divided:
    """A hit that has more than one sentence, and its place among all hits."""

    position: int
    hit: Hit
    sentences: tuple[Sentence, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        text = self.hit.chunk.text
        return tuple(text[sentence.span.start : sentence.span.end] for sentence in self.sentences)


class Prune(Stage):
    """Shows only those sentences of each hit that bear on the question.

    Args:
        pruner: Judges each sentence.
        settings: Of the pipeline.
    """

    name = "prune"
    deadline_share = 0

    def __init__(self, pruner: Pruner, settings: RetrievalConfig) -> None:
        self._pruner = as_plugin(pruner, Pruner)
        self._fingerprint = partial(identify, (settings.pruner,), pruner)

    def fingerprint(self) -> str | None:
        """Return a name for the settings and the pruner."""
        return self._fingerprint()

    def plugins(self) -> Iterable[object]:
        """Return the pruner."""
        return (self._pruner,)

    def is_fault(self, error: Exception, _state: SearchState) -> bool:
        """Return whether to raise an error: a pruner that is not installed is skipped."""
        return is_fault_of_an_improvement(error)

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        """Return the state with excerpts of its hits."""
        if not state.hits:
            return state
        pruned = await prune(run, self._pruner, state.question.text, state.hits)
        return state.failing(*pruned.failures).but(hits=pruned.hits)


async def prune(run: Run, pruner: Pruner, query: str, hits: Sequence[Hit]) -> JudgedHits:
    """Have the sentences of every hit judged, several calls at a time, and mark those that are to be shown.

    All hits stay, each with at least a sentence: a chunk never changes, only its hit's ``excerpts``.
    A hit of one sentence is not sent. Of a hit of which nothing is kept, the best sentence stays: which hits bear on
    the question is for the relevance filter to say.

    Args:
        run: Makes the calls.
        pruner: Judges.
        query: The question that counts: as the user asked it, whatever was searched for.
        hits: In their order.
    """
    started = run.elapsed_ms
    divided = (
        _Divided(position, hit, sentences_of(hit.chunk.text)) for position, hit in enumerate(hits) if hit.chunk.text
    )
    several = [item for item in divided if len(item.sentences) > 1]

    async def keep(batch: Sequence[_Divided]) -> Ok[Kept] | Failed:
        return await run.call("prune", pruner.keep, query, [item.texts for item in batch])

    pruned = list(hits)
    failures: list[Failed] = []
    judged = shown = 0
    for batch, outcome in await in_batches(keep, several, pruner.batch_size, lambda item: len(item.sentences)):
        if isinstance(outcome, Failed):
            failures.append(outcome)
            continue
        for number, item in enumerate(batch):
            kept = _at_least_one(outcome.value, number)
            judged += len(kept)
            shown += sum(kept)
            pruned[item.position] = replace(item.hit, excerpts=excerpts_of(item.hit.chunk.text, item.sentences, kept))
    decision = f"{shown} of {judged} sentences are relevant to the query" if judged else None
    run.note("prune", started, len(hits), len(hits), decision)
    return JudgedHits(tuple(pruned), tuple(failures))


def excerpts_of(text: str, sentences: Sequence[Sentence], kept: Sequence[bool]) -> tuple[Span, ...]:
    """Return the parts of a text that are shown, in order: the sentences that are kept, with what they need.

    Parts with nothing but white space between them are one. There are none where the whole text is shown.

    Args:
        text: What was divided.
        sentences: All of its sentences, in order.
        kept: Whether each is kept.
    """
    wanted: set[tuple[int, int]] = set()
    introduced = False
    for sentence, is_kept in zip(sentences, kept, strict=True):
        is_shown = is_kept or introduced
        if is_shown:
            wanted.update((span.start, span.end) for span in (*sentence.heads, sentence.span))
        introduced = is_shown and sentence.introduces_next
    joined: list[Span] = []
    for start, end in sorted(wanted):
        if joined and (start <= joined[-1].end or text[joined[-1].end : start].isspace()):
            joined[-1] = Span(joined[-1].start, max(joined[-1].end, end))
        else:
            joined.append(Span(start, end))
    whole = len(joined) == 1 and text.strip() == text[joined[0].start : joined[0].end]
    return () if whole else tuple(joined)


def _at_least_one(answer: Kept, number: int) -> tuple[bool, ...]:
    """Return which sentences of a passage are shown: those kept or, where these are none, the best one."""
    kept = answer.kept[number]
    if any(kept):
        return kept
    scores = answer.scores[number] if answer.scores else (0.0,) * len(kept)
    best = max(range(len(kept)), key=scores.__getitem__)
    return tuple(position == best for position in range(len(kept)))
