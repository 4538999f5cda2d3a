"""What ``retrieval doctor`` asks of the parts that a configuration names: one small call each, in a bounded time."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retrieval_core.cli.probing import AbsentError, ask, bounded, built_llm, llm_for_a_stage, made_by, secrets_of
from retrieval_core.config import missing_settings
from retrieval_core.errors import ConfigurationError, EmbedderMismatchError, RetrievalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from retrieval_core.cli.probing import Finding
    from retrieval_core.config import RetrievalConfig
    from retrieval_core.ports import Embedder, RelevanceFilter, ResultCache, Store

SERVICE_SECONDS = 20.0
"""For one request to a service."""
MODEL_SECONDS = 60.0
"""For loading a model or a large package on this machine."""
# Enough for a model that reasons before it answers; the answer itself is one word.
_MOST_TOKENS = 500


def examine_parts(config: RetrievalConfig) -> Iterator[Finding]:
    """Look at each part that is configured; one that is not has no finding, but for embedder and index."""
    secrets = secrets_of(config)

    def look(subject: str, seconds: float, probe: Callable[[RetrievalConfig, float], str]) -> Finding:
        return bounded(subject, seconds, lambda: probe(config, seconds), secrets)

    of_embedder = SERVICE_SECONDS if config.embedder.kind == "openai" else MODEL_SECONDS
    yield look("embedder", of_embedder, _embedder)
    if config.query.truncate_at == "grapheme":
        yield look("cutting questions", MODEL_SECONDS, _cutting)
    for subject, seconds, probe in _stages(config):
        yield look(subject, seconds, probe)
    yield look("index", SERVICE_SECONDS, _index)


def _embedder(config: RetrievalConfig, seconds: float) -> str:
    from retrieval_core.index.open import build_embedder  # noqa: PLC0415 - help and completion need none of this

    embedder = build_embedder(config.embedder)
    if embedder is None:
        return "none is configured: lexical search only"
    vector = ask(seconds, lambda: embedder.embed_query("Does it work?"), embedder)
    return f"{embedder.id} gives vectors of {len(vector)} components"


def _cutting(config: RetrievalConfig, _seconds: float) -> str:
    """Cut a question: the extra that this needs is otherwise missed with the first one that is too long."""
    from retrieval_core.pipeline.stages.normalize import normalize  # noqa: PLC0415

    normalize("Does it work?", config.query.model_copy(update={"max_length": 1}))
    return "at graphemes"


def _llm(config: RetrievalConfig, seconds: float) -> str:
    """Have one word written: unlike a list of models, it shows that the key may be used for this model."""
    from retrieval_core.ports import CompletionRequest, Message  # noqa: PLC0415

    llm = built_llm(config)
    message = Message("user", "Answer with the one word: yes")
    ask(seconds, lambda: llm.complete(CompletionRequest((message,), max_tokens=_MOST_TOKENS)), llm)
    return f"{llm.id} answers"


def _stages(config: RetrievalConfig) -> Iterator[tuple[str, float, Callable[[RetrievalConfig, float], str]]]:
    """Yield what is configured beside embedder and index: its name, the seconds it may take, and how to try it."""
    if config.llm.kind != "none":
        yield "language model", SERVICE_SECONDS, _llm
    yield from _of_questions(config)
    for kind in (config.reranker.kind, *config.reranker.fallbacks) if config.reranker.enabled else ():
        if kind != "none":
            yield f"reranker {kind}", MODEL_SECONDS, partial(_reranker, kind)
    if config.relevance_filter.enabled and config.relevance_filter.kind != "none":
        yield "relevance_filter", MODEL_SECONDS, _relevance_filter
    if config.pruner.kind != "none":
        yield "pruner", MODEL_SECONDS, _pruner
    if config.rewriter.kind != "none":
        yield "rewriter", SERVICE_SECONDS, _rewriter
    if config.evaluation.enabled:
        yield "evaluation", MODEL_SECONDS, _evaluation
    if config.answer.verify or ":" in config.answer.verifier:
        yield "verifier", MODEL_SECONDS, _verifier
    if config.cache.enabled and config.cache.kind != "memory":
        yield "cache", SERVICE_SECONDS, _cache


def _of_questions(config: RetrievalConfig) -> Iterator[tuple[str, float, Callable[[RetrievalConfig, float], str]]]:
    for name in config.transform.use:
        yield f"transformer {name}", MODEL_SECONDS, partial(_transformer, name)
    if config.transform.history != "auto":
        yield "conversations", SERVICE_SECONDS, _condenser


def _reranker(kind: str, config: RetrievalConfig, seconds: float) -> str:
    from retrieval_core.index.open import build_rerankers  # noqa: PLC0415

    alone = config.reranker.model_copy(update={"kind": kind, "fallbacks": ()})
    llm = llm_for_a_stage(config) if kind == "llm" else None
    (reranker,) = build_rerankers(alone, llm)
    if llm is not None:
        return f"asks {llm.id}"
    if ":" in kind:
        return made_by(kind)
    ask(seconds, lambda: reranker.score("Does it work?", ["It works."]), reranker)
    return f"{reranker.id} scores passages"


def _relevance_filter(config: RetrievalConfig, seconds: float) -> str:
    from retrieval_core.index.open import build_relevance_filter  # noqa: PLC0415
    from retrieval_core.types import Chunk  # noqa: PLC0415

    settings = config.relevance_filter
    llm = llm_for_a_stage(config) if settings.kind == "llm" else None
    relevance_filter: RelevanceFilter | None = build_relevance_filter(settings, llm)
    if llm is not None:
        return f"asks {llm.id}"
    if settings.kind != "local" or relevance_filter is None:
        return made_by(settings.kind)
    chunk = Chunk("doctor#0", "doctor", "It works.")
    ask(seconds, lambda: relevance_filter.judge("Does it work?", [chunk]), relevance_filter)
    return f"{relevance_filter.id} judges passages"


def _rewriter(config: RetrievalConfig, _seconds: float) -> str:
    from retrieval_core.index.open import build_rewriter  # noqa: PLC0415

    kind = config.rewriter.kind
    llm = llm_for_a_stage(config) if kind == "llm" else None
    build_rewriter(config.rewriter, llm)
    return made_by(kind) if llm is None else f"asks {llm.id}"


def _evaluation(config: RetrievalConfig, seconds: float) -> str:
    from retrieval_core.adapters.evaluators.local import LocalEvaluator  # noqa: PLC0415
    from retrieval_core.index.open import build_embedder, build_evaluator, build_llm  # noqa: PLC0415

    kind = config.evaluation.kind
    try:
        llm, embedder = build_llm(config.llm), build_embedder(config.embedder)
    except RetrievalError as error:
        msg = "not looked at, as the language model or the embedder cannot be used; see there"
        raise AbsentError(msg) from error
    evaluator = build_evaluator(config.evaluation, llm, embedder)
    if isinstance(evaluator, LocalEvaluator):
        if embedder is None:
            msg = "without an embedder there are no scores; set embedder.kind"
            raise AbsentError(msg)
        return f"estimates by {embedder.id}; scores by RAGAS need the extra 'ragas' and a language model"
    if evaluator is None or kind not in {"auto", "ragas"}:
        return made_by(kind)
    # Importing RAGAS is what goes wrong; a model that stands in for the real one ends it there, before any request.
    sentinel: Any = _Sentinel()
    loaded = build_evaluator(config.evaluation, sentinel, sentinel)
    if loaded is not None:
        with suppress(_ReachedError):
            ask(seconds, lambda: loaded.evaluate("Does it work?", (), "It works."))
    return f"RAGAS can be used: {evaluator.id}"


def _transformer(name: str, config: RetrievalConfig, _seconds: float) -> str:
    """Make a transformer; those that ask a language model say which, and whether that answers is another finding."""
    from retrieval_core.index.builders.transformers import build_transformers, model_for  # noqa: PLC0415

    if name == "graph":
        return _graph(config)
    if name in {"keywords", "decompose", "hyde"}:
        return f"asks {model_for(config.transform, llm_for_a_stage(config)).id}"
    build_transformers(config.transform.model_copy(update={"use": (name,)}), None)
    return made_by(name)


def _graph(config: RetrievalConfig) -> str:
    from retrieval_core.index.builders.graph import graph_files  # noqa: PLC0415

    files = graph_files(config.graph, Path(config.index))
    if files is None:
        msg = "there is no graph and it is left out without one; see graph.file"
        raise AbsentError(msg)
    graph = files.get()
    return f"{len(graph.entities):,} entities and {len(graph.relations):,} relations"


def _condenser(config: RetrievalConfig, _seconds: float) -> str:
    """Say what makes a question of a conversation stand alone."""
    kind = config.transform.history
    if kind != "llm":
        return "the question stays as it is" if kind == "none" else "by a rule, without a language model"
    if config.llm.kind == "none":
        msg = "there is no language model, so a rule does it; set llm.kind"
        raise AbsentError(msg)
    from retrieval_core.index.builders.transformers import model_for  # noqa: PLC0415

    return f"asks {model_for(config.transform, llm_for_a_stage(config)).id}"


def _pruner(config: RetrievalConfig, seconds: float) -> str:
    """Have two sentences judged."""
    from retrieval_core.index.builders.stages import build_pruner  # noqa: PLC0415
    from retrieval_core.index.open import build_embedder, local_cross_encoder  # noqa: PLC0415

    made = build_pruner(config.pruner, build_embedder(config.embedder), local_cross_encoder)
    if made is None or ":" in config.pruner.kind:
        return made_by(config.pruner.kind)
    ask(seconds, lambda: made.keep("Does it work?", [["It works.", "It rains."]]), made)
    return f"{made.id} judges sentences"


def _verifier(config: RetrievalConfig, _seconds: float) -> str:
    """Make what holds answers against their passages; one that asks a language model says which."""
    from retrieval_core.index.builders.stages import build_verifier  # noqa: PLC0415

    kind = config.answer.verifier
    if kind == "llm" or (kind == "auto" and config.llm.kind != "none"):
        return f"asks {llm_for_a_stage(config).id}"
    build_verifier(config.answer, None)
    return made_by(kind) if ":" in kind else "words and figures are compared on this machine"


class _ReachedError(Exception):
    """A model was asked."""


class _Sentinel:
    """Stands in for a model, and says that it was asked."""

    id = "doctor"
    dimension = 1

    async def complete(self, _request: object) -> None:
        raise _ReachedError

    async def embed_texts(self, _texts: object) -> None:
        raise _ReachedError


def _cache(config: RetrievalConfig, seconds: float) -> str:
    """Look something up that is not there: a connection, the password and the right to read are needed for it."""
    from retrieval_core.index.open import build_cache  # noqa: PLC0415

    cache: ResultCache | None = build_cache(config.cache)
    if cache is None:
        return "switched off"
    ask(seconds, lambda: cache.get("retrieval doctor"), cache)
    return f"{cache!r} answers" if config.cache.kind == "redis" else f"{config.cache.kind} answers"


def _index(config: RetrievalConfig, seconds: float) -> str:
    from retrieval_core.index.builders.backends import build_analyzer, named_fields  # noqa: PLC0415
    from retrieval_core.index.open import build_embedder, build_store  # noqa: PLC0415

    embedder: Embedder | None = None
    reason: RetrievalError | None = None
    try:
        embedder = build_embedder(config.embedder)
    except RetrievalError as error:
        reason = error
    if lacking := [name for name in missing_settings(config) if name.startswith("PINECONE_")]:
        msg = f"{' and '.join(lacking)} not set, in the environment or under store.pinecone"
        raise ConfigurationError(msg, missing_keys=lacking)
    analyzer, vectors = build_analyzer(config.analysis), named_fields(config.vectors, embedder)
    store = build_store(config.store, Path(config.index), embedder, analyzer=analyzer, vectors=vectors)

    async def look() -> str:
        info = await store.describe()
        if config.store.kind == "pinecone" and embedder is not None:
            await _search_once(store, embedder.dimension)
        elif (manifest := info.manifest) is not None:  # each side may be damaged by itself
            await _search_once(store, manifest.dimension, by_words="lexical" in info.sides)
        return f"{info.location}: {info.documents:,} documents, {info.chunks:,} chunks"

    try:
        return ask(seconds, look, store, embedder)
    except EmbedderMismatchError as error:
        if reason is None:
            raise
        msg = "not looked at, as the embedder cannot be used; see there"
        raise AbsentError(msg) from error


async def _search_once(store: Store, dimension: int | None, *, by_words: bool = False) -> None:
    """Search with any vector, which an index of another dimension refuses, and with any word."""
    from retrieval_core.ports import SearchRequest  # noqa: PLC0415

    if by_words:
        await store.search(SearchRequest(1, text="word"))
    if dimension is not None:
        import numpy as np  # noqa: PLC0415 - slow to load

        vector = np.full(dimension, dimension**-0.5, dtype=np.float32)
        await store.search(SearchRequest(1, vector=vector))
