"""Haystack's retriever component over an index."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.errors import FilterError, InvalidParameterError
from support.frameworks import ANSWER, QUERY, index_of_notes

pytest.importorskip("haystack", reason="the extra 'haystack' is not installed")

from haystack import Pipeline
from haystack.components.builders import PromptBuilder
from haystack.utils.filters import document_matches_filter

from retrieval_core.integrations.haystack import RetrievalCoreRetriever

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core import Index

MODULE = "retrieval_core.integrations.haystack"


def field(name: str, operator: str, value: Any) -> dict[str, Any]:
    return {"field": name, "operator": operator, "value": value}


NIGHT = field("meta.team", "==", "night")
FILTERS: list[dict[str, Any]] = [
    NIGHT,
    field("meta.team", "!=", "night"),
    field("meta.team", "in", ["day", "noon"]),
    field("meta.team", "not in", ["day"]),
    field("meta.year", ">", 1968),
    field("meta.year", ">=", 1969),
    field("meta.year", "<", 1970),
    field("meta.year", "<=", 1968),
    field("meta.year", "==", None),
    field("meta.year", "!=", None),
    {"operator": "AND", "conditions": [NIGHT, field("meta.year", "==", 1969)]},
    {"operator": "OR", "conditions": [field("meta.year", "==", 1969), field("meta.team", "==", "day")]},
    {"operator": "NOT", "conditions": [NIGHT, field("meta.year", "==", 1969)]},
    {"operator": "AND", "conditions": [{"operator": "NOT", "conditions": [NIGHT]}]},
]


def test_a_pipeline_gets_documents_with_their_origin(index: Index) -> None:
    """The next component reads their texts and meta."""
    pipeline = Pipeline()
    pipeline.add_component("retriever", RetrievalCoreRetriever(index, top_k=1))
    template = "{% for document in documents %}{{ document.meta.citation }}: {{ document.content }}{% endfor %}"
    pipeline.add_component("prompt", PromptBuilder(template, required_variables=["documents"]))
    pipeline.connect("retriever.documents", "prompt.documents")
    prompt = pipeline.run({"retriever": {"query": QUERY}})["prompt"]["prompt"]
    assert prompt == f"Doc: notes/moon.md:1: {ANSWER}"


def test_a_call_changes_options_of_the_constructor(index: Index) -> None:
    """Both forms of a call."""
    retriever = RetrievalCoreRetriever(index, top_k=1, filters=NIGHT, mode="keyword")
    retriever.warm_up()
    (document,) = retriever.run(QUERY)["documents"]
    (hit, *_) = index.retrieve(QUERY).hits
    assert (document.id, document.score, document.meta["team"]) == (hit.id, hit.score, "night")
    assert retriever.run(QUERY, {"team": "day"})["documents"][0].meta["source"] == "notes/sun.md"
    both = asyncio.run(retriever.run_async(QUERY, top_k=3))["documents"]
    assert [item.meta["team"] for item in both] == ["night", "night"]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_filters_mean_what_they_mean_in_haystack(index: Index, filters: dict[str, Any]) -> None:
    """The same documents pass as by Haystack's own function."""
    retriever = RetrievalCoreRetriever(index)
    every = retriever.run("away")["documents"]
    assert len(every) == 3
    passing = {document.id for document in every if document_matches_filter(filters, document)}
    assert {document.id for document in retriever.run("away", filters)["documents"]} == passing


def test_it_is_saved_with_its_pipeline(tmp_path: Path) -> None:
    """Of a path only."""
    index_of_notes(tmp_path).close()
    pipeline = Pipeline()
    retriever = RetrievalCoreRetriever(tmp_path / "notes.db", top_k=1, filters=NIGHT)
    pipeline.add_component("retriever", retriever)
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=[MODULE])
    asked = {"retriever": {"query": QUERY}}
    assert again.run(asked) == pipeline.run(asked)
    with retriever.index as index, pytest.raises(InvalidParameterError, match="path of the index"):
        RetrievalCoreRetriever(index).to_dict()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"index": 1}, InvalidParameterError),
        ({"top_k": 0}, InvalidParameterError),
        ({"filters": {"field": "meta.year", "operator": "near", "value": 3}}, FilterError),
        ({"filters": {"field": "meta.year", "operator": ["=="], "value": 3}}, FilterError),
        ({"filters": {"field": "meta.year", "operator": "=="}}, FilterError),
        ({"filters": {"operator": "AND", "conditions": [{"year": 3}]}}, FilterError),
        ({"filters": {"operator": "AND", "conditions": ["year"]}}, FilterError),
        ({"filters": {"operator": "AND", "conditions": []}}, FilterError),
        ({"filters": {"year": {"$near": 3}}}, FilterError),
    ],
)
def test_wrong_arguments_are_refused(index: Index, arguments: dict[str, Any], error: type[Exception]) -> None:
    given: dict[str, Any] = {"index": index, **arguments}
    with pytest.raises(error):
        RetrievalCoreRetriever(**given)
