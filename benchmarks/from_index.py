"""The first query, later ones and memory over LlamaIndex's own index: ``python benchmarks/from_index.py CORPUS``.

CORPUS is a BEIR ``corpus.jsonl``. Its passages become ``--nodes`` nodes (10,000), repeated with another number where
there are fewer, in a ``VectorStoreIndex`` over ``SimpleVectorStore``. Vectors are made of the text's hash: nothing is
embedded by a model, and times are without embedding. Each system runs in a process of its own, ``--rounds`` times in
turns, and the medians are printed:

- *first*: seconds of the first query, with all that is built for it;
- *p50*: milliseconds of the queries after it;
- *insert*: seconds of the first query that finds a node which was inserted. LlamaIndex's
  retrievers know the nodes that they were made of, and are made anew for that;
- *memory*: MB that the process grew by since the index was made.

CPU seconds are measured, which other work on the machine disturbs less than the clock.

Needs ``pip install --no-deps llama-index-retrievers-bm25==0.8.0`` and bm25s for LlamaIndex's fusion.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from hashlib import blake2b
from importlib import import_module
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.llms import MockLLM
from llama_index.core.retrievers import BaseRetriever, QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import TextNode

from llama_index.retrievers.retrieval_core import RetrievalCoreRetriever
from llama_index.retrievers.retrieval_core.adapters import from_index
from retrieval_core.config import load_config

if TYPE_CHECKING:
    from collections.abc import Callable

DIMENSION = 384
TOP_K = 3
QUERIES = 20
NEW = "A quokka named Zebulon lives in Perth."


class HashEmbedding(MockEmbedding):
    """Makes a vector of a text's hash, the same each time."""

    def __init__(self) -> None:
        super().__init__(embed_dim=DIMENSION)

    def _get_vector(self) -> list[float]:
        raise NotImplementedError

    def _get_text_embedding(self, text: str) -> list[float]:
        seed = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
        vector = np.random.default_rng(seed).standard_normal(DIMENSION, np.float32)
        return (vector / np.linalg.norm(vector)).tolist()

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


def stock_fusion(index: VectorStoreIndex) -> BaseRetriever:
    """Return LlamaIndex's fusion as its guide makes it."""
    bm25: Any = import_module("llama_index.retrievers.bm25").BM25Retriever
    sides = [
        index.as_retriever(similarity_top_k=TOP_K),
        bm25.from_defaults(docstore=index.docstore, similarity_top_k=TOP_K),
    ]
    return QueryFusionRetriever(
        sides, llm=MockLLM(), mode=FUSION_MODES.RELATIVE_SCORE, similarity_top_k=TOP_K, num_queries=1, use_async=False
    )


def ours(index: VectorStoreIndex, mode: str) -> BaseRetriever:
    """Return our retriever over the index; the time limit is no part of what is measured."""
    config = load_config(overrides={"search.mode": mode, "deadline_seconds": 600})
    return RetrievalCoreRetriever(from_index(index, config=config), top_k=TOP_K)


SYSTEMS: dict[str, Callable[[VectorStoreIndex], BaseRetriever]] = {
    "LlamaIndex: vector search": lambda index: index.as_retriever(similarity_top_k=TOP_K),
    "from_index: vector search": lambda index: ours(index, "dense"),
    "LlamaIndex: fusion with BM25Retriever": stock_fusion,
    "from_index: hybrid search": lambda index: ours(index, "hybrid"),
}


def seconds_of(call: Callable[[], object]) -> float:
    """Return the CPU seconds of a call."""
    began = time.process_time()
    call()
    return time.process_time() - began


def resident() -> float:
    """Return the memory of this process in MB."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 1e6


def measure(system: str, corpus: Path, count: int) -> dict[str, float]:
    """Measure one system in this process."""
    with corpus.open(encoding="utf-8") as lines:
        passages = [f"{row.get('title', '')}\n{row['text']}".strip() for row in map(json.loads, lines)]
    texts = [f"{text} ({number})" for number, text in enumerate(islice(cycle(passages), count))]
    nodes = [TextNode(id_=f"n{number}", text=text, metadata={"year": number % 50}) for number, text in enumerate(texts)]
    index = VectorStoreIndex(nodes, embed_model=HashEmbedding())
    del nodes
    queries = [" ".join(text.split()[:8]) for text in texts[:: count // QUERIES]]
    before = resident()
    retriever: Any = None

    def first() -> None:
        nonlocal retriever
        retriever = SYSTEMS[system](index)
        assert len(retriever.retrieve(queries[0])) == TOP_K

    def after_insert() -> None:
        again = SYSTEMS[system](index) if system.startswith("LlamaIndex") else retriever
        assert any(item.node.node_id == "new" for item in again.retrieve(NEW))

    figures = {"first": seconds_of(first)}
    memory = resident() - before
    figures["p50"] = 1000 * median(seconds_of(lambda query=query: retriever.retrieve(query)) for query in queries)
    index.insert_nodes([TextNode(id_="new", text=NEW)])
    return figures | {"insert": seconds_of(after_insert), "memory": memory}


def main() -> None:
    """Measure each system."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--system", choices=SYSTEMS)
    given = parser.parse_args()
    if given.system:
        print(json.dumps(measure(given.system, given.corpus, given.nodes)))
        return
    runs: dict[str, list[dict[str, float]]] = {system: [] for system in SYSTEMS}
    for _ in range(given.rounds):
        for system, figures in runs.items():
            command = [sys.executable, __file__, str(given.corpus), "--nodes", str(given.nodes), "--system", system]
            told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            figures.append(json.loads(told.splitlines()[-1]))
    print(f"{given.nodes:,} nodes, top {TOP_K}, CPU time, median of {given.rounds}\n")
    print("| retriever | first, s | p50, ms | after an insert, s | memory, MB |\n|---|---|---|---|---|")
    for system, figures in runs.items():
        first, p50, insert, memory = (
            median(each[name] for each in figures) for name in ("first", "p50", "insert", "memory")
        )
        print(f"| {system} | {first:.2f} | {p50:.1f} | {insert:.3f} | {memory:.0f} |")


if __name__ == "__main__":
    main()
