"""The page's example with LlamaIndex's packages for Pinecone and OpenAI, against servers on this machine."""

from __future__ import annotations

import contextlib
import gc
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")
pytest.importorskip("llama_index.vector_stores.pinecone", reason="the extra 'pinecone' of the plug-in is not installed")
pytest.importorskip("llama_index.llms.openai", reason="the extra 'openai' of the plug-in is not installed")

from support.openai_service import KEY as OPENAI_KEY
from support.openai_service import OpenAIService
from support.pinecone_service import KEY as PINECONE_KEY
from support.pinecone_service import PineconeService
from support.wire_server import WireServer

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[2] / "docs" / "llamaindex.md"
EXAMPLE = re.compile(r"^## Pinecone and OpenAI from end to end\n.*?^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[WireServer, WireServer]]:
    with WireServer(PineconeService(3072, "cosine")) as pinecone, WireServer(OpenAIService()) as openai:
        settings = {
            "OPENAI_API_KEY": OPENAI_KEY,
            "OPENAI_API_BASE": f"{openai.url}/v1",
            "PINECONE_API_KEY": PINECONE_KEY,
            "PINECONE_HOST": pinecone.url,
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        yield pinecone, openai


# The example leaves the clients of the services open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_the_example_of_the_page_answers(servers: tuple[WireServer, WireServer]) -> None:
    """The model echoes its prompt, so what it was shown is what is printed."""
    pinecone, openai = servers
    found = EXAMPLE.search(PAGE.read_text("utf-8"))
    assert found is not None
    names: dict[str, Any] = {"__name__": "example"}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(found[1], PAGE.name, "exec"), names)
    answer = printed.getvalue()
    assert "The camera of the ZX-9 is sharp." in answer
    assert "A battery for three days." not in answer  # it costs more than the filter allows
    response = names["response"]
    first = response.source_nodes[0]
    assert first.node.metadata["product_name"] == "ZX-9"
    assert {"dense", "lexical"} <= first.scores.keys()
    assert [item.degraded for item in response.source_nodes] == [[], []]
    assert len({item.node.metadata["product_name"] for item in response.source_nodes}) == 2
    paths = [request.path for request in openai.requests]
    assert paths.count("/v1/chat/completions") == 1
    embedded = [request.json() for request in openai.requests if request.path == "/v1/embeddings"]
    assert [(len(asked["input"]), asked["model"]) for asked in embedded] == [
        (4, "text-embedding-3-large"),
        (1, "text-embedding-3-large"),
    ]
    asked = [request.json() for request in pinecone.requests if request.path == "/query"]
    assert asked
    assert all((one["namespace"], one["filter"]) == ("phone-reviews", {"price": {"$lte": 600}}) for one in asked)
    del response, first
    names.clear()
    gc.collect()
