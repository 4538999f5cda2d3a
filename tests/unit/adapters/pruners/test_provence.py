"""The adapter for Provence, with stand-ins for the model: the model itself was never run."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.adapters.pruners.provence import MODEL, REVISION, ProvencePruner, aligned
from retrieval_core.errors import ConfigurationError, MalformedAnswerError, MissingExtraError, ServiceError
from retrieval_core.run.threads import PoolClosedError
from retrieval_core.testing.fakes import word_overlap
from retrieval_core.testing.pruner_kit import PrunerConformance

if TYPE_CHECKING:
    from collections.abc import Generator


class Model:
    """Divides in its own way, keeps what shares a word, and loses characters as decoded tokens do."""

    def __init__(self, answer: object = None) -> None:
        self.answer = answer
        self.calls: list[dict[str, Any]] = []

    def process(self, question: list[str], context: list[list[str]], **settings: Any) -> dict[str, Any]:
        self.calls.append({"question": question, "context": context, **settings})
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is not None:
            return self.answer  # type: ignore[return-value]
        ((query,), (texts,)) = question, context
        pruned = ["".join(self._kept(query, text)) for text in texts]
        return {"pruned_context": [pruned], "reranking_score": [[1.0] * len(pruned)]}

    def _kept(self, query: str, text: str) -> Generator[str]:
        for sentence in re.split(r"(?<=[.!?]) ", text):
            if word_overlap(query, sentence):
                yield f" {sentence.replace('½', '').replace('  ', ' ')}"


class TestConformance(PrunerConformance):
    @pytest.fixture
    def pruner(self) -> Generator[ProvencePruner]:
        pruner = ProvencePruner(load=Model)
        yield pruner
        asyncio.run(pruner.aclose())


def keep(model: Model, *passages: list[str]) -> tuple[tuple[bool, ...], ...]:
    pruner = ProvencePruner(load=lambda: model, threshold=0.4)

    async def scenario() -> tuple[tuple[bool, ...], ...]:
        try:
            return (await pruner.keep("moon", passages)).kept
        finally:
            await pruner.aclose()

    return asyncio.run(scenario())


def test_one_call_for_all_passages() -> None:
    """A question with all its passages, none of them a title."""
    model = Model()
    assert keep(model, ["The moon is far.", "Bread."], ["Milk.", "A moon."]) == ((True, False), (False, True))
    assert model.calls == [
        {
            "question": ["moon"],
            "context": [["The moon is far. Bread.", "Milk. A moon."]],
            "title": None,
            "threshold": 0.4,
            "always_select_title": False,
            "enable_warnings": False,
        }
    ]


@pytest.mark.parametrize(
    ("sentences", "pruned", "kept"),
    [
        (["One two.", "Three four."], "", (False, False)),
        (["One two.", "Three four."], "One two. Three four.", (True, True)),
        (["One two.", "Three four."], " three   FOUR", (False, True)),
        (["About 2½ miles far.", "It rains."], "About 2 miles far.", (True, False)),
        (["It rains today.", "It snows.", "It rains today."], "It snows.", (False, True, False)),
        (["It is. It is a long way to the moon.", "No."], "It is a long way to the moon.", (True, False)),
        (["A long list of ten words stands here. Yes.", "No."], "Yes.", (False, False)),
        (["It rains.", "It rains.", "No."], "It rains.", (True, False, False)),
        (
            ["The sea. The sea is blue and the sea is deep.", "No."],
            "The sea is blue and the sea is deep.",
            (True, False),
        ),
        (["A.", "A moon.", "A moon rises."], "A moon rises.", (False, False, True)),
        (["Yes. " * 3000, "No."], "Yes. " * 3000, (True, False)),
        (["one", "two", "three."], "two three.", (False, True, True)),
        (["The moon is far.", "Bread."], "Something else entirely.", None),
        (["The moon is far.", "Bread."], "The moon is far. And I made this up.", None),
        (["Yes.", "***", "Also."], "Yes. Also.", (True, True, True)),
        (["Yes.", "***", "Never."], "Yes.", (True, False, False)),
        (["月は遠い。", "パンは茶色。"], "月は遠い。", (True, False)),
        ([], "", ()),
    ],
)
def test_alignment(sentences: list[str], pruned: str, kept: tuple[bool, ...] | None) -> None:
    """Sentences are found by their letters, whatever was done to white space, case and rare characters."""
    assert aligned(sentences, pruned) == kept


@pytest.mark.parametrize(
    "answer",
    [
        "text",
        {},
        {"pruned_context": "The moon."},
        {"pruned_context": [["The moon.", "one too many"]]},
        {"pruned_context": [[None]]},
        {"pruned_context": []},
        {"pruned_context": [["Something else entirely."]]},
    ],
)
def test_answers_that_cannot_be_used(answer: Any) -> None:
    """An answer of another shape, or with a text that is not from its passage, is an error that names the model."""
    with pytest.raises(MalformedAnswerError, match="naver/provence"):
        keep(Model(answer), ["The moon.", "Bread."])


def test_failures() -> None:
    """What the model raises is a failed service; nltk's missing data are something to set up."""
    with pytest.raises(ServiceError, match="out of memory"):
        keep(Model(RuntimeError("out of memory")), ["The moon.", "Bread."])
    missing = LookupError("\n****\n  Resource punkt_tab not found.\n****")
    with pytest.raises(ConfigurationError, match=r"Resource punkt_tab not found.*nltk\.downloader punkt_tab"):
        keep(Model(missing), ["The moon.", "Bread."])


def test_sixteen_threads_load_it_once() -> None:
    """The first calls wait for one load and share it."""
    loads: list[int] = []
    barrier = threading.Barrier(16)

    def load() -> Model:
        loads.append(threading.get_ident())
        return Model()

    pruner = ProvencePruner(load=load)

    def first_call() -> tuple[tuple[bool, ...], ...]:
        barrier.wait()
        return asyncio.run(pruner.keep("moon", [["A moon.", "Bread."]])).kept

    with ThreadPoolExecutor(16) as threads:
        answers = [future.result() for future in [threads.submit(first_call) for _ in range(16)]]
    assert answers == [((True, False),)] * 16
    assert len(loads) == 1
    asyncio.run(pruner.aclose())
    with pytest.raises(PoolClosedError):
        asyncio.run(pruner.keep("moon", [["A moon.", "Bread."]]))


def test_how_the_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the pinned revision, with its own code, and without gradients; a load that fails is tried again."""
    seen: list[Any] = []

    class Loaded(Model):
        def eval(self) -> Loaded:
            seen.append("eval")
            return self

        def requires_grad_(self, *, requires_grad: bool) -> Loaded:
            seen.append(requires_grad)
            return self

    class AutoModel:
        @staticmethod
        def from_pretrained(name: str, **settings: Any) -> Model:
            seen.append((name, settings))
            if len(seen) == 1:
                raise OSError("no network")
            return Loaded()

    for name in ("torch", "nltk", "transformers"):
        monkeypatch.setitem(sys.modules, name, type(sys)(name))
    monkeypatch.setattr(sys.modules["transformers"], "AutoModel", AutoModel, raising=False)
    pruner = ProvencePruner()
    with pytest.raises(ConfigurationError, match="cannot be loaded: no network"):
        asyncio.run(pruner.keep("moon", [["A moon.", "Bread."]]))
    assert asyncio.run(pruner.keep("moon", [["A moon.", "Bread."]])).kept == ((True, False),)
    asyncio.run(pruner.aclose())
    settings = {"revision": REVISION, "trust_remote_code": True}
    assert seen == [(MODEL, settings), (MODEL, settings), "eval", False]


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing library is named with what installs it."""
    monkeypatch.setitem(sys.modules, "torch", None)
    pruner = ProvencePruner()
    with pytest.raises(MissingExtraError, match=r"The pruner Provence needs the extra.*\[provence\]"):
        asyncio.run(pruner.keep("moon", [["A moon.", "Bread."]]))
    asyncio.run(pruner.aclose())
