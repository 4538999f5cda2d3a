"""Hypothetical document embeddings: a language model writes a passage, and the search finds passages like it.

From Gao, Ma, Lin and Callan, "Precise Zero-Shot Dense Retrieval without Relevance Labels" (HyDE), ACL 2023.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel

from retrieval_core.adapters.parts import AsksLLM
from retrieval_core.errors import MalformedAnswerError
from retrieval_core.ports import QueryTransformer, Transformed, Variant
from retrieval_core.text.prompting import Task, as_data, clipped, is_searchable, key

if TYPE_CHECKING:
    from retrieval_core.ports import QueryContext

DEFAULT_PROMPT = (
    "Generate a hypothetical document passage that would perfectly answer the question. Write it as it would stand in "
    "such a document, in the language of the question, in about five sentences, without a heading and without a word "
    "about yourself. It is only used to find real passages that are like it, so what it says need not be true."
)
"""The default instructions: the specification's, and what keeps the passage like a passage."""

_FORM = 'Answer with a JSON object, as in {"passage": "..."}. "passage" is the passage alone.'
_LONGEST = 2000
_WEIGHT = 0.5


class _Answer(BaseModel):
    passage: str


class HyDEGenerator(AsksLLM[_Answer], QueryTransformer):
    """Add a hypothetical answer to the query (HyDE); a :class:`~retrieval_core.ports.QueryTransformer`.

    The answer is embedded as a chunk, and used for vector search only, since keyword search for it would find chunks
    that share its mistakes. Its weight is 0.5.
    """

    _task = Task("hyde", DEFAULT_PROMPT, _FORM, {"passage": {"type": "string"}}, _Answer)
    _settings = (_LONGEST, _WEIGHT)

    async def _transform(self, query: str, context: QueryContext) -> Transformed:  # noqa: ARG002 - the port's
        """Return one variant; none where the passage only repeats the question."""
        answer, usage = await self._asking.ask(as_data("question", query))
        passage = clipped(answer.passage, _LONGEST)
        if not is_searchable(passage):
            msg = f"{self._asking.llm_id} returned a hypothetical answer without words"
            raise MalformedAnswerError(msg, self._asking.llm_id)
        if key(passage) == key(query):
            return Transformed(reason="the passage only repeats the question", usage=usage)
        variant = Variant("passage", passage, frozenset({"dense"}), is_passage=True, weight=_WEIGHT)
        return Transformed(variants=(variant,), reason="a passage that might answer", usage=usage)
