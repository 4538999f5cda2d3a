"""LlamaIndex's own package for OpenAI, as our language model, against a server that speaks the vendor's protocol."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("llama_index.llms.openai", reason="needs llama-index-llms-openai")
pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.llms.openai import OpenAI

from llama_index.postprocessor.retrieval_core import LLMRerankPostprocessor
from llama_index.retrievers.retrieval_core.adapters import LlamaIndexLLM
from retrieval_core.errors import ServiceConnectionError, ServiceError
from retrieval_core.ports import CompletionRequest, Message
from retrieval_core.testing.llm_kit import SCHEMA, LLMConformance
from retrieval_core.types import Usage
from support.llamaindex_models import graded
from support.openai_service import KEY, OpenAIService
from support.wire_server import Status, WireServer

if TYPE_CHECKING:
    pass

QUESTION = CompletionRequest((Message("system", "be brief"), Message("user", "one two three")))


@pytest.fixture
def service() -> OpenAIService:
    return OpenAIService()


def model_of(server: WireServer, model: str = "gpt-4.1-mini", key: str = KEY, **settings: Any) -> OpenAI:
    # A client for each request: a connection that is kept belongs to the event loop that opened it.
    return OpenAI(
        model, api_key=key, api_base=f"{server.url}/v1", max_retries=0, reuse_client=False, temperature=0, **settings
    )


class TestConformance(LLMConformance):
    @pytest.fixture
    def llm(self, server: WireServer) -> LlamaIndexLLM:
        # In threads, because the package reads certificates when it makes a client.
        return LlamaIndexLLM(model_of(server), in_threads=True)


def test_a_model_that_keeps_to_schemas_gets_them(server: WireServer) -> None:
    """As the vendor's own adapter sends them; its tokens are told."""
    completion = asyncio.run(LlamaIndexLLM(model_of(server)).complete(CompletionRequest(QUESTION.messages, SCHEMA)))
    assert json.loads(completion.text).keys() == {"relevant", "score", "reason"}
    asked = server.requests[-1].json()
    assert asked["response_format"]["json_schema"]["schema"] == SCHEMA
    assert asked["response_format"]["json_schema"]["strict"] is True
    assert isinstance(completion.usage, Usage)
    assert completion.usage.input_tokens > 0


def test_a_reasoning_model_is_asked_too(server: WireServer) -> None:
    """The package knows what such a model refuses."""
    assert asyncio.run(LlamaIndexLLM(model_of(server, "o4-mini")).complete(QUESTION)).text == "one two three"


def test_its_errors_are_ours(server: WireServer) -> None:
    """With their status, by which a wrong key is told from a service that is down."""
    with pytest.raises(ServiceError) as caught:
        asyncio.run(LlamaIndexLLM(model_of(server, key="sk-wrong")).complete(QUESTION))
    assert caught.value.status == 401
    server.refuse()
    with pytest.raises(ServiceConnectionError):
        asyncio.run(LlamaIndexLLM(model_of(server)).complete(QUESTION))


def test_it_reranks_from_several_loops(server: WireServer, service: OpenAIService) -> None:
    """Sync, async, and sync again, as notebooks do; a wrong key is raised, and a fault of the service is not."""
    service.answer = lambda asked: graded(len)(asked["messages"][-1]["content"])
    nodes = [NodeWithScore(node=TextNode(text="x" * size), score=0.5) for size in (3, 9, 6)]
    postprocessor = LLMRerankPostprocessor(model_of(server), top_n=2)
    for _ in range(2):
        for found in (
            postprocessor.postprocess_nodes(nodes, query_str="how long"),
            asyncio.run(postprocessor.apostprocess_nodes(nodes, query_str="how long")),
        ):
            assert [(len(item.node.get_content()), item.score) for item in found] == [(9, 0.09), (6, 0.06)]
    with pytest.raises(ServiceError, match="401"):
        LLMRerankPostprocessor(model_of(server, key="sk-wrong")).postprocess_nodes(nodes, query_str="how long")
    server.fail(Status(400))
    kept = postprocessor.postprocess_nodes(nodes, query_str="how long")
    assert kept == nodes[:2]
