"""``retrieval doctor`` tries what looks at a question, and what shortens its passages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.cli import doctor
from retrieval_core.config import load_config

if TYPE_CHECKING:
    from pathlib import Path

FAKES = "retrieval_core.testing"
LLM = {"llm.kind": f"{FAKES}.fakes_llm:FakeLLM", "llm.custom": {"answer": ["yes"]}}
NO_LLM = ("missing", "disabled: it needs a language model. Set llm.kind.")
SEE_LLM = ("missing", "not checked: the language model failed")


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def findings(**given: Any) -> dict[str, tuple[str, str]]:
    """Return verdict and detail of each finding, by its subject; two underscores stand for a dot."""
    settings = {"embedder.kind": f"{FAKES}.fakes:FakeEmbedder"}
    settings |= {name.replace("__", "."): value for name, value in given.items()}
    return {one.subject: (one.verdict, one.detail) for one in doctor.examine_parts(load_config(overrides=settings))}


@pytest.mark.parametrize("name", ["keywords", "decompose", "hyde"])
def test_transformers_that_need_a_model_say_which(name: str) -> None:
    """The model, that there is none, or that the one there is cannot be used."""
    subject = f"transformer {name}"
    assert findings(transform__use=[name], **LLM)[subject] == ("ok", "asks fake-llm")
    assert findings(transform__use=[name])[subject] == NO_LLM
    told = findings(transform__use=[name], **{"llm.kind": f"{FAKES}.fakes_llm:NoSuchModel"})
    assert told[subject] == SEE_LLM
    assert told["language model"][0] == "wrong"


def test_a_model_that_offers_no_others() -> None:
    """``transform.model`` with it is a mistake, of transformers and of conversations."""
    told = findings(transform__use=["hyde"], transform__history="llm", transform__model="small", **LLM)
    verdict, detail = told["transformer hyde"]
    assert verdict == "wrong"
    assert "transform.model: fake-llm offers no other models" in detail
    assert told["conversations"] == (verdict, detail)


def test_a_transformer_of_ones_own_is_made_and_not_called() -> None:
    """One that cannot be made says why."""
    own = f"{FAKES}.fakes:FakeTransformer"
    assert findings(transform__use=[own])[f"transformer {own}"] == ("ok", f"created by {own}, not called")
    other = f"{FAKES}.fakes:NoSuchTransformer"
    verdict, detail = findings(transform__use=[other])[f"transformer {other}"]
    assert verdict == "wrong"
    assert "NoSuchTransformer" in detail


def test_a_graph_is_read_and_counted(tmp_path: Path) -> None:
    triples = tmp_path / "facts.jsonl"
    triples.write_text(json.dumps({"subject": "Anna", "relation": "leads", "object": "Orion"}) + "\n", encoding="utf-8")
    subject = "transformer graph"
    assert findings(transform__use=["graph"])[subject][0] == "missing"
    assert findings(transform__use=["graph"], graph__file=str(triples))[subject] == ("ok", "2 entities and 1 relations")


def test_a_graph_that_cannot_be_read(tmp_path: Path) -> None:
    """The finding names the file."""
    for name, text in (("absent.jsonl", None), ("broken.jsonl", "no JSON\n")):
        if text is not None:
            (tmp_path / name).write_text(text, encoding="utf-8")
        verdict, detail = findings(transform__use=["graph"], graph__file=str(tmp_path / name))["transformer graph"]
        assert (verdict, name in detail) == ("wrong", True)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"transform__history": "none"}, ("ok", "queries stay unchanged")),
        ({"transform__history": "heuristic"}, ("ok", "by a rule, without a language model")),
        ({"transform__history": "llm", **LLM}, ("ok", "asks fake-llm")),
        ({"transform__history": "llm"}, ("missing", "no language model: a rule is used. Set llm.kind.")),
    ],
)
def test_conversations(settings: dict[str, Any], told: tuple[str, str]) -> None:
    """What makes a question stand alone; there is no finding where nothing was chosen."""
    assert findings(**settings)["conversations"] == told
    assert "conversations" not in findings(transform__history="auto")


def test_a_pruner_judges_two_sentences() -> None:
    """The index's embedder compares them with the question; without a threshold for it, that is a mistake."""
    verdict, detail = findings(pruner__kind="embedder", pruner__threshold=0.5)["pruner"]
    assert verdict == "ok"
    assert detail.endswith(" judges sentences")
    assert "fake-words-256" in detail
    verdict, detail = findings(pruner__kind="embedder")["pruner"]
    assert verdict == "wrong"
    assert "pruner.threshold" in detail


def test_a_custom_pruner_judges_two_sentences() -> None:
    """As the built-in ones do."""
    assert findings(pruner__kind=f"{FAKES}.fakes:FakePruner")["pruner"] == ("ok", "fake-pruner judges sentences")
    assert "pruner" not in findings()


def test_verifiers() -> None:
    """The model that is asked, that there is none, or one's own; without verification, no finding."""
    assert findings(answer__verify=True, **LLM)["verifier"] == ("ok", "asks fake-llm")
    assert findings(answer__verify=True, answer__verifier="llm")["verifier"] == NO_LLM
    assert findings(answer__verify=True)["verifier"] == NO_LLM
    own = f"{FAKES}.fakes:FakeVerifier"
    assert findings(answer__verifier=own)["verifier"] == ("ok", f"created by {own}, not called")
    assert findings(answer__verifier=f"{FAKES}.fakes:NoSuchVerifier")["verifier"][0] == "wrong"
    assert "verifier" not in findings()
