"""The relevance filter that asks a language model."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, Field, RootModel

from retrieval_core.adapters.parts import AsksInBatches
from retrieval_core.config.base import AdapterSettings
from retrieval_core.ports import CompletionRequest, Judgements, RelevanceFilter
from retrieval_core.text.prompting import (
    as_data,
    chosen_prompt,
    framed,
    in_order,
    object_schema,
    parse_answer,
    passages_as_data,
    schema_by_passage,
)
from retrieval_core.types import Judgement

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from retrieval_core.adapters.parts import AdapterParts
    from retrieval_core.ports import LLM, Message
    from retrieval_core.types import JSON, Chunk

DEFAULT_PROMPT = (
    "You judge search results. Say for each passage whether it helps to answer the question. A passage helps if it "
    "holds the answer, a part of it, or a fact that an answer needs. One that shares words or the topic with the "
    "question and says nothing that answers it does not help."
)
"""The default instructions."""

# Part of a relevance filter's id through its digest, as everything that the model is shown.
_ANSWER = (
    "Answer with a JSON object that has one property for each passage, named by the passage's number, as in "
    '{"1": {"reason": "...", "relevant": true, "score": 0.9}}. "reason" is one sentence on what makes the passage '
    'relevant or not. "relevant" is true if it helps and false if not. "score" is a number from 0 (says nothing about '
    "the question) to 1 (answers it)."
)
_PASSAGE_CHARACTERS = 6000


class _Verdict(BaseModel):
    reason: str
    relevant: bool
    score: Annotated[float, Field(ge=0, le=1)]


class _Verdicts(RootModel[dict[str, _Verdict]]): ...


_VERDICT: dict[str, JSON] = object_schema(
    {
        "reason": {"type": "string", "description": "One sentence."},
        "relevant": {"type": "boolean"},
        "score": {"type": "number", "enum": [tenth / 10 for tenth in range(11)]},
    }
)


class LLMRelevanceFilterSettings(AdapterSettings):
    """A language model that judges chunks."""

    prompt: str | None = None
    """Instructions in place of the built-in ones."""


class LLMRelevanceFilter(AsksInBatches, RelevanceFilter):
    """Asks a language model which passages help to answer; a :class:`~retrieval_core.ports.RelevanceFilter`.

    The schema of the answer requires a property for each passage by name, so that a provider that keeps to it can
    neither leave a passage out nor make one up, without bounds on lists, which some providers refuse.

    The model sees a passage's title, headings and text, up to 6000 code points, as data: see
    :mod:`retrieval_core.text.prompting`.

    Args:
        llm: Stays the caller's to close.
        prompt: Instructions in place of :data:`DEFAULT_PROMPT`. They replace neither the form of the answer nor the
            rule that passages are data.
        batch_size: Passages judged in one request; at least 1.

    Raises:
        InvalidParameterError: ``batch_size`` is less than 1, or the prompt is blank.
    """

    Settings = LLMRelevanceFilterSettings

    def __init__(self, llm: LLM, *, prompt: str | None = None, batch_size: int = 1) -> None:
        super().__init__(llm, chosen_prompt(prompt, DEFAULT_PROMPT), batch_size)

    @classmethod
    def from_settings(cls, settings: LLMRelevanceFilterSettings, parts: AdapterParts) -> Self:
        """Make it from its settings, loading nothing."""
        return cls(parts.model, **dict(settings))

    @property
    def id(self) -> str:
        """Names the model, the number of passages in a request, and a digest of everything else that it is shown."""
        shown = "\n".join(message.content for message in self._messages("", []))
        digest = sha256(f"{_PASSAGE_CHARACTERS}\n{shown}".encode("utf-8", "surrogatepass")).hexdigest()[:12]
        return f"{self._llm.id} relevance-{self._batch_size}@{digest}"

    async def _judge(self, query: str, chunks: Sequence[Chunk]) -> Judgements:
        """Judge passages by themselves, each against the question, in one request."""
        if not chunks:
            return Judgements(())
        schema = schema_by_passage(len(chunks), _VERDICT)
        completion = await self._llm.complete(CompletionRequest(self._messages(query, chunks), schema=schema))
        verdicts = parse_answer(completion.text, _Verdicts, self._llm.id).root
        ordered = in_order(verdicts, len(chunks), self._llm.id, completion.text)
        return Judgements(tuple(map(_judgement, ordered)), completion.usage)

    def _messages(self, query: str, chunks: Sequence[Chunk]) -> tuple[Message, Message]:
        passages = passages_as_data((chunk.indexed_text for chunk in chunks), _PASSAGE_CHARACTERS)
        return framed(self._prompt, _ANSWER, [as_data("question", query), *passages])


def _judgement(verdict: _Verdict) -> Judgement:
    return Judgement(verdict.relevant, verdict.score, " ".join(verdict.reason.split()))
