"""The verifier that asks a language model, whose verdicts quote the passages."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING

from pydantic import BaseModel, RootModel

from retrieval_core.adapters.parts import AsksInBatches
from retrieval_core.ports import CompletionRequest, Verdicts, Verified, Verifier
from retrieval_core.text.analysis import Analyzer
from retrieval_core.text.figures import figures_in, missing_figures
from retrieval_core.text.prompting import (
    as_data,
    chosen_prompt,
    framed,
    in_order,
    object_schema,
    parse_answer,
    passages_as_data,
    schema_by_passage,
    shorten,
)
from retrieval_core.types import Verdict  # noqa: TC001 - pydantic reads it

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from retrieval_core.adapters.parts import AdapterParts
    from retrieval_core.ports import LLM, Message
    from retrieval_core.types import JSON

DEFAULT_PROMPT = (
    "You check an answer against the passages that it was written from. Say for each sentence of the answer what the "
    "passages say about it. supported: a passage says the same, perhaps in other words; all of its numbers, dates, "
    "names and conditions are there. contradicted: a passage says the opposite of it, or has another number, date, "
    "name or condition in the place of the sentence's. not_found: no passage says it or contradicts it, however likely "
    "it is. Go by the passages alone, not by what you know."
)
"""The default instructions."""

# Part of a verifier's id through its digest, as everything that the model is shown. The quote comes before the verdict,
# so that the verdict follows from it.
_ANSWER = (
    "Answer with a JSON object that has one property for each sentence, named by the sentence's number, as in "
    '{"1": {"passage": 2, "quote": "...", "reason": "...", "verdict": "supported"}}. "passage" is the number of the '
    'passage that tells, or 0 if none does. "quote" is the part of that passage that decides, copied word for word, or '
    'an empty string if there is none. "reason" is one sentence on what the quote says of the sentence. "verdict" is '
    "supported, contradicted or not_found."
)
_PASSAGE_CHARACTERS = 6000
_SENTENCE_CHARACTERS = 2000
_REASON_CHARACTERS = 400
_MOST_FIGURES = 3
_LEAST_LETTERS = 12
"""The fewest letters and digits of a quote that shares no word with the sentence."""


class _Verdict(BaseModel):
    passage: int | None
    quote: str
    reason: str
    verdict: Verdict


class _Verdicts(RootModel[dict[str, _Verdict]]): ...


class LLMVerifier(AsksInBatches, Verifier):
    """Asks a language model what passages say of sentences; a :class:`~retrieval_core.ports.Verifier`.

    Every verdict but ``not_found`` has to quote its passage; the quote is looked for there, ignoring differences of
    white space, and the passage's own words are returned. A verdict becomes ``not_found``, with the reason, where its
    quote is not in the passage that it names, it names none that was given, its quote is a word or two that the
    sentence does not have, or it is ``supported`` and the passage lacks a figure of the sentence.

    The model sees the question, the sentences and the passages, up to 6000 code points of each, as data: see
    :mod:`retrieval_core.text.prompting`.

    Args:
        llm: Stays the caller's to close.
        prompt: Instructions in place of :data:`DEFAULT_PROMPT`. They replace neither the form of the answer nor the
            rule that passages are data.
        batch_size: Sentences judged in one request; at least 1.

    Raises:
        InvalidParameterError: ``batch_size`` is less than 1, or the prompt is blank.
    """

    def __init__(self, llm: LLM, *, prompt: str | None = None, batch_size: int = 8) -> None:
        super().__init__(llm, chosen_prompt(prompt, DEFAULT_PROMPT), batch_size)

    @classmethod
    def from_settings(cls, settings: None, parts: AdapterParts) -> Self:  # noqa: ARG003 - it has none
        """Make it over the language model."""
        return cls(parts.model)

    @property
    def id(self) -> str:
        """Names the model, the number of sentences in a request, and a digest of everything else that it is shown."""
        shown = "\n".join(message.content for message in self._messages("", (), ()))
        settings = [_PASSAGE_CHARACTERS, _SENTENCE_CHARACTERS, _schema(1, 1), shown]
        digest = sha256(json.dumps(settings).encode()).hexdigest()[:12]
        return f"{self._llm.id} verify-{self._batch_size}@{digest}"

    async def _verify(self, query: str, sentences: Sequence[str], passages: Sequence[str]) -> Verdicts:
        """Judge sentences in one request."""
        if not sentences:
            return Verdicts(())
        schema = _schema(len(sentences), len(passages))
        request = CompletionRequest(self._messages(query, sentences, passages), schema=schema)
        completion = await self._llm.complete(request)
        found = parse_answer(completion.text, _Verdicts, self._llm.id).root
        ordered = in_order(found, len(sentences), self._llm.id, completion.text, "sentences")
        judged = zip(ordered, sentences, strict=True)
        return Verdicts(tuple(_verified(one, sentence, passages) for one, sentence in judged), completion.usage)

    def _messages(self, query: str, sentences: Sequence[str], passages: Sequence[str]) -> tuple[Message, Message]:
        data = [
            as_data("question", query),
            *passages_as_data(passages, _PASSAGE_CHARACTERS),
            *(
                as_data(f"sentence {number}", shorten(sentence, _SENTENCE_CHARACTERS))
                for number, sentence in enumerate(sentences, start=1)
            ),
        ]
        return framed(self._prompt, _ANSWER, data)


def _schema(sentences: int, passages: int) -> dict[str, JSON]:
    verdict = object_schema(
        {
            "passage": {"type": "integer", "enum": list(range(passages + 1))},
            "quote": {"type": "string", "description": "Copied from the passage, or empty."},
            "reason": {"type": "string", "description": "One sentence."},
            "verdict": {"type": "string", "enum": ["supported", "contradicted", "not_found"]},
        }
    )
    return schema_by_passage(sentences, verdict)


def _verified(found: _Verdict, sentence: str, passages: Sequence[str]) -> Verified:
    """Return a model's verdict with the passage's own quote, or ``not_found`` where the quote does not bear it out."""
    reason = shorten(" ".join(found.reason.split()), _REASON_CHARACTERS)
    if found.verdict == "not_found":
        return Verified("not_found", reason=reason)
    said = f"the model says {found.verdict}"
    if found.passage is None or not 1 <= found.passage <= len(passages):
        which = "no passage" if not found.passage else f"passage {found.passage!r:.20}, which was not given"
        return Verified("not_found", reason=f"{said} and names {which}")
    place = found.passage - 1
    quote = _in_passage(found.quote, passages[place])
    if not quote:
        what = "its quote is not in" if found.quote.strip() else "quotes nothing of"
        return Verified("not_found", reason=f"{said}, but {what} passage {found.passage}")
    if not _has_to_do_with(quote, sentence):
        return Verified("not_found", reason=f"{said}, but its quote {quote!r:.80} has no word of the sentence")
    if found.verdict == "supported" and (lacking := missing_figures(sentence, passages[place])):
        figures = ", ".join(f"{figure!r:.40}" for figure in lacking[:_MOST_FIGURES])
        return Verified("not_found", reason=f"{said}, but passage {found.passage} does not have {figures}")
    return Verified(found.verdict, place, quote, reason)


def _has_to_do_with(quote: str, sentence: str) -> bool:
    """Whether a quote and a sentence share a content word, each has a figure, or the quote is long.

    A long quote may say the same in other words or in another language.
    """
    analyzer = Analyzer()
    if (figures_in(quote) and figures_in(sentence)) or {*analyzer.terms(quote)} & {*analyzer.terms(sentence)}:
        return True
    # A sign of a script without an alphabet stands for some letters.
    return sum(1 if mark.isascii() else 3 for mark in quote if mark.isalnum()) >= _LEAST_LETTERS


def _in_passage(quote: str, passage: str) -> str:
    """Return the part of a passage that equals a quote but for white space; empty where there is none."""
    wanted = quote.strip()
    if wanted in passage:
        return wanted
    wanted = " ".join(wanted.split())
    plain: list[str] = []
    places: list[int] = []
    for place, mark in enumerate(passage):
        if not mark.isspace():
            plain.append(mark)
        elif plain and plain[-1] != " ":
            plain.append(" ")
        else:
            continue
        places.append(place)
    start = "".join(plain).find(wanted)
    return passage[places[start] : places[start + len(wanted) - 1] + 1] if start >= 0 else ""
