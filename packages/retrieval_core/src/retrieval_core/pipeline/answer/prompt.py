"""What a language model is asked when it is to answer a question from passages, or without any."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from retrieval_core.ports import CompletionRequest, Message
from retrieval_core.text.markers import MISSING
from retrieval_core.text.prompting import TEMPLATE_RULE, as_data, chosen_prompt, framed, last_turns
from retrieval_core.types import format_citation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from retrieval_core.types import ContextPack

UNAVAILABLE = "Document search unavailable. Providing general response:\n\n"
"""The specification's first words of an answer without documents."""

DEFAULT_PROMPT = (
    "You answer a question from passages that were found in the user's documents. First consider of each passage "
    "whether it bears on the question; use those that do, and nothing else: no knowledge of your own, no guesses. "
    "Answer thoroughly and well ordered, in the question's language, with the numbers, names and conditions that "
    "matter. Where passages contradict each other, say so, and what each of them says. Where they do not hold the "
    f'answer, answer exactly: "{MISSING}" Where they hold a part of it, give that part and say what is missing.'
)
"""The instructions where no others are given: the specification's rules."""

_FORM = (
    "Write Markdown. Put behind each sentence the numbers of the passages that it rests on, each in square brackets, "
    "as in [1] or [2][5]. Use no numbers but those of the passages, and add no list of sources. The line "
    '"conversation", where there is one, holds what was said before the question: it tells what the question means, '
    "and is no source."
)
_PLACES = re.compile(r"\{facts\}|\{query\}")
"""The placeholders of a custom prompt for the passages and the question."""
_WITHOUT_DOCUMENTS = (
    "The search of the user's documents is unavailable at the moment, so you see none of them. Acknowledge that "
    "briefly, then help with the question as far as general knowledge goes, and say what should be looked up once the "
    "search works again."
)
_FORM_WITHOUT_DOCUMENTS = "Write a few sentences of Markdown. Cite nothing; you have not read the documents."


def answer_request(
    query: str, history: Sequence[Message], pack: ContextPack, *, prompt: str | None, max_tokens: int | None
) -> CompletionRequest:
    """Return what a language model is asked to answer from passages.

    Args:
        query: As it was asked.
        history: The conversation before it; its last turns are shown.
        pack: The passages, each of which is shown with its number and where it is from.
        prompt: Instructions in place of :data:`DEFAULT_PROMPT`. They replace neither the form of the answer nor the
            rule that passages are data. ``{facts}`` in it is replaced by the passages, and ``{query}`` by the question.
        max_tokens: The longest answer, in the model's tokens.

    Raises:
        InvalidParameterError: The prompt is blank.
    """
    instructions = chosen_prompt(prompt, DEFAULT_PROMPT)
    before, question, passages = [*_conversation(query, history)], as_data("question", query), [*_passages(pack)]
    if not _PLACES.search(instructions):
        return CompletionRequest(framed(instructions, _FORM, [*before, question, *passages]), max_tokens=max_tokens)
    values = {"{facts}": "\n".join(passages), "{query}": question.removeprefix('question: "').removesuffix('"')}
    filled = _PLACES.sub(lambda place: values[place[0]], instructions)
    left_out = [question] * ("{query}" not in instructions) + passages * ("{facts}" not in instructions)
    user = "\n".join([*before, filled, *left_out])
    return CompletionRequest(
        (Message("system", f"{_FORM}\n\n{TEMPLATE_RULE}"), Message("user", user)), max_tokens=max_tokens
    )


def request_without_documents(query: str, history: Sequence[Message], *, max_tokens: int | None) -> CompletionRequest:
    """Return what a language model is asked when nothing could be searched."""
    lines = [*_conversation(query, history), as_data("question", query)]
    return CompletionRequest(framed(_WITHOUT_DOCUMENTS, _FORM_WITHOUT_DOCUMENTS, lines), max_tokens=max_tokens)


def _conversation(query: str, history: Sequence[Message]) -> Iterator[str]:
    if turns := last_turns(query, history):
        yield as_data("conversation", [{"role": turn.role, "content": turn.content} for turn in turns])


def _passages(pack: ContextPack) -> Iterator[str]:
    for passage in pack.passages:
        place = format_citation(passage.citation)
        yield as_data(f"passage {passage.citation.number}", {"from": place, "text": passage.text})
