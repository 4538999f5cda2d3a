"""Asking a language model for a passage that would answer the question, to search for passages like it.

From Gao, Ma, Lin and Callan, "Precise Zero-Shot Dense Retrieval without Relevance Labels" (HyDE), ACL 2023.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from retrieval_core.adapters.registry import Adapter
from retrieval_core.errors import MalformedAnswerError
from retrieval_core.ports import Transformed, Variant
from retrieval_core.text.prompting import Asking, Task, as_data
from retrieval_core.text.texts import clipped, is_searchable, key

if TYPE_CHECKING:
    from retrieval_core.ports import LLM, QueryContext

DEFAULT_PROMPT = (
    "Generate a hypothetical document passage that would perfectly answer the question. Write it as it would stand in "
    "such a document, in the language of the question, in about five sentences, without a heading and without a word "
    "about yourself. It is only used to find real passages that are like it, so what it says need not be true."
)
"""The instructions where no others are given; the specification's, and what keeps the passage like a passage."""

_FORM = 'Answer with a JSON object, as in {"passage": "..."}. "passage" is the passage alone.'
_LONGEST = 2000
_WEIGHT = 0.5


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True)

    passage: str


_TASK = Task("hyde", DEFAULT_PROMPT, _FORM, {"passage": {"type": "string"}}, _Answer)


class HyDEGenerator:
    """Searches for what is like a made-up answer too: a :class:`~retrieval_core.ports.QueryTransformer`.

    The passage is embedded as passages are, and compared by meaning alone: its words are the model's own, and would
    find passages that share its mistakes. What is found so counts half: as much as the dense side does by default.

    Args:
        llm: What is asked; it stays the caller's to close.
        prompt: Instructions in place of :data:`DEFAULT_PROMPT`. They replace neither the form of the answer nor the
            rule that the question is data.

    Raises:
        InvalidParameterError: The prompt is blank.
    """

    def __init__(self, llm: LLM, *, prompt: str | None = None) -> None:
        self._asking = Asking(llm, _TASK, prompt, _LONGEST, _WEIGHT)

    @property
    def id(self) -> str:
        """Names the model, and a digest of everything that it is shown besides the question."""
        return self._asking.id

    async def transform(self, query: str, context: QueryContext) -> Transformed:  # noqa: ARG002 - the port's
        """Return one variant; none where the passage only repeats the question.

        Raises:
            MalformedAnswerError: The answer has no passage.
            ServiceError: The provider failed.
        """
        answer, usage = await self._asking.ask(as_data("question", query))
        passage = clipped(answer.passage, _LONGEST)
        if not is_searchable(passage):
            msg = f"{self._asking.llm_id} was asked for a passage and answered with one that has no words"
            raise MalformedAnswerError(msg, self._asking.llm_id)
        if key(passage) == key(query):
            return Transformed(reason="the passage only repeats the question", usage=usage)
        variant = Variant("passage", passage, frozenset({"dense"}), is_passage=True, weight=_WEIGHT)
        return Transformed(variants=(variant,), reason="a passage that might answer", usage=usage)


ADAPTER = Adapter(
    lambda transform, parts: HyDEGenerator(parts.model, prompt=transform.prompts.get("hyde")), asks_llm=True
)
