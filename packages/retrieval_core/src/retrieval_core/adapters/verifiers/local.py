"""The verifier that compares words and figures, without a model."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from retrieval_core.adapters.local_models.work import Pooled
from retrieval_core.adapters.registry import Adapter
from retrieval_core.ports import Verdicts, Verified
from retrieval_core.text.claims import Difference, Reading, Token, compare, read
from retrieval_core.text.sentences import sentences_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_RULES = 4
"""Version of the rules: raised with every change that may give another verdict."""
_LONGEST_READ = 2000
"""Code points of a sentence; longer ones are not compared."""
_SUBJECT = 4
"""Words at the start of a sentence that a pronoun in the next may stand for."""
_HEADING = re.compile(r"(?:#{1,6}[^\S\n][^\n]*\n\s*)+")
_STATES_NOTHING = re.compile(r"[?？؟][\W_]*\Z|~~")  # noqa: RUF001
"""Questions, and text that is struck out."""


class LocalVerifier(Pooled):
    """Compares words, figures, names and negations; a :class:`~retrieval_core.ports.Verifier` without a model.

    A sentence is supported where a sentence of a passage says it in the same words and in the same order, apart from
    endings and small words, with the same figures (in any form: ``1,000`` and ``one thousand``, ``90 s`` and
    ``1.5 minutes``) and the same negations. It is contradicted where one says just that, but for one figure, unit, date
    or name that is another one, or one negation. Everything else is not found, and so is most of what is said in other
    words: :class:`~retrieval_core.adapters.verifiers.llm.LLMVerifier` finds more.
    :mod:`retrieval_core.text.claims.comparison` has the rules, ``docs/measurements.md`` how often they are right.

    The small words and negations are those of English. In other languages only what is word for word the passage's is
    supported.

    Args:
        batch_size: Sentences of one call, at least 1.
        threads: Calls that are worked on at a time, at least 1.

    Raises:
        InvalidParameterError: ``batch_size`` or ``threads`` is less than 1.
    """

    def __init__(self, *, batch_size: int = 32, threads: int = 1) -> None:
        super().__init__("verifier", threads, batch_size)

    @property
    def id(self) -> str:
        """Names the method and its rules."""
        return f"exact-comparison-{_RULES}"

    async def verify(self, query: str, sentences: Sequence[str], passages: Sequence[str]) -> Verdicts:  # noqa: ARG002
        """Check sentences against passages, regardless of the question."""
        known = await self._pool.run(statements_of, tuple(passages))
        # One by one, so that a call that is cancelled ends with the sentence that is being compared.
        return Verdicts(tuple([await self._pool.run(verify, sentence, known) for sentence in sentences]))


ADAPTER = Adapter(lambda _, __: LocalVerifier())


class Statement(NamedTuple):
    """A sentence of a passage.

    Attributes:
        passage: The passage's index, from 0.
        context: Words that a pronoun in it may stand for.
    """

    passage: int
    text: str
    reading: Reading
    context: tuple[Token, ...]


def statements_of(passages: Sequence[str]) -> tuple[Statement, ...]:
    """Return the sentences of all passages, in order."""
    return tuple(statement for place, text in enumerate(passages) for statement in _statements(place, text))


def verify(sentence: str, statements: Sequence[Statement]) -> Verified:
    """Return the verdict on one sentence: by the first statement that says it, else the first that contradicts it."""
    claim = read(sentence if len(sentence) <= _LONGEST_READ else "")
    contradicted: tuple[Statement, Difference] | None = None
    for statement in statements:
        found = compare(claim, statement.reading, statement.context)
        if found == "same":
            return Verified("supported", statement.passage, statement.text, "the passage says the same")
        if found is not None and contradicted is None:
            contradicted = statement, found
    if contradicted is None:
        return Verified("not_found", reason="no passage says the same in the same words, or differs in only one fact")
    statement, found = contradicted
    reason = f"the passage says {found.sentence!r:.80}, the answer {found.claim!r:.80}"
    if found.is_denial:
        reason = f"either the passage or the answer denies {found.claim!r:.80}, and not both"
    return Verified("contradicted", statement.passage, statement.text, reason)


def _statements(place: int, passage: str) -> Iterator[Statement]:
    subject: tuple[Token, ...] = ()
    for sentence in sentences_of(passage):
        text = passage[sentence.span.start : sentence.span.end]
        if (heading := _HEADING.match(text)) is not None:
            subject = read(heading[0][:_LONGEST_READ]).tokens
            text = text[heading.end() :]
        if len(text) > _LONGEST_READ or _STATES_NOTHING.search(text):
            continue
        reading = read(text)
        yield Statement(place, text, reading, subject)
        if not reading.by_pronoun:
            subject = reading.tokens[:_SUBJECT]
