"""Results of the same queries over the same documents stay the same: hits, scores, contexts, answers and traces.

``same_results.json`` has them. After a change that is meant to change results, look at what differs, and write it anew
with ``PYTHONPATH=tests python tests/e2e/test_same_results.py``.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from retrieval_core import Document, load_config, open_index
from retrieval_core.ports import Variant
from retrieval_core.testing.fakes import FakeEmbedder, FakeReranker
from retrieval_core.testing.fakes_llm import FakeLLM
from support.answers import an_answering_pipeline
from support.pipelines import word_counter

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrieval_core import Index

KEPT = Path(__file__).with_name("same_results.json")
TIMES = {"latency_ms", "milliseconds", "started_ms", "stages_ms", "query_embedded_at", "usage"}
SKY = """\
# The sky at night

A guide for those who look up.

## Moons

The Moon is 384,400 km away. It has no air, so there is no sound on it. A full moon rises at sunset.

Jupiter has 95 moons. Io is the one with volcanoes.

## Planets

Saturn's rings are made of ice. They can be seen with a small telescope.

| planet | moons |
|--------|-------|
| Mars   | 2     |
| Saturn | 146   |

## Telescopes

- A mirror of 150 mm shows the rings of Saturn.
- Let the telescope cool for 30 minutes before you look at the Moon.
"""
BREAD = """\
# Bread

Bread is baked for 40 minutes until the crust is brown. Let it cool on a rack before you cut it.

## Sourdough

The dough rises overnight. Feed the starter with 50 g of flour, or it dies. The error E-17 of the oven means that its
door is open.
"""
SHIP = """\
# The harbour

The ship leaves at 8 o'clock. Set `BERTH_HOUR` to choose another hour. Pilots read the moon's tides from a table.
"""
DOCUMENTS = (
    Document("sky.md", SKY, "sky.md", metadata={"topic": "sky", "year": 2020}),
    Document("bread.md", BREAD, "bread.md", metadata={"topic": "food", "year": 2021}),
    Document("ship.md", SHIP, "ship.md", metadata={"topic": "sea", "year": 2022}),
)
SMALL = {"store.kind": "memory", "cache.kind": "none", "chunking.max_tokens": 32, "chunking.min_tokens": 0}
QUERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("how far is the moon", {}),
    "keywords": ("saturn rings telescope", {"mode": "lexical"}),
    "vectors": ("the dough rises", {"mode": "dense"}),
    "few": ("moon", {"top_k": 2}),
    "filter": ("let it cool", {"filters": {"topic": "food"}}),
    "range": ("let it cool", {"filters": {"year": {"$gte": 2021}}}),
    "none passes": ("moon", {"filters": {"topic": "nothing"}}),
    "unknown": ("what does error E-99 mean", {}),
    "known": ("what does error E-17 mean", {}),
    "off subject": ("zebra quagga", {}),
    "threshold": ("moon tides", {"score_threshold": 0.2}),
    "variants": ("far moon", {"variants": (Variant("a", "distance of the moon"), Variant("b", "volcanoes"))}),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "other fusion": {"search.fusion": "rrf", "search.dense_weight": 0.7},
    "different hits": {"search.top_k": 4, "search.fetch_k": 10, "search.lambda_mult": 0.4},
    "window": {"context.window": 1, "context.include_parents": False},
    "small context": {"context.max_tokens": 40},
    "reranked": {"reranker.weight": 0.5},
    "reranked only": {"reranker.weight": 1.0, "reranker.candidates": 4},
    "pruned": {"pruner.kind": "embedder", "pruner.threshold": 0.1},
    "template": {
        "format.template": "{rank} {topic}: {text}",
        "format.delimiter": "---",
        "format.max_context_length": 300,
    },
}


def plain(value: Any) -> Any:
    """Return a value as JSON, without what takes time, with four digits, and without fields at their defaults."""
    if is_dataclass(value) and not isinstance(value, type):
        found = ((each.name, getattr(value, each.name)) for each in fields(value) if each.name not in TIMES)
        return {name: plain(one) for name, one in found if one not in (None, (), "", {}, 0, False)}
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {str(key): plain(one) for key, one in items if key not in TIMES}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in cast("list[Any]", value)]
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, cast("set[Any]", value)))
    return value if isinstance(value, (bool, int, str)) or value is None else str(value)


def found(index: Index, query: str, options: dict[str, Any], *, is_whole: bool) -> Any:
    """Return what a query finds: ids and scores, what is said of them, and the texts that are made of them."""
    result = index.retrieve(query, **options)
    given = {name: value for name, value in options.items() if name in {"filters", "top_k", "mode"}}
    context = index.context(query, **given)
    short = {"hits": [[hit.id, hit.score] for hit in result.hits], "context": [one.text for one in context.passages]}
    if not is_whole:
        return plain(
            short | {"formatted": result.formatted_context[-100:], "trace": [one.stage for one in result.trace]}
        )
    scores = [[hit.id, hit.scores, hit.found_by] for hit in result.hits]
    said = {"relevance": result.relevance, "degraded": result.degraded, "ledger": context.ledger}
    return plain(short | said | {"scores": scores, "trace": result.trace, "text": context.context_pack})


def opened(settings: dict[str, Any], **given: Any) -> Index:
    """Return an index of the documents."""
    index = open_index(
        config=load_config(None, SMALL | settings), embedder=FakeEmbedder(), token_counter=word_counter(), **given
    )
    index.add_documents(DOCUMENTS)
    return index


def of_settings(name: str) -> Any:
    """Return what the queries find with some settings."""
    given: dict[str, Any] = {"reranker": FakeReranker()} if name.startswith("reranked") else {}
    with opened(SETTINGS[name], **given) as index:
        is_whole = name == "default"
        return {query: found(index, *asked, is_whole=is_whole) for query, asked in QUERIES.items()}


def of_answers() -> Any:
    """Return answers: of quotes, and of a model that is right, wrong, and names no source."""
    answers: dict[str, Any] = {}
    said = (
        "Roll back an application with the history command [1].",
        "Bread is baked for 5 minutes [1]. The crust is brown.",
        "A telescope shows it.",
    )
    for text in (None, *said):
        with an_answering_pipeline(None if text is None else FakeLLM([text] * 3)) as pipeline:
            for query in ("roll back an application", "how long is bread baked", "rings of saturn"):
                answer = pipeline.answer(query)
                shown = [
                    [
                        one.text,
                        [
                            (each.number, each.problem, each.citation and each.citation.quotes)
                            for each in one.attributions
                        ],
                    ]
                    for one in answer.sentences
                ]
                answers[f"{query}: {text}"] = plain([answer.kind, answer.text, answer.confidence, shown])
    return answers


CASES: dict[str, Callable[[], Any]] = {**{name: partial(of_settings, name) for name in SETTINGS}, "answers": of_answers}


def with_sorted_trace(value: Any) -> Any:
    """Return what a query found without the order of its calls: those at the same time end in any order."""
    if not isinstance(value, dict):
        return value
    found = cast("dict[str, Any]", value)
    return {**found, "trace": sorted(map(json.dumps, found["trace"]))}


@pytest.mark.parametrize("name", CASES)
def test_results_stay(name: str) -> None:
    """Compare every query of one group."""
    now, before = CASES[name](), json.loads(KEPT.read_text("utf-8"))[name]
    assert now.keys() == before.keys()
    for query in now:
        assert with_sorted_trace(now[query]) == with_sorted_trace(before[query]), query


if __name__ == "__main__":
    lines = [
        f"{json.dumps(name)}: {{\n"
        + ",\n".join(f"{json.dumps(query)}: {json.dumps(one, ensure_ascii=False)}" for query, one in make().items())
        + "\n}"
        for name, make in CASES.items()
    ]
    KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
