"""Properties of the specification's first file that speak of one stage, and that all thirteen of them have a test.

Each test names a change of the library that makes it fail; each was tried.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import unicodedata
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retrieval_core.adapters.embedders.openai import OpenAIEmbedder
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.config import RetrievalConfig, load_config
from retrieval_core.errors import DimensionMismatchError, ServiceConnectionError
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.pipeline.stages.format import format_context
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder, FakeRelevanceFilter
from retrieval_core.types import Chunk, Hit, Judgement, Scores
from support.openai_service import KEY, OpenAIService
from support.pipelines import PHONES, TroubledStore, filled
from support.plugins import approx
from support.results import json_values
from support.wire_server import BrokenJSON, Changed, EmptyBody, ResetMidBody, Response, Status, WireServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from retrieval_core.types import RetrievalResult, Vector
    from support.wire_server import Fault

FEATURE = "data-retrieval-pipeline"
LARGE = "text-embedding-3-large"
SPECIFIED = "Title: {product_name}\nPrice: {price}\nRating: {rating}\nReview: {review_text}"
DELIMITER = "\n\n---\n\n"
QUESTION = "roll back an application"
WORDS = ("history", "application", "bread", "saturn", "revision")

needs_openai = pytest.mark.skipif(find_spec("openai") is None, reason="the extra 'openai' is not installed")
questions = st.text().filter(lambda text: bool(text.strip()))
numbers = st.integers(0, 5) | st.floats(0, 5)
shares = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]) | st.floats(0, 1)


def settings_of(**settings: Any) -> RetrievalConfig:
    return load_config(overrides={key.replace("__", "."): value for key, value in settings.items()})


def a_store(chunks: Sequence[Chunk] = PHONES) -> MemoryStore:
    embedder = FakeEmbedder()
    store = MemoryStore(embedder_id=embedder.id, dimension=embedder.dimension)
    filled(store, chunks)
    return store


def ask(pipeline: RetrievalPipeline, query: str = QUESTION, *arguments: Any) -> RetrievalResult:
    return asyncio.run(pipeline.aretrieve(query, *arguments))


class Wire:
    """An embedder of OpenAI's with a server to talk to, on one event loop for all examples."""

    def __init__(self, server: WireServer, runner: asyncio.Runner, model: str, dimension: int | None = None) -> None:
        self.server = server
        self.runner = runner
        self.embedder = OpenAIEmbedder(model, dimension=dimension, api_key=KEY, base_url=f"{server.url}/v1")


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with WireServer(OpenAIService()) as server, asyncio.Runner() as runner:
        wire = Wire(server, runner, LARGE)
        yield wire
        runner.run(wire.embedder.aclose())


@pytest.fixture(scope="module")
def small_wire() -> Iterator[Wire]:
    with WireServer(OpenAIService(dimensions={"small": 256})) as server, asyncio.Runner() as runner:
        wire = Wire(server, runner, "small", 256)
        yield wire
        runner.run(wire.embedder.aclose())


@needs_openai
@pytest.mark.property(FEATURE, 3)
@given(query=questions, wrong=st.integers(1, 4096).filter(lambda size: size != 3072))
def test_query_embedding_dimension(wire: Wire, query: str, wrong: int) -> None:
    """Every query's vector has the 3072 components of text-embedding-3-large, and another number is an error.

    Fails with the comparison of ``len(vector)`` with the dimension taken out of ``OpenAIEmbedder``, or with 3072
    changed to 1536 in its list of models.
    """
    text = unicodedata.normalize("NFC", query).strip()
    vector = wire.runner.run(wire.embedder.embed_query(text))
    assert vector.shape == (3072,) == (wire.embedder.dimension,)
    assert float(vector @ vector) == approx(1.0)
    assert wire.server.requests[-1].json()["model"] == LARGE

    def other(response: Response) -> Response:
        data = [{**item, "embedding": [1.0] * wrong} for item in response.body["data"]]
        return replace(response, body={**response.body, "data": data})

    wire.server.fail(Changed(other))
    with pytest.raises(DimensionMismatchError) as caught:
        wire.runner.run(wire.embedder.embed_query(text))
    assert (caught.value.expected, caught.value.actual, caught.value.query) == (3072, wrong, text)


@pytest.mark.property(FEATURE, 3)
@given(said=st.integers(1, 40), given_=st.integers(1, 40))
def test_an_embedder_that_gives_another_dimension_than_it_says(said: int, given_: int) -> None:
    """No vector of another number of components than the embedder declares reaches a store, whoever embeds.

    Fails with ``vector.shape != (dimension,)`` in ``stages/search.py`` changed to ``vector.ndim != 1``.
    """

    class Says(FakeEmbedder):
        @property
        def dimension(self) -> int:
            return said

        async def embed_query(self, text: str) -> Vector:
            return await FakeEmbedder(given_).embed_query(text)

    store = TroubledStore()
    store.failures["dense"] = ServiceConnectionError("was asked")
    pipeline = RetrievalPipeline(store, Says(), config=settings_of(retry__max_retries=0, search__mode="dense"))
    if said != given_:
        with pytest.raises(DimensionMismatchError) as caught:
            ask(pipeline)
        assert (caught.value.expected, caught.value.actual) == (said, given_)
    else:
        ask(pipeline)
    assert store.calls["dense"] == (said == given_)


judged = st.tuples(st.dictionaries(st.text(max_size=5), json_values, max_size=3), st.booleans(), shares)


@pytest.mark.property(FEATURE, 6)
@given(passages=st.lists(judged, max_size=9), batch_size=st.integers(1, 4))
def test_compression_preserves_metadata(passages: list[tuple[dict[str, Any], bool, float]], batch_size: int) -> None:
    """What passes the relevance filter is what went in, metadata included, in its order, and never more.

    Fails with ``_judged`` in ``stages/rerank.py`` changed to give the hit ``replace(hit.chunk, metadata={})``, and
    with ``if judgement.relevant`` taken out.
    """
    chunks = [Chunk(f"c{n}", "d", "text", n, metadata=entry[0]) for n, entry in enumerate(passages)]
    verdicts = {f"c{n}": Judgement(relevant, score) for n, (_, relevant, score) in enumerate(passages)}
    store, config = a_store(chunks), settings_of(raise_on_error=True)
    relevance_filter = FakeRelevanceFilter(verdicts, batch_size=batch_size)
    before = ask(RetrievalPipeline(store, FakeEmbedder(), config=config), "text").hits
    after = ask(RetrievalPipeline(store, FakeEmbedder(), config=config, relevance_filter=relevance_filter), "text").hits
    assert {hit.id for hit in before} == verdicts.keys()
    assert [hit.id for hit in after] == [hit.id for hit in before if verdicts[hit.id].relevant]
    by_id = {chunk.id: chunk for chunk in chunks}
    for hit in after:
        assert hit.chunk == by_id[hit.id]
        assert hit.chunk.metadata == by_id[hit.id].metadata
        assert hit.scores.relevance == approx(verdicts[hit.id].score)


fragments = st.text("ab{}: -\n", max_size=12) | st.sampled_from(
    ["{price}", DELIMITER, "\n\n---", "---\n\n", "{{", "N/A"]
)
reviews = st.fixed_dictionaries(
    {"text": fragments}, optional={"product_name": fragments, "price": numbers | fragments, "rating": numbers}
)


@pytest.mark.property(FEATURE, 8)
@example(records=[{"text": "ends like this: -"}, {"text": "begins here"}], delimiter="---")
@given(records=st.lists(reviews, max_size=6), delimiter=st.sampled_from([DELIMITER, "||", "==", "ab", "---"]))
def test_document_formatting_completeness(records: list[dict[str, Any]], delimiter: str) -> None:
    """Name, price, rating and review of each document are there, or N/A, and exactly N-1 delimiters between them.

    What holds the delimiter is there with marks in it; everything else is there as it is.

    Fails with ``ABSENT`` changed to an empty text, with ``delimiter.join(texts)`` followed by a further delimiter, with
    a value's doubled braces made single ones, and with ``without_delimiter`` returning its text.
    """
    hits = [
        Hit(
            Chunk(f"c{n}", "d", record["text"], metadata={name: record[name] for name in record if name != "text"}),
            0.5,
            Scores(final=0.5),
        )
        for n, record in enumerate(records)
    ]
    context = format_context(hits, template=SPECIFIED, delimiter=delimiter)
    assert context.text.count(delimiter) == max(0, len(records) - 1)
    parts = context.text.split(delimiter) if records else []
    for part, record in zip(parts, records, strict=True):
        shown = [str(record.get(name, "")) for name in ("product_name", "price", "rating", "text")]
        name, price, rating, text = (value if value.strip() else "N/A" for value in shown)
        plain = f"Title: {name}\nPrice: {price}\nRating: {rating}\nReview: {text}"
        if delimiter in plain + delimiter[:-1]:
            assert part.replace("\\", "") == plain
        else:
            assert part == plain
    assert (context.document_count, context.truncated) == (len(records), False)


transient: st.SearchStrategy[Fault] = st.sampled_from(
    [Status(500), Status(503), Status(429, retry_after=2), BrokenJSON(), EmptyBody(), ResetMidBody()]
)


@needs_openai
@pytest.mark.property(FEATURE, 12)
@given(faults=st.lists(transient, max_size=6), max_retries=st.integers(0, 4))
def test_retry_logic_enforcement(small_wire: Wire, faults: list[Fault], max_retries: int) -> None:
    """As the server counts them, there are as many attempts as there were faults and one more, up to the limit.

    Fails with ``max_retries=0`` in ``vendors/openai.py`` changed to 1, so that the SDK tries again too, and with
    ``state.attempt_number > policy.max_retries`` in ``run/retry.py`` changed to ``>=``.
    """
    server = small_wire.server
    server.heal()
    server.fail(*faults)
    before, clock = server.count(), FakeClock()
    config = settings_of(retry__max_retries=max_retries, deadline_seconds=None)
    pipeline = RetrievalPipeline(a_store(), small_wire.embedder, config=config, clock=clock)
    result = small_wire.runner.run(pipeline.aretrieve(QUESTION))
    attempts = server.count() - before
    assert attempts == min(len(faults), max_retries) + 1
    assert attempts <= max_retries + 1
    assert len(clock.slept) == attempts - 1
    assert [item.stage for item in result.degraded] == (["embed"] if len(faults) > max_retries else [])
    assert [record.attempts for record in result.trace if record.stage == "embed"] == [attempts]


COLLECT = """
import json, pytest, sys

class Marks:
    def pytest_collection_finish(self, session):
        found = []
        for item in session.items:
            mark = item.get_closest_marker("property")
            arguments = {**dict(zip(("feature", "number"), mark.args)), **mark.kwargs}
            settings = getattr(item.obj, "_hypothesis_internal_use_settings", None)
            examples = settings.max_examples if settings else 0
            found.append([arguments["feature"], arguments["number"], item.nodeid, examples])
        print("MARKS" + json.dumps(found))

pytest.main(["--collect-only", "-q", "-m", "property", "-p", "no:cacheprovider", *sys.argv[1:]], plugins=[Marks()])
"""


def test_every_property_has_a_test(pytestconfig: pytest.Config) -> None:
    """``pytest -m property`` runs a test for each of the 13 properties, with at least 100 examples each."""
    tests = pytestconfig.rootpath.joinpath("tests").rglob("test_*.py")
    marked = [str(path) for path in tests if "mark.property" in path.read_text(encoding="utf-8")]
    done = subprocess.run(
        [sys.executable, "-c", COLLECT, *marked],
        cwd=pytestconfig.rootpath,
        env={**os.environ, "HYPOTHESIS_PROFILE": "here"},  # as it is where the properties are what counts
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("MARKS")]
    assert lines, done.stdout + done.stderr
    found: list[tuple[str, int, str, int]] = json.loads(lines[0].removeprefix("MARKS"))
    assert {number for feature, number, _, _ in found if feature == FEATURE} == set(range(1, 14))
    assert [test for _, _, test, examples in found if examples < 100] == []
