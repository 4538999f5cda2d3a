"""LlamaIndex's own retrievers and ours over the same passages: ``python benchmarks/llamaindex.py FOLDER [NAME ...]``.

FOLDER holds BEIR collections, by default ``scifact`` and ``mtrag_fiqa``. ``--queries N`` asks the first N questions.
Prints how they are asked; a table for each collection, whose p is of a row's difference in nDCG@10 from ours over the
same nodes (see ``significance.py``); and what the plug-in adds to the pipeline beneath it, with the part of it that any
retriever of LlamaIndex adds. Ends with 1 if that is not below a millisecond in the quickest of each question's runs,
which other work on the machine disturbs least.

Needs the extras ``local`` and ``evaluate``, bm25s, and ``pip install --no-deps llama-index-retrievers-bm25==0.8.0``:
among its dependencies is PyStemmer 2, which stems some words otherwise than the PyStemmer 3 of a plain installation.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from llama_index.core import VectorStoreIndex
from llama_index.core.llms import MockLLM
from llama_index.core.retrievers import BaseRetriever, QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import QueryBundle, TextNode
from significance import p_value, shown

from llama_index.embeddings.retrieval_core import RetrievalCoreEmbedding
from llama_index.retrievers.retrieval_core import RetrievalCoreRetriever
from llama_index.retrievers.retrieval_core.adapters import from_index
from retrieval_core import load_config, open_index
from retrieval_core.adapters.embedders.local import LocalEmbedder
from retrieval_core.evaluate import ScoredDocument, load_collection, measure
from retrieval_core.pipeline.stages.transform import normalize
from retrieval_core.types import Chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from llama_index.core.schema import NodeWithScore
    from numpy.typing import NDArray

    from retrieval_core.evaluate import Collection
    from retrieval_core.pipeline import RetrievalPipeline
    from retrieval_core.types import Matrix, Vector

    Figures = NDArray[np.float64]

COLLECTIONS = ("scifact", "mtrag_fiqa")
TOP_K = 10
DEPTHS = (TOP_K, 200)
"""Nodes that the fusion takes of each side: as its examples do, and as many as ours."""
MODES = (FUSION_MODES.RECIPROCAL_RANK, FUSION_MODES.RELATIVE_SCORE)
SAME_NODES = "ours: from_index"
ROUNDS = 5
"""How often each question is asked to learn what the plug-in adds."""
PATIENCE = 600
"""Seconds: the first question of a pipeline over nodes reads all of them."""
MOST_ADDED = 1.0
"""Milliseconds."""
HEAD = f"""\
One model (bge-small-en-v1.5, int8) embeds every passage and every question once, before anything is measured, and all
systems have these vectors: LlamaIndex's in its nodes and in the question's bundle, ours through an embedder that
remembers them. So times are without embedding. A passage is one node or chunk, its title in front of its text; for the
last row passages are cut by our own defaults, and what that makes anew is embedded too. The question is a query's
`text`. Each system gives {TOP_K} nodes, has no result cache, and is asked each question once, in turns."""


class RememberingEmbedder(LocalEmbedder):
    """The local model, which embeds no text twice, and stays open for all indexes until :meth:`close`."""

    def __init__(self) -> None:
        super().__init__()
        self._of_questions: dict[str, Vector] = {}
        self._of_passages: dict[str, Vector] = {}

    async def embed_query(self, text: str) -> Vector:
        """Embed a question."""
        if text not in self._of_questions:
            self._of_questions[text] = await super().embed_query(text)
        return self._of_questions[text]

    async def embed_texts(self, texts: Sequence[str]) -> Matrix:
        """Embed passages."""
        new = [text for text in dict.fromkeys(texts) if text not in self._of_passages]
        self._of_passages.update(zip(new, await super().embed_texts(new), strict=True))
        return np.stack([self._of_passages[text] for text in texts])

    async def aclose(self) -> None:
        """Do nothing: each index would close it."""


def theirs(index: VectorStoreIndex) -> dict[str, BaseRetriever]:
    """Return LlamaIndex's retrievers."""
    made: dict[str, BaseRetriever] = {"VectorStoreIndex": index.as_retriever(similarity_top_k=TOP_K)}
    bm25: Any = import_module("llama_index.retrievers.bm25").BM25Retriever
    for depth in DEPTHS:
        sides = [
            index.as_retriever(similarity_top_k=depth),
            bm25.from_defaults(docstore=index.docstore, similarity_top_k=depth),
        ]
        for mode in MODES:
            made[f"QueryFusionRetriever, {mode.value}, {depth} a side"] = QueryFusionRetriever(
                sides, llm=MockLLM(), mode=mode, similarity_top_k=TOP_K, num_queries=1
            )
    return made


def milliseconds_of(ask: Callable[[], Any]) -> tuple[float, Any]:
    """Return how long a call takes, and what it returns."""
    began = time.perf_counter()
    answer = ask()
    return 1000 * (time.perf_counter() - began), answer


def measured(
    systems: Mapping[str, BaseRetriever], questions: Mapping[str, QueryBundle], collection: Collection
) -> dict[str, Figures]:
    """Return nDCG@10, recall@10 and milliseconds of every system, shape ``(3, len(questions))``.

    Every system is asked every question, each time another one first.
    """
    names = list(systems)
    figures = {name: np.empty((3, len(questions))) for name in names}
    for system in systems.values():
        system.retrieve(next(iter(questions.values())))  # loads what the first question loads
    for number, (query_id, question) in enumerate(questions.items()):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            took, nodes = milliseconds_of(partial(systems[name].retrieve, question))
            documents = dict.fromkeys(item.node.ref_doc_id or item.node.node_id for item in nodes)
            ranking = {query_id: [ScoredDocument(document_id, 0.0) for document_id in documents]}
            measures = measure({query_id: collection.judgements[query_id]}, ranking)
            # The recall is that of ten documents, as there are no more.
            figures[name][:, number] = measures.ndcg_at_10, measures.recall_at_100, took
    return figures


class BareRetriever(BaseRetriever):
    """Asks a pipeline, and gives nodes that are there already: what is left is LlamaIndex's own work."""

    def __init__(self, pipeline: RetrievalPipeline, nodes: list[NodeWithScore]) -> None:
        self._pipeline = pipeline
        self._nodes = nodes
        super().__init__()  # pyright: ignore[reportUnknownMemberType]

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self._pipeline.retrieve(query_bundle.query_str)
        return self._nodes


def asked_beneath(retriever: RetrievalCoreRetriever, questions: Sequence[QueryBundle]) -> Figures:
    """Return milliseconds through the plug-in, a bare retriever and the pipeline: ``(3, ROUNDS, len(questions))``."""
    bare = BareRetriever(retriever.pipeline, retriever.retrieve(questions[0]))
    ways: tuple[Callable[[QueryBundle], Any], ...] = (
        retriever.retrieve,
        bare.retrieve,
        lambda question: retriever.pipeline.retrieve(question.query_str),
    )
    took = np.empty((len(ways), ROUNDS, len(questions)))
    for question in questions:
        retriever.retrieve(question)  # what is cached is cached for all
    for turn in range(ROUNDS):
        for number, question in enumerate(questions):
            first = (turn + number) % len(ways)
            for which in (*range(first, len(ways)), *range(first)):
                took[which, turn, number], _ = milliseconds_of(partial(ways[which], question))
    return took


def print_table(name: str, figures: Mapping[str, Figures]) -> None:
    """Print a row for each system."""
    baseline = figures[SAME_NODES][0]
    print(f"\n## {name}, {baseline.size} questions\n")
    print("| retriever | nDCG@10 | recall@10 | p50, ms | p95, ms | p |\n|---|---|---|---|---|---|")
    for system, (ndcg, recall, took) in figures.items():
        p = "" if system == SAME_NODES else shown(p_value(ndcg - baseline))
        p50, p95 = np.percentile(took, (50, 95))
        print(f"| {system} | {ndcg.mean():.4f} | {recall.mean():.4f} | {p50:.1f} | {p95:.1f} | {p} |")


def print_added(added: Mapping[str, Figures]) -> bool:
    """Print what the plug-in adds, and how much of it is LlamaIndex's; return whether it is little enough."""
    columns = ("pipeline, p50 ms", "plug-in adds", "LlamaIndex's part", f"in the quickest of {ROUNDS}", "its part")
    print(f"\n| result cache | {' | '.join(columns)} |")
    print("|---|---|---|---|---|---|")
    holds = True
    for cache, took in added.items():
        plugin, bare, pipeline = np.median(took, axis=(1, 2))
        least = np.median(took.min(axis=1), axis=1)
        holds = holds and bool(least[0] - least[2] < MOST_ADDED)
        cells = (pipeline, plugin - pipeline, bare - pipeline, least[0] - least[2], least[1] - least[2])
        print(f"| {cache} | {' | '.join(f'{cell:.2f}' for cell in cells)} |")
    return holds


def compared(folder: Path, queries: int | None) -> bool:
    """Measure one collection, print, and return whether the plug-in adds little enough."""
    collection = load_collection(folder)
    config = load_config(overrides={"cache.kind": "none", "deadline_seconds": PATIENCE})
    asked = collection if queries is None else collection.first(queries)
    texts = {query_id: normalize(query, config.query).text for query_id, query in asked.queries.items()}
    embedder = RememberingEmbedder()
    model = RetrievalCoreEmbedding(embedder)
    chunks = [Chunk(item.id, item.id, item.text, title=item.title) for item in collection.documents()]
    with ExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory(prefix="benchmark-llamaindex-")))
        stack.callback(embedder.close)
        stack.callback(model.close)
        print(f"{folder.name}: embedding {len(chunks)} passages", file=sys.stderr, flush=True)
        with open_index(place / "passages.db", embedder=embedder) as index:
            index.add(chunks)
        with open_index(place / "own.db", embedder=embedder) as index:
            index.add_documents(collection.documents())
            own = index.describe().chunks
        vectors = model.get_text_embedding_batch([chunk.indexed_text for chunk in chunks])
        nodes = [
            TextNode(id_=chunk.id, text=chunk.indexed_text, embedding=vector)
            for chunk, vector in zip(chunks, vectors, strict=True)
        ]
        questions = {name: QueryBundle(text, embedding=model.get_query_embedding(text)) for name, text in texts.items()}

        def from_file(name: str, **settings: Any) -> RetrievalCoreRetriever:
            return stack.enter_context(
                RetrievalCoreRetriever.from_index_file(place / name, embedder=embedder, top_k=TOP_K, **settings)
            )

        vector_index = VectorStoreIndex(nodes, embed_model=model)
        over_nodes = stack.enter_context(from_index(vector_index, config=config))
        systems: dict[str, BaseRetriever] = {
            **theirs(vector_index),
            SAME_NODES: RetrievalCoreRetriever(over_nodes, top_k=TOP_K),
            "ours: from_index_file": from_file("passages.db", cache__kind="none"),
            f"ours: from_index_file, own chunking ({own:,})": from_file("own.db", cache__kind="none"),
        }
        print_table(f"{folder.name}, {len(chunks):,} passages", measured(systems, questions, asked))
        added = {
            cache: asked_beneath(
                from_file("passages.db", cache__kind="memory" if cache == "on" else "none"), list(questions.values())
            )
            for cache in ("off", "on")
        }
        return print_added(added)


def main() -> None:
    """Measure each collection."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=COLLECTIONS)
    parser.add_argument("--queries", type=int)
    arguments = parser.parse_args()
    print(HEAD, flush=True)
    holds = [compared(arguments.folder / name, arguments.queries) for name in arguments.names]
    print(f"\nThe plug-in adds {'less' if all(holds) else 'NOT LESS'} than {MOST_ADDED:g} ms to a question.")
    sys.exit(not all(holds))


if __name__ == "__main__":
    main()
