"""A small document in chunks, and models that score its passages."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from retrieval_core.compat.context_pack import (
    ContextPack,
    OpenAIReranker,
    RerankConfig,
)
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes_llm import FakeLLM
from retrieval_core.types import Chunk, PageSpan, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from retrieval_core.ports import CompletionRequest

TRACE_KEYS = {"pinecone_candidates", "rerank_results", "final_token_count", "expansion_stats"}
WORDS = ("anchor", "bridge", "copper", "dragon", "ember", "forest", "garnet", "harbour")


def words(text: str) -> int:
    """Count words, in place of a tokenizer."""
    return len(text.split())


def document(name: str = "doc_1", *, parents: bool = True) -> list[Chunk]:
    """Return eight chunks, two a page, with a parent around each four and spans that fit."""
    texts = [f"The {word} is number {number} of {name}." for number, word in enumerate(WORDS)]
    starts = [sum(len(text) + 1 for text in texts[:number]) for number in range(len(texts))]
    whole = " ".join(texts)
    chunks = [
        Chunk(
            f"{name}#{number}",
            name,
            text,
            number,
            len(texts),
            page_span=PageSpan(1 + number // 2, 1 + number // 2),
            section_path=("Part", str(number // 4)),
            span=Span(start, start + len(text)),
            parent_id=f"{name}/p{number // 4}" if parents else None,
        )
        for number, (text, start) in enumerate(zip(texts, starts, strict=True))
    ]
    if parents:
        for part in range(2):
            first, last = chunks[4 * part].span, chunks[4 * part + 3].span
            assert first is not None
            assert last is not None
            chunks.append(
                Chunk(f"{name}/p{part}", name, whole[first.start : last.end], part, 2, span=Span(first.start, last.end))
            )
    return chunks


def passages(request: CompletionRequest) -> list[str]:
    """Return the passages that a model is shown."""
    lines = re.findall(r"^passage \d+: (.*)$", request.messages[-1].content, re.MULTILINE)
    return [json.loads(line) for line in lines]


def judge(scores: Mapping[str, int]) -> Callable[[CompletionRequest], dict[str, Any]]:
    """Return a model that scores passages by the first of the given words that they hold, and quotes it."""

    def answer(request: CompletionRequest) -> dict[str, Any]:
        results: list[dict[str, Any]] = []
        for number, passage in enumerate(passages(request), start=1):
            word = next((word for word in scores if word in passage), "")
            score = scores.get(word, 0)
            results.append({"id": number, "key_evidence": word, "answerability": score > 60, "relevance_score": score})
        return {"results": results}

    return answer


def reranker(answer: Any, config: RerankConfig | None = None, **settings: Any) -> tuple[OpenAIReranker, FakeLLM]:
    """Return a reranker over a fake model, and the model."""
    llm = FakeLLM(answer)
    return OpenAIReranker(config, llm, clock=FakeClock(), **settings), llm


def roles(pack: ContextPack) -> list[tuple[str, str]]:
    """Return what is shown, in order."""
    return [(passage.id, passage.role) for passage in pack.passages]
