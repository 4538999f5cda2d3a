"""The reranker that asks a language model to grade passages on a rubric, with evidence."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field, ValidationError

from retrieval_core.adapters.parts import AsksInBatches
from retrieval_core.config.base import AdapterSettings
from retrieval_core.errors import InvalidParameterError, MalformedAnswerError
from retrieval_core.ports import CompletionRequest, Reranker, RerankScores
from retrieval_core.text.prompting import (
    as_data,
    chosen_prompt,
    framed,
    object_schema,
    parse_answer,
    passages_as_data,
    shorten,
)
from retrieval_core.types import Evidence
from retrieval_core.types.context import on_one_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from retrieval_core.adapters.parts import AdapterParts
    from retrieval_core.ports import LLM, Message
    from retrieval_core.types import JSON

BATCH_SIZE = 10
"""Passages of one request: the 30 hits that are reranked by default are three requests, which run at the same time."""
DEFAULT_PROMPT = (
    "You grade search results. Score how well each passage answers the question, from 0 to 100. 100: it answers the "
    "question directly, with explicit evidence. 70: it is highly relevant, but answers only a part. 40: it is "
    "tangential context. 0: it is unrelated. Take numbers between these where a passage lies between. Grade each "
    "passage by itself."
)
"""The default rubric."""

# Part of a reranker's id through its digest, as everything that the model is shown. Evidence comes before the score, so
# that the score follows from it.
_ANSWER = (
    'Answer with a JSON object that has the property "results": a list with one entry for each passage, as in '
    '{"results": [{"id": 1, "key_evidence": "...", "answerability": true, "relevance_score": 85}]}. "id" is the '
    'passage\'s number. "key_evidence" is the shortest part of the passage that decides its score, copied word for '
    'word, or an empty string if there is none. "answerability" is true if the passage by itself answers the question '
    'and false if not. "relevance_score" is a number from 0 to 100.'
)
_REPAIR = (
    "You were asked this before, and your answer could not be used. The last lines of the user message hold that "
    "answer, which may be cut short, and what was wrong with it. Answer again with the corrected JSON, for the same "
    "passages."
)
_ANSWER_CHARACTERS = 4000
_PROBLEM_CHARACTERS = 100
_ENTRY_CHARACTERS = 60
_SHORTEST = 4  # as shorten() has it


class _Answer(BaseModel):
    """An answer whose entries are checked one by one, so that a malformed one does not cost the others."""

    results: list[object]


class _Entry(BaseModel):
    """The score that the model gives a chunk. Numbers may be text."""

    id: int
    relevance_score: float = Field(ge=0, le=100, allow_inf_nan=False)
    answerability: bool = False
    key_evidence: str | None = None


class LLMRerankerSettings(AdapterSettings):
    """A language model that grades chunks on a rubric."""

    max_characters: int = Field(default=1200, ge=_SHORTEST)
    """Characters of each chunk that the model sees."""
    strict_json: bool = True
    """Whether requests contain a JSON schema. Set it to false if the server supports none."""
    prompt: str | None = None
    """Instructions in place of the built-in rubric."""


class LLMReranker(AsksInBatches, Reranker):
    """Asks a language model to score passages; a :class:`~retrieval_core.ports.Reranker` that can repair.

    The model scores each passage from 0 to 100, says whether it answers the question, and quotes its evidence. It sees
    a passage's title, headings and text as data: see :mod:`retrieval_core.text.prompting`.

    Entries of the answer that are malformed, repeated or of no passage are ignored and listed in ``problems``. Passages
    without a score from 0 to 100 get 0 and no evidence. An answer without such a score for at least half of the
    passages is an error.

    Args:
        llm: Stays the caller's to close.
        prompt: Instructions in place of :data:`DEFAULT_PROMPT`. They replace neither the form of the answer nor the
            rule that passages are data.
        batch_size: Passages scored in one request; at least 1.
        max_characters: Code points of a passage that are shown, at least 4; also the longest evidence.
        strict_json: Whether the provider is held to a JSON schema. Without it, text around the JSON is ignored.

    Raises:
        InvalidParameterError: ``batch_size`` or ``max_characters`` is too small, or the prompt is blank.
    """

    Settings = LLMRerankerSettings

    def __init__(
        self,
        llm: LLM,
        *,
        prompt: str | None = None,
        batch_size: int = BATCH_SIZE,
        max_characters: int = 1200,
        strict_json: bool = True,
    ) -> None:
        super().__init__(llm, chosen_prompt(prompt, DEFAULT_PROMPT), batch_size)
        if max_characters < _SHORTEST:
            msg = f"max_characters must be at least {_SHORTEST}, got {max_characters}"
            raise InvalidParameterError(msg)
        self._max_characters = max_characters
        self._strict_json = strict_json

    @classmethod
    def from_settings(cls, settings: LLMRerankerSettings, parts: AdapterParts) -> Self:
        """Make it from its settings, loading nothing."""
        return cls(parts.model, batch_size=parts.section.batch_size or BATCH_SIZE, **dict(settings))

    @property
    def id(self) -> str:
        """Names the model, the number of passages in a request, and a digest of everything else that it is shown."""
        requests = (self._request("", ()), self._request("", (), MalformedAnswerError("", answer="")))
        shown = [message.content for request in requests for message in request.messages]
        settings = [self._max_characters, _ANSWER_CHARACTERS, self._strict_json and _schema(1)]
        digest = sha256(json.dumps([settings, shown]).encode()).hexdigest()[:12]
        return f"{self._llm.id} rubric-{self._batch_size}@{digest}"

    async def _score(self, query: str, passages: Sequence[str]) -> RerankScores:
        """Score passages in one request.

        Returns:
            Scores in [0, 1], a hundredth of the rubric's, with evidence on each passage that was scored. Evidence is
            quoted if the passage holds it, but for white space.
        """
        return await self._ask(self._request(query, passages), passages)

    async def _repair(self, query: str, passages: Sequence[str], wrong: MalformedAnswerError) -> RerankScores:
        """Score the same passages in one request that shows the model its own answer and its fault.

        Without that answer, the request is that of :meth:`score`.
        """
        return await self._ask(self._request(query, passages, wrong), passages)

    async def _ask(self, request: CompletionRequest, passages: Sequence[str]) -> RerankScores:
        if not passages:
            return RerankScores(())
        completion = await self._llm.complete(request)
        name, text = self._llm.id, completion.text
        entries = parse_answer(text, _Answer, name).results
        if not entries:
            msg = f"{name} returned an empty list of scores for {len(passages)} chunks"
            raise MalformedAnswerError(msg, name, answer=text)
        scored: dict[int, _Entry] = {}
        ignored: list[str] = []
        for given in entries:
            entry = _read_entry(given)
            if entry is None or entry.id in scored or not 1 <= entry.id <= len(passages):
                ignored.append(shorten(json.dumps(given), _ENTRY_CHARACTERS))
            else:
                scored[entry.id] = entry
        problems: list[str] = []
        if ignored:
            problems.append(f"gave entries that cannot be used: {shorten(', '.join(ignored), _PROBLEM_CHARACTERS)}")
        numbers = range(1, len(passages) + 1)
        missing = [str(number) for number in numbers if number not in scored]
        without = f"{len(missing)} of {len(passages)} passages"
        which = shorten(", ".join(missing), _PROBLEM_CHARACTERS)
        if 2 * len(missing) > len(passages):
            msg = "; it ".join((f"{name} gave no score that can be used for {without}: {which}", *problems))
            raise MalformedAnswerError(shorten(msg, 600), name, answer=text)
        if missing:
            problems.append(f"gave no score that can be used for {without}, which count as 0: {which}")
        return RerankScores(
            tuple(scored[number].relevance_score / 100 if number in scored else 0.0 for number in numbers),
            completion.usage,
            tuple(self._evidence(scored.get(number), passages[number - 1]) for number in numbers),
            tuple(f"{name} {problem}" for problem in problems),
        )

    def _evidence(self, entry: _Entry | None, passage: str) -> Evidence | None:
        if entry is None:
            return None
        text = shorten(on_one_line(entry.key_evidence or ""), self._max_characters)
        return Evidence(entry.answerability, text, bool(text) and text in on_one_line(passage))

    def _request(
        self, query: str, passages: Sequence[str], wrong: MalformedAnswerError | None = None
    ) -> CompletionRequest:
        schema = _schema(len(passages)) if self._strict_json else None
        return CompletionRequest(self._messages(query, passages, wrong), schema=schema)

    def _messages(
        self, query: str, passages: Sequence[str], wrong: MalformedAnswerError | None
    ) -> tuple[Message, Message]:
        instructions = self._prompt
        data = [as_data("question", query), *passages_as_data(passages, self._max_characters)]
        if wrong is not None and wrong.answer is not None:
            instructions = f"{instructions.strip()}\n\n{_REPAIR}"
            data.append(as_data("your answer", shorten(wrong.answer, _ANSWER_CHARACTERS)))
            data.append(as_data("what was wrong", str(wrong)))
        return framed(instructions, _ANSWER, data)


def _schema(passages: int) -> dict[str, JSON]:
    """Return the schema of an answer; without bounds on lists, which some providers refuse."""
    entry = object_schema(
        {
            "id": {"type": "integer", "enum": list(range(1, passages + 1))},
            "key_evidence": {"type": "string", "description": "Copied from the passage, or empty."},
            "answerability": {"type": "boolean"},
            "relevance_score": {"type": "integer", "enum": list(range(101))},
        }
    )
    return object_schema({"results": {"type": "array", "items": entry}})


def _read_entry(given: object) -> _Entry | None:
    try:
        return _Entry.model_validate(given)
    except ValidationError:
        return None
