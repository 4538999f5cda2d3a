"""``retrieval doctor``: find out what is installed, and ask each configured adapter whether it works.

An adapter answers by its method :meth:`~retrieval_core.ports.Plugin.probe`, in a bounded time and on an event loop of
its own. No secret is shown.
"""

from __future__ import annotations

import asyncio
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
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import click
from pydantic import BaseModel, SecretStr

from retrieval_core.adapters.parts import AdapterParts
from retrieval_core.adapters.registry import (
    BASES,
    build_analyzer,
    build_cache,
    build_condenser,
    build_embedder,
    build_evaluator,
    build_llm,
    build_store,
    make,
    model_for,
    model_source,
)
from retrieval_core.cli.common import count, format_footer, harmless, say, styled
from retrieval_core.config import RetrievalConfig, kinds, missing_settings, without_credentials, without_secrets
from retrieval_core.config.base import names_a_secret
from retrieval_core.config.kinds import NONE
from retrieval_core.errors import (
    ConfigurationError,
    EmbedderMismatchError,
    IndexNotFoundError,
    RetrievalError,
    UnsupportedError,
)
from retrieval_core.index.settings import sources_of
from retrieval_core.installation import install_command
from retrieval_core.ports import as_plugin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from retrieval_core.config.kinds import Port
    from retrieval_core.ports import LLM

_EXTRA_REQUIREMENT = re.compile(r"""(?P<name>[\w.-]+).*;.*extra == ['"](?P<extra>[\w-]+)['"]""")
"""A line of a distribution's ``Requires-Dist`` that belongs to an extra."""
_SIGNS = {"ok": ("✓", "green"), "missing": ("-", "yellow"), "wrong": ("✗", "red")}
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


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        subject: The checked package or component.
        verdict: ``missing`` is optional and not installed or not set up; ``wrong`` has to be fixed.
        detail: What was found, and what to do.
    """

    subject: str
    verdict: Literal["ok", "missing", "wrong"]
    detail: str


_Build: TypeAlias = "Callable[[RetrievalConfig], tuple[Any, ...]]"
"""Returns an adapter, or its answer if it needs no call, and then further components to close."""


def examine(config: RetrievalConfig) -> Iterator[Finding]:
    """Look at what is installed, and at each part that is configured."""
    yield Finding("retrieval-core", "ok", f"{version('retrieval-core')} on Python {platform.python_version()}")
    yield _sqlite()
    yield from _extras()
    yield from _model_source(config)
    for source, keys in sources_of(config).items():
        yield Finding("settings", "ok", f"from {source}: {', '.join(keys)}")
    yield from examine_parts(config)


def print_findings(findings: Sequence[Finding]) -> None:
    """Print findings, each with a sign for its verdict."""
    for finding in findings:
        sign, colour = _SIGNS[finding.verdict]
        subject = styled(sign, fg=colour, bold=True) + " " + styled(finding.subject, bold=True)
        click.echo(f"{subject}: {harmless(finding.detail)}")
    wrong, missing = (sum(finding.verdict == verdict for finding in findings) for verdict in ("wrong", "missing"))
    problems = count(wrong, "problem") if wrong else "no problems"
    optional = f"{missing} optional not installed or not set up" if missing else None
    say(format_footer(problems, optional))


def examine_parts(config: RetrievalConfig) -> Iterator[Finding]:
    """Look at each part that is configured; one that is not has no finding, but for embedder and index."""
    secrets = frozenset(secrets_in(config))  # that must not be printed where somebody else's message holds them
    for subject, port, kind, build in _parts(config):
        seconds = SERVICE_SECONDS if kind in port.services else MODEL_SECONDS
        yield bounded(subject, seconds, partial(_answer, build, config, kind, seconds), secrets)


def _answer(build: _Build, config: RetrievalConfig, kind: str, seconds: float) -> str:
    adapter, *used = build(config)
    if isinstance(adapter, str):
        return adapter

    async def ask() -> str:
        async with AsyncExitStack() as stack:
            for part in (adapter, *used):
                if (close := getattr(part, "aclose", None)) is not None:
                    stack.push_async_callback(close)
            async with asyncio.timeout(seconds):
                return await adapter.probe()

    try:
        return asyncio.run(ask()) or f"created by {kind}, not called"
    except EmbedderMismatchError as error:
        if error.opened_with is None and config.embedder.kind != NONE:
            msg = "not checked: the embedder failed"
            raise UnsupportedError(msg) from error
        raise


def _parts(config: RetrievalConfig) -> Iterator[tuple[str, Port, str, _Build]]:
    """Yield what is configured: its name, its port and kind, and how to build it."""
    yield "embedder", kinds.EMBEDDER, config.embedder.kind, _embedder
    if config.llm.kind != NONE:
        yield "language model", kinds.LLM, config.llm.kind, lambda config: (build_llm(config.llm),)
    for name in config.transform.use:
        build = _graph if name == "graph" else partial(_stage, kinds.TRANSFORMER, name)
        yield f"transformer {name}", kinds.TRANSFORMER, name, build
    if config.transform.history != "auto":
        yield "conversations", kinds.LLM, config.llm.kind, _condenser
    for port in (kinds.RERANKER, kinds.RELEVANCE_FILTER, kinds.PRUNER, kinds.REWRITER):
        for kind in getattr(config, port.section).kinds:
            if kind != NONE:
                subject = f"reranker {kind}" if port == kinds.RERANKER else port.section
                yield subject, port, kind, partial(_stage, port, kind)
    if config.evaluation.kind != NONE:
        yield "evaluation", kinds.EVALUATOR, config.evaluation.kind, _evaluator
    verifier = config.answer.verifier
    if config.answer.verify or ":" in verifier:
        yield "verifier", kinds.VERIFIER, verifier, partial(_stage, kinds.VERIFIER, verifier)
    if config.cache.kind not in {"memory", NONE}:
        yield "cache", kinds.CACHE, config.cache.kind, lambda config: (build_cache(config.cache),)
    yield "index", kinds.STORE, config.store.kind, _store


def _embedder(config: RetrievalConfig) -> tuple[Any, ...]:
    return (build_embedder(config.embedder) or "none configured: keyword search only",)


def _stage(port: Port, kind: str, config: RetrievalConfig) -> tuple[Any, ...]:
    llm = _llm(config) if getattr(port.find(kind), "needs_llm", False) else None
    if llm is not None and port == kinds.TRANSFORMER:
        llm = model_for(config.transform, llm)
    embedder = build_embedder(config.embedder) if port == kinds.PRUNER else None
    made = make(port, kind, getattr(config, port.section), AdapterParts(llm, embedder))
    return as_plugin(made, BASES[port.section]), embedder


def _llm(config: RetrievalConfig, advice: str = "disabled: it needs a language model. Set llm.kind.") -> LLM:
    """Return the language model of a stage; whether it answers is another finding.

    Raises:
        UnsupportedError: There is none, or it cannot be created.
    """
    try:
        llm = build_llm(config.llm)
    except RetrievalError as error:
        msg = "not checked: the language model failed"
        raise UnsupportedError(msg) from error
    if llm is None:
        raise UnsupportedError(advice)
    return llm


def _graph(config: RetrievalConfig) -> tuple[Any, ...]:
    if config.graph.file is None:
        msg = "disabled: there is no graph. Set graph.file."
        raise UnsupportedError(msg)
    from retrieval_core.adapters.graph import GraphFiles  # noqa: PLC0415 - only if it is configured

    return (GraphFiles(config.graph.file),)


def _condenser(config: RetrievalConfig) -> tuple[Any, ...]:
    """Return what makes a question of a conversation stand alone."""
    is_asked = config.transform.history == "llm"
    llm = _llm(config, "no language model: a rule is used. Set llm.kind.") if is_asked else None
    return (build_condenser(config.transform, llm) or "queries stay unchanged",)


def _evaluator(config: RetrievalConfig) -> tuple[Any, ...]:
    try:
        llm, embedder = build_llm(config.llm), build_embedder(config.embedder)
    except RetrievalError as error:
        msg = "not checked: the language model or the embedder failed"
        raise UnsupportedError(msg) from error
    return build_evaluator(config.evaluation, llm, embedder), llm, embedder


def _store(config: RetrievalConfig) -> tuple[Any, ...]:
    if lacking := list(missing_settings(RetrievalConfig(store=config.store), with_embedder=False)):
        msg = f"missing setting: {', '.join(lacking)}. Set it in the environment or under store.{config.store.kind}."
        raise ConfigurationError(msg, missing_keys=lacking)
    embedder = None
    with suppress(RetrievalError):  # which is another finding
        embedder = build_embedder(config.embedder)
    return build_store(config.store, Path(config.index), embedder, analyzer=build_analyzer(config.analysis)), embedder


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
        except (UnsupportedError, IndexNotFoundError) as error:
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
