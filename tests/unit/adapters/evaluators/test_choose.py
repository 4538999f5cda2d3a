from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.adapters import evaluators
from retrieval_core.adapters.evaluators import choose_evaluator
from retrieval_core.adapters.evaluators.local import LocalEvaluator
from retrieval_core.adapters.registry import build_evaluator
from retrieval_core.config import EvaluationConfig
from retrieval_core.errors import ConfigurationError, MissingExtraError
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.testing.fakes_llm import FakeLLM

if TYPE_CHECKING:
    from collections.abc import Callable

LLM, EMBEDDER = FakeLLM([]), FakeEmbedder()


def returning(value: Any) -> Callable[..., Any]:
    return lambda *_args: value


@pytest.fixture
def ragas_is(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Make RAGAS look installed, or not."""

    def install(there: bool) -> None:
        spec: Any = importlib.util.spec_from_loader("ragas", None) if there else None
        monkeypatch.setattr(evaluators, "find_spec", returning(spec))
        monkeypatch.setattr("importlib.metadata.version", returning("0.4.3"))

    return install


def test_auto_takes_ragas_where_everything_is_there(ragas_is: Callable[[bool], None]) -> None:
    """It needs the extra, a language model and an embedder."""
    ragas_is(True)
    assert choose_evaluator("auto", LLM, EMBEDDER).id == f"ragas-0.4.3 {LLM.id} {EMBEDDER.id} 3"


@pytest.mark.parametrize(
    ("installed", "llm", "embedder"), [(False, LLM, EMBEDDER), (True, None, EMBEDDER), (True, LLM, None)]
)
def test_auto_estimates_where_something_is_missing(
    ragas_is: Callable[[bool], None], installed: bool, llm: Any, embedder: Any
) -> None:
    """Without one of the three the scores are estimated."""
    ragas_is(installed)
    assert isinstance(choose_evaluator("auto", llm, embedder), LocalEvaluator)


def test_local_never_looks_for_ragas(ragas_is: Callable[[bool], None]) -> None:
    """Who wants the estimate gets it."""
    ragas_is(True)
    assert isinstance(choose_evaluator("local", LLM, EMBEDDER), LocalEvaluator)


def test_ragas_without_its_extra_names_the_line_to_install_it(ragas_is: Callable[[bool], None]) -> None:
    """The message holds the pip command."""
    ragas_is(False)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[ragas\]"):
        choose_evaluator("ragas", LLM, EMBEDDER)


@pytest.mark.parametrize(
    ("llm", "embedder", "missing"),
    [(None, EMBEDDER, ("llm.kind",)), (LLM, None, ("embedder.kind",)), (None, None, ("llm.kind", "embedder.kind"))],
)
def test_ragas_without_its_models_names_the_settings(
    ragas_is: Callable[[bool], None], llm: Any, embedder: Any, missing: tuple[str, ...]
) -> None:
    """The error says which settings are to be set."""
    ragas_is(True)
    with pytest.raises(ConfigurationError, match=r"evaluation\.kind = 'local'") as caught:
        choose_evaluator("ragas", llm, embedder)
    assert caught.value.missing_keys == missing


def test_an_unknown_kind_is_refused() -> None:
    """The message lists those that there are."""
    with pytest.raises(ConfigurationError, match="'best' is none of auto, ragas, local"):
        build_evaluator(EvaluationConfig(kind="best"), LLM, EMBEDDER)
