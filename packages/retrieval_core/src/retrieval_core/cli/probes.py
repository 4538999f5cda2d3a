"""``retrieval doctor``: check each configured component.

Each gets one small call in a bounded time, on an event loop of its own, and no secret is told.
"""

from __future__ import annotations

import asyncio
import json
import platform
import re
import sqlite3
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BaseModel, SecretStr

from retrieval_core.adapters.parts import AdapterParts
from retrieval_core.adapters.registry import (
    build_analyzer,
    build_cache,
    build_embedder,
    build_evaluator,
    build_llm,
    build_store,
    make,
    model_for,
    model_source,
)
from retrieval_core.adapters.stores.foreign import PRESETS, FieldMapping
from retrieval_core.cli.common import count
from retrieval_core.config import RetrievalConfig, missing_settings, without_credentials, without_secrets
from retrieval_core.config.base import names_a_secret
from retrieval_core.config.kinds import (
    CUSTOM,
    EMBEDDER,
    NONE,
    PRUNER,
    RELEVANCE_FILTER,
    RERANKER,
    REWRITER,
    TRANSFORMER,
    VERIFIER,
    table_of,
)
from retrieval_core.errors import (
    ConfigurationError,
    EmbedderMismatchError,
    IndexFormatError,
    IndexNotFoundError,
    NotYetEmbeddedError,
    RetrievalError,
)
from retrieval_core.index.settings import sources_of
from retrieval_core.installation import install_command
from retrieval_core.ports import CompletionRequest, Message, SearchRequest
from retrieval_core.types import Chunk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from retrieval_core.config.kinds import Port
    from retrieval_core.ports import LLM, Embedder, Pruner, RelevanceFilter, Reranker, ResultCache, Store

    _Probe: TypeAlias = Callable[[RetrievalConfig, float], str]

T = TypeVar("T")

_EXTRA_REQUIREMENT = re.compile(r"""(?P<name>[\w.-]+).*;.*extra == ['"](?P<extra>[\w-]+)['"]""")
"""A line of a distribution's ``Requires-Dist`` that belongs to an extra."""
SERVICE_SECONDS = 20.0
"""For one request to a service."""
MODEL_SECONDS = 60.0
"""For loading a model or a large package on this machine."""
GRACE_SECONDS = 5.0
"""For letting go of what did not answer; after that it is left behind, since a thread cannot be cancelled."""
# Shorter ones would be taken out of words too, and servers of one's own are often given a word as the key. Adapters
# keep theirs to themselves whatever its length.
_SHORTEST_KEY = 8
_SHORTEST_PASSWORD = 4
# Enough for a model that reasons before it answers; the answer itself is one word.
_MOST_TOKENS = 500


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; ``missing`` is optional and not installed, ``wrong`` has to be fixed."""

    subject: str
    verdict: Literal["ok", "missing", "wrong"]
    detail: str


class AbsentError(Exception):
    """Something optional is not there."""


def _built_llm(config: RetrievalConfig) -> LLM:
    """Return the configured language model, not yet asked.

    Raises:
        AbsentError: There is none.
    """
    llm = build_llm(config.llm)
    if llm is None:
        msg = "disabled: it needs a language model. Set llm.kind."
        raise AbsentError(msg)
    return llm


def _llm_for_a_stage(config: RetrievalConfig) -> LLM:
    """Return the language model of a stage; whether it answers is another finding."""
    try:
        return _built_llm(config)
    except RetrievalError as error:
        msg = "not checked: the language model failed"
        raise AbsentError(msg) from error


def examine(config: RetrievalConfig) -> Iterator[Finding]:
    """Look at what is installed, and at each part that is configured."""
    yield _python()
    yield _sqlite()
    yield from _extras()
    yield from _model_source(config)
    for source, keys in sources_of(config).items():
        yield Finding("settings", "ok", f"from {source}: {', '.join(keys)}")
    yield from examine_parts(config)


def examine_parts(config: RetrievalConfig) -> Iterator[Finding]:
    """Look at each part that is configured; one that is not has no finding, but for embedder and index."""
    secrets = frozenset(secrets_in(config))  # that must not be printed where somebody else's message holds them
    for subject, seconds, probe in _parts(config):
        yield bounded(subject, seconds, partial(probe, config, seconds), secrets)


def _parts(config: RetrievalConfig) -> Iterator[tuple[str, float, _Probe]]:
    """Yield what is configured: its name, the seconds that it may take, and how to try it."""
    yield "embedder", _seconds(EMBEDDER, config.embedder.kind), _embedder
    if config.llm.kind != "none":
        yield "language model", SERVICE_SECONDS, _llm
    for name in config.transform.use:
        yield f"transformer {name}", MODEL_SECONDS, partial(_transformer, name)
    if config.transform.history != "auto":
        yield "conversations", SERVICE_SECONDS, _condenser
    yield from _stages(config)
    if config.evaluation.kind != NONE:
        yield "evaluation", MODEL_SECONDS, _evaluation
    if config.answer.verify or ":" in config.answer.verifier:
        yield "verifier", MODEL_SECONDS, _verifier
    if config.cache.kind not in {"memory", NONE}:
        yield "cache", SERVICE_SECONDS, _cache
    yield "index", SERVICE_SECONDS, _index


def _stages(config: RetrievalConfig) -> Iterator[tuple[str, float, _Probe]]:
    """Yield the stages that are models of their own."""
    for port, call in ((RERANKER, _scores), (RELEVANCE_FILTER, _judges), (PRUNER, _keeps), (REWRITER, None)):
        name = port.section
        for kind in getattr(config, name).kinds:
            if kind != NONE:
                subject = f"{name} {kind}" if name == "reranker" else name
                yield subject, _seconds(port, kind), partial(_tried, port, kind, call)


def _seconds(port: Port, kind: str) -> float:
    """Return how long a kind may take."""
    return SERVICE_SECONDS if kind in port.services else MODEL_SECONDS


def _tried(
    port: Port,
    kind: str,
    call: Callable[[Any], Awaitable[str]] | None,
    config: RetrievalConfig,
    seconds: float,
    *,
    llm_of: Callable[[RetrievalConfig], LLM] = _llm_for_a_stage,
) -> str:
    """Make an adapter, and call it once as its method ``probe`` or its port says.

    What asks the language model says which, as whether that answers is another finding. What a class or function of
    the user's own made is called only by its ``probe``: anything else may cost something, and nobody knows what.

    Args:
        call: How a part of this port is tried, and what is said of it then.
        llm_of: Returns the language model that it would ask.
    """
    llm = llm_of(config) if getattr(port.find(kind), "needs_llm", False) else None
    embedder = build_embedder(config.embedder) if port == PRUNER else None
    made = make(port, kind, getattr(config, port.section), AdapterParts(llm, embedder))
    if llm is not None:
        return f"asks {llm.id}"
    own: Callable[[], Awaitable[str]] | None = getattr(made, "probe", None)
    if own is not None:
        return ask(seconds, own, made, embedder)
    if call is None or (table_of(kind) == CUSTOM and not hasattr(port.find(kind), "Settings")):
        return f"created by {kind}, not called"
    return ask(seconds, lambda: call(made), made, embedder)


async def _scores(reranker: Reranker) -> str:
    await reranker.score("Does it work?", ["It works."])
    return f"{reranker.id} scores chunks"


async def _judges(relevance_filter: RelevanceFilter) -> str:
    await relevance_filter.judge("Does it work?", [Chunk("doctor#0", "doctor", "It works.")])
    return f"{relevance_filter.id} judges chunks"


async def _keeps(pruner: Pruner) -> str:
    await pruner.keep("Does it work?", [["It works.", "It rains."]])
    return f"{pruner.id} judges sentences"


def _python() -> Finding:
    return Finding("retrieval-core", "ok", f"{version('retrieval-core')} on Python {platform.python_version()}")


def _sqlite() -> Finding:
    if sqlite3.sqlite_version_info < (3, 40):
        advice = "the index needs SQLite 3.40 or later. Install a newer Python, such as from python.org."
        return Finding("SQLite", "wrong", f"{sqlite3.sqlite_version}: {advice}")
    return Finding("SQLite", "ok", sqlite3.sqlite_version)


def _extras() -> Iterator[Finding]:
    """Say of each extra whether all its distributions are there, as the package's own metadata list them."""
    wanted: dict[str, list[str]] = {}
    for requirement in requires("retrieval-core") or ():
        parts = _EXTRA_REQUIREMENT.match(requirement)
        if parts and parts["name"] != "retrieval-core":  # an extra that is made of others
            wanted.setdefault(parts["extra"], []).append(parts["name"])
    for extra, names in wanted.items():
        found: list[str] = []
        absent: list[str] = []
        for name in names:
            try:
                found.append(f"{name} {version(name)}")
            except PackageNotFoundError:
                absent.append(name)
        if absent:
            advice = f"not installed: {', '.join(absent)}. Install: {install_command(extra)}"
            yield Finding(f"extra {extra}", "missing", advice)
        else:
            yield Finding(f"extra {extra}", "ok", ", ".join(found))


def _model_source(config: RetrievalConfig) -> Iterator[Finding]:
    """Yield where the files of a local embedding model come from; whether it can be used is another finding."""
    with suppress(Exception):  # what is wrong with it is found by using it
        if source := model_source(config.embedder):
            yield Finding("embedding model", "ok", source)


def _embedder(config: RetrievalConfig, seconds: float) -> str:
    embedder = build_embedder(config.embedder)
    if embedder is None:
        return "none configured: keyword search only"
    vector = ask(seconds, lambda: embedder.embed_query("Does it work?"), embedder)
    return f"{embedder.id}, {len(vector)} dimensions"


def _llm(config: RetrievalConfig, seconds: float) -> str:
    """Have one word written: unlike a list of models, it shows that the key may be used for this model."""
    llm = _built_llm(config)
    message = Message("user", "Answer with the one word: yes")
    ask(seconds, lambda: llm.complete(CompletionRequest((message,), max_tokens=_MOST_TOKENS)), llm)
    return f"{llm.id} answers"


def _evaluation(config: RetrievalConfig, seconds: float) -> str:
    from retrieval_core.adapters.evaluators.local import LocalEvaluator  # noqa: PLC0415 - loads numpy

    try:
        llm, embedder = build_llm(config.llm), build_embedder(config.embedder)
    except RetrievalError as error:
        msg = "not checked: the language model or the embedder failed"
        raise AbsentError(msg) from error
    evaluator = build_evaluator(config.evaluation, llm, embedder)
    if isinstance(evaluator, LocalEvaluator):
        if embedder is None:
            msg = "no scores without an embedder. Set embedder.kind."
            raise AbsentError(msg)
        return f"estimates with {embedder.id}; RAGAS scores need the extra 'ragas' and a language model"
    probe: Callable[[], Awaitable[str]] | None = getattr(evaluator, "probe", None)
    return f"created by {config.evaluation.kind}, not called" if probe is None else ask(seconds, probe)


def _transformer(name: str, config: RetrievalConfig, seconds: float) -> str:
    return _graph(config) if name == "graph" else _tried(TRANSFORMER, name, None, config, seconds, llm_of=_model_for)


def _model_for(config: RetrievalConfig) -> LLM:
    return model_for(config.transform, _llm_for_a_stage(config))


def _graph(config: RetrievalConfig) -> str:
    if config.graph.file is None:
        msg = "disabled: there is no graph. Set graph.file."
        raise AbsentError(msg)
    from retrieval_core.adapters.graph import GraphFiles  # noqa: PLC0415 - only if it is configured

    graph = GraphFiles(config.graph.file).get()
    return f"{len(graph.entities):,} entities and {len(graph.relations):,} relations"


def _condenser(config: RetrievalConfig, _seconds: float) -> str:
    """Say what makes a question of a conversation stand alone."""
    kind = config.transform.history
    if kind != "llm":
        return "queries stay unchanged" if kind == "none" else "by a rule, without a language model"
    if config.llm.kind == "none":
        msg = "no language model: a rule is used. Set llm.kind."
        raise AbsentError(msg)
    return f"asks {_model_for(config).id}"


def _verifier(config: RetrievalConfig, seconds: float) -> str:
    return _tried(VERIFIER, config.answer.verifier, None, config, seconds)


def _cache(config: RetrievalConfig, seconds: float) -> str:
    """Look something up that is not there: a connection, the password and the right to read are needed for it."""
    cache = cast("ResultCache", build_cache(config.cache))  # as it is switched on
    ask(seconds, lambda: cache.get("retrieval doctor"), cache)
    return f"{cache!r} answers" if config.cache.kind == "redis" else f"{config.cache.kind} answers"


def _index(config: RetrievalConfig, seconds: float) -> str:
    embedder: Embedder | None = None
    reason: RetrievalError | None = None
    try:
        embedder = build_embedder(config.embedder)
    except RetrievalError as error:
        reason = error
    if lacking := list(missing_settings(RetrievalConfig(store=config.store), with_embedder=False)):
        msg = f"missing setting: {', '.join(lacking)}. Set it in the environment or under store.{config.store.kind}."
        raise ConfigurationError(msg, missing_keys=lacking)
    analyzer = build_analyzer(config.analysis)
    store = build_store(config.store, Path(config.index), embedder, analyzer=analyzer)

    try:
        return ask(seconds, lambda: _look(store, config, embedder), store, embedder)
    except EmbedderMismatchError as error:
        if reason is None:
            raise
        msg = "not checked: the embedder failed"
        raise AbsentError(msg) from error


async def _look(store: Store, config: RetrievalConfig, embedder: Embedder | None) -> str:
    """Describe an index, search it once, and propose a mapping if another program filled it."""
    try:
        info = await store.describe()
        if (manifest := info.manifest) is not None:  # each side may be damaged by itself
            await _search_once(store, manifest.dimension, by_words="lexical" in info.sides)
        elif config.store.kind in {"pinecone", "qdrant"} and embedder is not None:
            await _search_once(store, embedder.dimension)
    except IndexFormatError as error:
        if advice := await _advice(store, config):
            msg = f"the mapped fields of its records have no text{advice}"
            raise IndexFormatError(msg) from error
        raise
    waiting = f", {info.unembedded:,} not embedded yet" if info.unembedded else ""
    unused = f", unused vectors: {', '.join(manifest.vectors)}" if manifest is not None and manifest.vectors else ""
    found = f"{info.location}: {count(info.documents, 'document')}, {count(info.chunks, 'chunk')}{waiting}{unused}"
    return found + await _advice(store, config)


async def _advice(store: Store, config: RetrievalConfig) -> str:
    """Return which setting reads the records of another program better, or nothing."""
    if "sample_records" not in store.capabilities:
        return ""
    kind = config.store.kind
    lines = propose_fields(await store.sample_records(), kind, getattr(config.store, kind).fields)
    return "" if lines is None else f". Another program wrote them. Put this into your configuration:\n{lines}"


async def _search_once(store: Store, dimension: int | None, *, by_words: bool = False) -> None:
    """Search with any vector, which an index of another dimension refuses, and with any word."""
    if by_words:
        await store.search(SearchRequest(1, text="word"))
    if dimension is not None:
        import numpy as np  # noqa: PLC0415 - slow to load

        vector = np.full(dimension, dimension**-0.5, dtype=np.float32)
        with suppress(NotYetEmbeddedError):
            await store.search(SearchRequest(1, vector=vector))


def ask(seconds: float, call: Callable[[], Awaitable[T]], *parts: object) -> T:
    """Make one call on an event loop of its own, and close what was used there."""

    async def main() -> T:
        async with AsyncExitStack() as stack:
            for part in parts:
                if (close := getattr(part, "aclose", None)) is not None:
                    stack.push_async_callback(close)
            async with asyncio.timeout(seconds):
                return await call()

    return asyncio.run(main())


def bounded(subject: str, seconds: float, probe: Callable[[], str], secrets: frozenset[str]) -> Finding:
    """Run a probe in a thread and wait no longer than it may take; whatever goes wrong is a finding."""
    found: list[Finding] = []

    def finding(verdict: Literal["ok", "missing", "wrong"], detail: str) -> None:
        text = detail
        for secret in sorted(secrets, key=len, reverse=True):
            text = text.replace(secret, "[secret]")
        text = without_secrets(text) if verdict == "wrong" else without_credentials(text)
        found.append(Finding(subject, verdict, text))

    def work() -> None:
        try:
            finding("ok", probe())
        except (AbsentError, IndexNotFoundError) as error:
            finding("missing", str(error))
        except TimeoutError as error:
            finding("wrong", str(error) or _silence(seconds))
        except RetrievalError as error:
            finding("wrong", str(error))
        except Exception as error:  # noqa: BLE001 - of a factory, or of a library that a service needs
            finding("wrong", f"{type(error).__name__}: {error}")

    thread = Thread(target=work, name=f"retrieval-doctor-{subject}", daemon=True)
    thread.start()
    thread.join(seconds + GRACE_SECONDS)
    return found[0] if found else Finding(subject, "wrong", _silence(seconds))


def _silence(seconds: float) -> str:
    return f"no answer within {seconds:g} s. Check the address. If the service is starting, try again."


def secrets_in(value: object, name: str = "") -> Iterator[str]:
    """Yield what is a secret, however deep: its type says so, or, within a table ``custom``, its name."""
    if isinstance(value, SecretStr):
        text = value.get_secret_value()
        yield from (one for one in (text,) if len(one) >= _SHORTEST_KEY)
        yield from (one for one in _passwords_in(text) if len(one) >= _SHORTEST_PASSWORD)
    elif isinstance(value, (BaseModel, Mapping)):
        for key, one in dict(cast("Mapping[str, object]", value)).items():
            yield from secrets_in(one, f"{name}.{key}")
    elif isinstance(value, (list, tuple)):
        for one in cast("Sequence[object]", value):
            yield from secrets_in(one, name)
    elif isinstance(value, str) and len(value) >= _SHORTEST_PASSWORD:
        _, _, within = name.partition(".custom.")
        if names_a_secret(within) or "url" in within.lower():
            yield value


def _passwords_in(url: str) -> set[str]:
    try:
        parts = urlsplit(url)
        password = parts.password or ""
    except ValueError:
        return set()
    return {password, unquote(password), *(value for _, value in parse_qsl(parts.query))}


def propose_fields(
    records: Sequence[Mapping[str, Any]], kind: str, fields: Mapping[str, str] | str | None
) -> str | None:
    """Return the lines to put into the configuration; ``None`` if the present mapping is the right one.

    Args:
        records: Some records of the collection.
        kind: The kind of store.
        fields: The present mapping. Default: the preset ``default``, which gives way to that of a framework.
    """
    section, is_flat = f"store.{kind}.fields", kind == "pinecone"
    present = FieldMapping.load(fields, section, is_flat=is_flat)
    is_read = any(_reads(present, record) for record in records)
    if not records or (fields and is_read):
        return None
    for preset in PRESETS:
        mapping = FieldMapping.load(preset, section, is_flat=is_flat)
        marks = {*mapping.json, *mapping.metadata[:1]}
        if marks and any(marks <= record.keys() and _reads(mapping, record) for record in records):
            return f"[store.{kind}]\nfields = {_quoted(preset)}"
    return None if is_read else f"[store.{kind}]\nfields = {_by_name(records)}"


def _reads(mapping: FieldMapping, record: Mapping[str, Any]) -> bool:
    try:
        mapping.check([("", record)])
    except IndexFormatError:
        return False
    return True


def _by_name(records: Sequence[Mapping[str, Any]]) -> str:
    """Return a mapping of the field with most text, and of the object beside it if there is one."""
    lengths: dict[str, int] = {}
    objects: dict[str, None] = {}
    for record in records:
        for name, value in record.items():
            if isinstance(value, str):
                lengths[name] = lengths.get(name, 0) + len(value)
            elif isinstance(value, Mapping):
                objects[name] = None
    names = {"text": max(lengths, key=lengths.__getitem__, default="...")}
    if len(objects) == 1:
        names["metadata"] = next(iter(objects))
    return "{" + ", ".join(f"{ours} = {_quoted(theirs)}" for ours, theirs in names.items()) + "}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
