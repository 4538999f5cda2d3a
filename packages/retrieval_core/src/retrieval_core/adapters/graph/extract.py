"""The extraction of facts from passages by a language model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel, RootModel

from retrieval_core.adapters.graph.names import is_all_stop_words, key_of, mentions
from retrieval_core.adapters.graph.triples import Triple
from retrieval_core.ports import CompletionRequest
from retrieval_core.text.prompting import (
    chosen_prompt,
    framed,
    in_order,
    object_schema,
    parse_answer,
    passages_as_data,
    schema_by_passage,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from retrieval_core.ports import LLM
    from retrieval_core.types import JSON, Chunk, Usage

DEFAULT_PROMPT = (
    "You read passages and note the facts that they state, each as a subject, a relation and an object. Subject and "
    "object are names as the passage writes them: people, places, organisations, products, commands, settings, terms "
    "that are explained. The relation is a verb or a noun of few words, such as 'born in' or 'replaces', in the "
    "passage's language. Note what someone may ask for later; leave out what is only mentioned, pronouns, and whatever "
    "the passage does not state itself. At most 20 facts of each passage, the most important first; none is fine."
)
"""The default instructions."""
MOST_TRIPLES_OF_CHUNK = 20
"""The most facts that are kept of one chunk, the first ones."""
LONGEST_EXTRACTED = 120
"""The most code points of a name or a relation; a longer one is a sentence, and dropped."""

_FORM = (
    'Answer with a JSON object that has one property for each passage, named by the passage\'s number, as in {"1": '
    '[{"subject": "...", "relation": "...", "object": "..."}]}. Its value is the list of the facts of that passage.'
)
_PASSAGE_CHARACTERS = 6000


class _Fact(BaseModel):
    subject: str
    relation: str
    object: str


class _Answer(RootModel[dict[str, list[_Fact]]]): ...


_FACTS: dict[str, JSON] = {
    "type": "array",
    "items": object_schema(
        {"subject": {"type": "string"}, "relation": {"type": "string"}, "object": {"type": "string"}}
    ),
}


@dataclass(frozen=True, slots=True)
class ExtractedFacts:
    """The facts of several chunks.

    Attributes:
        triples: Of each chunk, in the order of the chunks.
        dropped: How many of the model's facts were not kept.
    """

    triples: tuple[tuple[Triple, ...], ...]
    dropped: int = 0
    usage: Usage | None = None


class TripleExtractor:
    """Asks a language model for the facts in several chunks, in one request.

    The model sees title, headings and text of a chunk, up to 6000 code points, as data: see
    :mod:`retrieval_core.text.prompting`. A fact is dropped where its subject or its object does not stand in that chunk
    (it was made up, or put in other words), is nothing but stop words, or is longer than 120 code points.

    Args:
        llm: Stays the caller's to close.
        prompt: Instructions in place of :data:`DEFAULT_PROMPT`. They replace neither the form of the answer nor the
            rule that passages are data.

    Raises:
        InvalidParameterError: The prompt is blank.
    """

    def __init__(self, llm: LLM, *, prompt: str | None = None) -> None:
        self._llm = llm
        self._prompt = chosen_prompt(prompt, DEFAULT_PROMPT)

    async def extract(self, chunks: Sequence[Chunk]) -> ExtractedFacts:
        """Return the facts of chunks, with their chunk and document ids.

        Raises:
            MalformedAnswerError: The answer is none, lacks a passage or has one that was not given.
            ServiceError: The provider failed.
        """
        if not chunks:
            return ExtractedFacts(())
        passages = passages_as_data((chunk.indexed_text for chunk in chunks), _PASSAGE_CHARACTERS)
        messages = framed(self._prompt, _FORM, passages)
        request = CompletionRequest(messages, schema=schema_by_passage(len(chunks), _FACTS))
        completion = await self._llm.complete(request)
        answer = parse_answer(completion.text, _Answer, self._llm.id).root
        found = in_order(answer, len(chunks), self._llm.id, completion.text)
        kept = tuple(
            tuple(dict.fromkeys(_stated(facts, chunk)))[:MOST_TRIPLES_OF_CHUNK]
            for facts, chunk in zip(found, chunks, strict=True)
        )
        return ExtractedFacts(kept, sum(map(len, found)) - sum(map(len, kept)), completion.usage)


def _stated(facts: Sequence[_Fact], chunk: Chunk) -> Iterator[Triple]:
    """Yield the facts whose subject and object stand in the chunk."""
    text = key_of(chunk.indexed_text)
    for fact in facts:
        parts = [" ".join(part.split()) for part in (fact.subject, fact.relation, fact.object)]
        if not all(0 < len(part) <= LONGEST_EXTRACTED for part in parts):
            continue
        subject, object_ = key_of(parts[0]), key_of(parts[2])
        if subject == object_ or is_all_stop_words(subject) or is_all_stop_words(object_):
            continue
        if mentions(text, subject) and mentions(text, object_):
            yield Triple(parts[0], parts[1], parts[2], chunk.id, chunk.document_id)
