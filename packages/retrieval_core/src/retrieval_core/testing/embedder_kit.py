"""The conformance tests of embedders, for pytest.

Subclass :class:`EmbedderConformance` in a test module, and give it the embedder as a fixture::

    class TestMyEmbedder(EmbedderConformance):
        @pytest.fixture
        def embedder(self):
            return MyEmbedder()

Each test uses the embedder from new event loops, so one that is slow to create can be shared by all tests.
"""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from retrieval_core.ports import Embedder, as_plugin
from retrieval_core.testing.blocking import blocking_calls_fail

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from retrieval_core.types import Matrix

PASSAGES = (
    "Bake the bread for forty minutes until its crust is brown.",
    "The telescope showed the rings of the planet Saturn.",
    "Interest on the loan is due at the end of each month.",
)
"""Three passages without a word in common that carries meaning."""

QUESTIONS = (
    "How many minutes to bake bread with a brown crust?",
    "Which planet has rings that a telescope showed?",
    "When in the month is interest on a loan due?",
)
"""A question to each passage, in the same order, in the passage's own words."""

HOSTILE_TEXTS = (
    "",
    " \t\r\n\u00a0\u2003",
    "\x00",
    "before\x00after\x1b[31m",
    "\ud800",
    "half a pair \udc00 and text",
    "👩‍👩‍👧‍👦 🇩🇪 😀",
    "e\u0301" * 50 + "\u0301" * 200,
    "\u202eright to left\u202c שלום مرحبا",
    "日本語の文章には空白がありません。",
    "\ufeff\u200b\u200d\ufffd\uffff",
    "[CLS] [SEP] [PAD] </s> <|endoftext|>",
    "x" * 100_000,
    "word " * 20_000,
)
"""Texts that have broken embedders."""

_TOLERANCE = 1e-5


class EmbedderConformance:
    """The promises of :class:`~retrieval_core.ports.Embedder`, one test each."""

    def test_queries_are_unit_vectors(self, embedder: Embedder) -> None:
        """A query becomes one float32 vector of unit length and of the declared dimension."""
        vector = _run(embedder.embed_query(QUESTIONS[0]))
        assert vector.shape == (embedder.dimension,)
        _assert_unit_rows(vector[np.newaxis])

    def test_passages_are_unit_vectors(self, embedder: Embedder) -> None:
        """Passages become a float32 matrix with one row of unit length for each."""
        vectors = _run(embedder.embed_texts(PASSAGES))
        assert vectors.shape == (len(PASSAGES), embedder.dimension)
        _assert_unit_rows(vectors)

    def test_no_passages(self, embedder: Embedder) -> None:
        """No passages become no rows, of the declared dimension nevertheless."""
        vectors = _run(embedder.embed_texts([]))
        assert vectors.shape == (0, embedder.dimension)
        assert vectors.dtype == np.float32

    def test_the_same_text_gives_the_same_vector(self, embedder: Embedder) -> None:
        """Embedding again, alone or among other texts, changes nothing."""
        together = _run(embedder.embed_texts(PASSAGES))
        alone = np.concatenate([_run(embedder.embed_texts([text])) for text in PASSAGES])
        np.testing.assert_allclose(together, alone, atol=_TOLERANCE)
        first, second = _run(embedder.embed_query(QUESTIONS[0])), _run(embedder.embed_query(QUESTIONS[0]))
        np.testing.assert_allclose(first, second, atol=_TOLERANCE)

    def test_rows_are_in_the_order_of_the_texts(self, embedder: Embedder) -> None:
        """Reversing a long list of texts reverses the rows."""
        texts = [f"{PASSAGES[number % 3]} Number {number}." for number in range(50)]
        forwards, backwards = _run(embedder.embed_texts(texts)), _run(embedder.embed_texts(texts[::-1]))
        np.testing.assert_allclose(forwards, backwards[::-1], atol=_TOLERANCE)

    def test_a_question_is_nearest_to_its_answer(self, embedder: Embedder) -> None:
        """Queries and passages share one space, where the cosine tells what belongs together."""
        passages = _run(embedder.embed_texts(PASSAGES))
        nearest = [int(np.argmax(passages @ _run(embedder.embed_query(question)))) for question in QUESTIONS]
        assert nearest == [0, 1, 2]

    def test_hostile_texts_are_embedded(self, embedder: Embedder) -> None:
        """Empty, malformed and very long texts become unit vectors like any other, as passages and as queries."""
        _assert_unit_rows(_run(embedder.embed_texts(HOSTILE_TEXTS)))
        _assert_unit_rows(np.stack([_run(embedder.embed_query(text)) for text in HOSTILE_TEXTS]))

    def test_concurrent_calls_do_not_mix(self, embedder: Embedder) -> None:
        """Calls made at the same time give what they give one after the other."""

        async def at_once() -> tuple[list[Matrix], list[Matrix]]:
            queries = asyncio.gather(*(embedder.embed_query(text) for text in QUESTIONS * 4))
            matrices = asyncio.gather(*(embedder.embed_texts(PASSAGES[: number + 1]) for number in range(3)))
            return await queries, await matrices

        queries, matrices = _run(at_once())
        expected = [_run(embedder.embed_query(text)) for text in QUESTIONS] * 4
        np.testing.assert_allclose(np.stack(queries), np.stack(expected), atol=_TOLERANCE)
        passages = _run(embedder.embed_texts(PASSAGES))
        for matrix in matrices:
            np.testing.assert_allclose(matrix, passages[: len(matrix)], atol=_TOLERANCE)

    def test_several_questions_at_once(self, embedder: Embedder) -> None:
        """An embedder that takes several questions gives each the vector that it has alone, in their order."""
        if "embed_queries" not in as_plugin(embedder, Embedder).capabilities:
            pytest.skip("this embedder takes one question at a time")
        together = _run(embedder.embed_queries(QUESTIONS))
        alone = np.stack([_run(embedder.embed_query(question)) for question in QUESTIONS])
        np.testing.assert_allclose(together, alone, atol=_TOLERANCE)
        assert _run(embedder.embed_queries([])).shape == (0, embedder.dimension)

    def test_opened_anew_it_gives_the_same(self, embedder: Embedder) -> None:
        """An embedder that can be opened anew is the same afterwards, and may be opened anew at any time."""
        if "reopen" not in as_plugin(embedder, Embedder).capabilities:
            pytest.skip("this embedder cannot be opened anew")
        _run(embedder.reopen())
        before, name = _run(embedder.embed_query(QUESTIONS[0])), embedder.id
        _run(embedder.reopen())
        np.testing.assert_allclose(_run(embedder.embed_query(QUESTIONS[0])), before, atol=_TOLERANCE)
        assert embedder.id == name

    def test_loaded_beforehand_it_gives_the_same(self, embedder: Embedder) -> None:
        """An embedder that can be loaded before the first text gives the same then, however often it is loaded."""
        if "preload" not in as_plugin(embedder, Embedder).capabilities:
            pytest.skip("this embedder cannot be loaded beforehand")
        before = _run(embedder.embed_query(QUESTIONS[0]))
        if "reopen" in as_plugin(embedder, Embedder).capabilities:
            _run(embedder.reopen())
        embedder.preload()
        embedder.preload()
        np.testing.assert_allclose(_run(embedder.embed_query(QUESTIONS[0])), before, atol=_TOLERANCE)

    def test_the_event_loop_is_not_blocked(self, embedder: Embedder) -> None:
        """No call that blocks is made on the event loop; checked where BlockBuster is installed."""

        async def embed() -> None:
            await embedder.embed_query(QUESTIONS[0])
            await embedder.embed_texts(PASSAGES)

        with blocking_calls_fail():
            _run(embed())

    def test_the_id_is_stable(self, embedder: Embedder) -> None:
        """The id is a name, and embedding does not change it."""
        before = embedder.id
        assert before
        _run(embedder.embed_query(QUESTIONS[0]))
        assert embedder.id == before

    def test_tokens_are_counted(self, embedder: Embedder) -> None:
        """An embedder that counts tokens counts none in empty text, and more in more text."""
        if "count_tokens" not in as_plugin(embedder, Embedder).capabilities:
            pytest.skip("this embedder does not count tokens")
        assert embedder.max_tokens >= 1
        assert embedder.count_tokens("") == 0
        assert 0 < embedder.count_tokens(PASSAGES[0]) < embedder.count_tokens(" ".join(PASSAGES))
        assert all(embedder.count_tokens(text) >= 0 for text in HOSTILE_TEXTS)

    def test_tokens_beyond_the_limit_are_not_seen(self, embedder: Embedder) -> None:
        """What lies past the longest text that the embedder reads does not change the vector."""
        if "count_tokens" not in as_plugin(embedder, Embedder).capabilities:
            pytest.skip("this embedder does not count tokens")
        full = "word " * embedder.max_tokens
        vectors = _run(embedder.embed_texts([full + PASSAGES[0], full + PASSAGES[1]]))
        np.testing.assert_allclose(vectors[0], vectors[1], atol=_TOLERANCE)


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def _assert_unit_rows(vectors: Matrix) -> None:
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=_TOLERANCE)
