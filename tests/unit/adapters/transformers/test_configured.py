"""Transformers and condensers as they are configured."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from retrieval_core.adapters.llms.openai import OpenAILLM
from retrieval_core.adapters.registry import build_condenser, build_transformers, model_for
from retrieval_core.adapters.transformers.condense import LLMCondenser
from retrieval_core.adapters.transformers.decompose import QueryDecomposer
from retrieval_core.adapters.transformers.heuristic import HeuristicCondenser
from retrieval_core.adapters.transformers.hyde import HyDEGenerator
from retrieval_core.adapters.transformers.keywords import KeywordExpander
from retrieval_core.config import TransformConfig, load_config
from retrieval_core.errors import ConfigurationError
from retrieval_core.testing.fakes import FakeTransformer
from retrieval_core.testing.fakes_llm import FakeLLM

OWN = "retrieval_core.testing.fakes:FakeTransformer"


class Provider(FakeLLM):
    """A language model whose provider has others."""

    def __init__(self, model: str = "large") -> None:
        super().__init__([])
        self._model = model

    @property
    def id(self) -> str:
        return f"provider/{self._model}"

    def with_model(self, model: str) -> Provider:
        return Provider(model)


def test_with_a_language_model() -> None:
    """All that a query may ask for is there, whether or not the configuration uses it by itself."""
    made = build_transformers(TransformConfig(), FakeLLM([]))
    assert {name: type(transformer) for name, transformer in made.items()} == {
        "keywords": KeywordExpander,
        "decompose": QueryDecomposer,
        "hyde": HyDEGenerator,
    }


def test_without_a_language_model() -> None:
    """What needs one is left out, also where it is named; so is a graph that there is none of."""
    config = TransformConfig(use=("keywords", "hyde", "decompose", "graph"))
    assert build_transformers(config, None) == {}


def test_given_ones() -> None:
    """A program's own are there beside the built-in ones, and go before those of the same name."""
    own, graph = FakeTransformer(), FakeTransformer()
    made = build_transformers(TransformConfig(use=("own",)), FakeLLM([]), {"own": own, "graph": graph, "hyde": own})
    assert (made["own"], made["graph"], made["hyde"]) == (own, graph, own)
    assert set(made) == {"keywords", "decompose", "hyde", "graph", "own"}


def test_a_factory() -> None:
    """It is called with its options, and its product goes by its name."""
    made = build_transformers(TransformConfig.model_validate({"use": (OWN,), "custom": {"name": "mine"}}), None)
    assert made[OWN].id == "mine"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (
            "hide",
            "transform.use: 'hide' is none of keywords, decompose, hyde, graph, own; for a custom class set it to",
        ),
        ("nowhere:factory", "transform.use"),
        ("retrieval_core.testing.fakes:FakeEmbedder", "transform.use"),
    ],
)
def test_a_name_that_stands_for_nothing(name: str, problem: str) -> None:
    """The error says which setting is wrong."""
    with pytest.raises(ConfigurationError, match=problem):
        build_transformers(TransformConfig(use=(name,)), None, {"own": FakeTransformer()})


def test_prompts() -> None:
    """A kind's own instructions change its id, and no other's."""
    llm = FakeLLM([])
    prompts = {"hyde": "Write a verse.", "history": "Ask again."}
    plain, own = TransformConfig(), TransformConfig(prompts=prompts, history="llm")
    before, after = build_transformers(plain, llm), build_transformers(own, llm)
    assert [name for name in before if before[name].id != after[name].id] == ["hyde"]
    assert condenser_id(plain, llm) != condenser_id(own, llm)


def condenser_id(config: TransformConfig, llm: FakeLLM | None) -> str | None:
    condenser = build_condenser(config, llm)
    return None if condenser is None else condenser.id


@pytest.mark.parametrize(
    ("history", "has_llm", "kind"),
    [
        ("auto", True, LLMCondenser),
        ("auto", False, HeuristicCondenser),
        ("llm", True, LLMCondenser),
        ("llm", False, HeuristicCondenser),
        ("heuristic", True, HeuristicCondenser),
        ("heuristic", False, HeuristicCondenser),
        ("none", True, type(None)),
        ("none", False, type(None)),
    ],
)
def test_condensers(history: str, has_llm: bool, kind: type) -> None:
    """By itself a conversation is condensed by the language model where there is one, and else by the heuristic."""
    config = load_config(overrides={"transform.history": history}).transform
    assert type(build_condenser(config, FakeLLM([]) if has_llm else None)) is kind


def test_another_model() -> None:
    """Transformers and condenser ask the model that is named for them, at the same provider."""
    config = TransformConfig(model="small")
    made = build_transformers(config, Provider())
    assert all(transformer.id.startswith("provider/small ") for transformer in made.values())
    condenser = condenser_id(config, Provider())
    assert condenser is not None
    assert condenser.startswith("provider/small ")
    assert condenser_id(TransformConfig(model="small", history="heuristic"), Provider()) == HeuristicCondenser().id
    assert build_transformers(config, None) == {}


def test_another_model_behind_the_same_protocol() -> None:
    """The OpenAI adapter offers the other models of its server."""
    made = build_transformers(TransformConfig(model="small"), OpenAILLM("large", base_url="http://localhost:11434/v1"))
    assert made["hyde"].id.startswith("openai/small@localhost")


def test_the_same_model() -> None:
    """Without another model named, the language model itself is asked."""
    llm = Provider()
    assert model_for(TransformConfig(), llm) is llm


def test_a_provider_without_other_models() -> None:
    """The error names the setting and what would mend it."""
    with pytest.raises(ConfigurationError, match=r"transform.model: fake-llm offers no other models"):
        build_transformers(TransformConfig(model="small"), FakeLLM([]))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"use": ("hyde", "keywords", "hyde")}, "each name can be given once"),
        ({"prompts": {"graph": "Draw."}}, "there are no instructions for graph"),
        ({"prompts": {"hyde": " "}}, "the instructions for hyde are blank"),
        ({"history": "magic"}, "history"),
    ],
)
def test_settings_that_are_wrong(settings: dict[str, object], problem: str) -> None:
    """They are refused with the reason."""
    with pytest.raises(ValidationError, match=problem):
        TransformConfig.model_validate(settings)
