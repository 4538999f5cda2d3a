"""Black-box tests use public names only, so that the inside can be rebuilt without touching them.

``docs/dev/testing.md`` says what is public. Each exception has a reason, and one that is no longer needed fails.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
FOLDERS = (
    "adapters", "conformance", "contract", "e2e", "frameworks", "llamaindex", "mcp", "process", "properties", "seams",
    "support",
)  # fmt: skip
SOURCES = ("retrieval_core", "mcp_server", "llamaindex_plugin")
PUBLIC = re.compile(
    r"retrieval_core(\.(types|types\.filters|ports|errors|config|pipeline|evaluate(\.suite)?|run\.(observe|clock)"
    r"|text\.analysis|integrations(\.(langchain|haystack))?|cli(\.__main__)?|(testing|compat|service)(\.\w+)*))?"
    r"|retrieval_core_mcp"
    r"|llama_index\.\w+(\.docstore)?\.retrieval_core(\.adapters)?"
)
"""Modules whose names are public. Clocks and analyzers are arguments of public classes; faces call the service."""
ADAPTER = re.compile(
    r"retrieval_core\.adapters\.(?!local_models|vendors)\w+\.[a-z_]+(\.([A-Z]+[a-z]\w*|DEFAULT_PROMPT))?"
)
"""An adapter's module: its classes, and the prompt that users start theirs from."""
IMPORT = re.compile(r"^\s*(?:>>> )?from ([\w.]+) import ([\w, ]+)", re.MULTILINE)
MODULES = re.compile(r"(?:^|;)\s*import ([\w.]+(?:, [\w.]+)*)", re.MULTILINE)
PRIVATE = re.compile(r"_[a-z]\w*(?<!_)")
EXCEPTIONS: dict[str, dict[str, str]] = {
    "adapters/postgres/test_faults.py": {
        **dict.fromkeys(
            ("retrieval_core.adapters.stores.postgres.schema", "schema.MIGRATIONS"),
            "there is no older format yet that could be converted",
        ),
        **dict.fromkeys(
            ("retrieval_core.adapters.stores.postgres.session", "session._CONNECT_SECONDS"),
            "a bound that would take ten seconds to reach",
        ),
    },
    "adapters/postgres/test_filtered_words.py": {
        **dict.fromkeys(
            (
                "retrieval_core.adapters.stores.postgres.words",
                "words.CACHED_BYTES",
                "words.CHECKED_FIRST",
                "words.READ_AT_ONCE",
            ),
            "bounds that would take thousands of chunks or queries to reach",
        ),
        "retrieval_core.adapters.stores.postgres.session.View": "counts the statements",
    },
    "adapters/postgres/test_filters.py": dict.fromkeys(
        (
            "retrieval_core.adapters.stores.postgres.schema.decode",
            "retrieval_core.adapters.stores.postgres.schema.encode",
        ),
        "an invariant that filters only sample",
    ),
    "adapters/postgres/test_settings_of_servers.py": dict.fromkeys(
        ("retrieval_core.adapters.stores.postgres.session", "session.monotonic"),
        "a wait that would take ten seconds",
    ),
    "adapters/postgres/test_several.py": dict.fromkeys(
        ("retrieval_core.adapters.stores.postgres.vectors", "vectors.EXACT_BELOW", "vectors.INDEXED_FROM"),
        "bounds that would take thousands of chunks to reach",
    ),
    "adapters/postgres/test_tables.py": {
        **dict.fromkeys(
            ("._reading", "._sample", "._visible", "._where"),
            "what SQL leaves out of a result, and each of thousands of filters in one transaction",
        ),
        "retrieval_core.adapters.parts.AdapterParts": "opens a store by its settings, as the library does",
        "retrieval_core.adapters.stores.postgres.session.View": "explains the statements",
        "retrieval_core.adapters.stores.postgres.table._PAGE": "a bound that would take a thousand rows to reach",
    },
    "adapters/redis/test_redis.py": {
        "retrieval_core.adapters.caches.redis.encode": "writes what the cache would, and then damages it",
        "redis_module._MOST_MISSED": "a bound that would take thousands of queries to reach",
        "._key": "damages what is stored",
        "._missed": "what is forgotten can't be seen otherwise",
    },
    "adapters/redis/test_redis_faults.py": {"._make_client": "holds back the client while it is loaded"},
    "llamaindex/test_adapter_openai.py": {
        "._client": "LlamaIndex's own client, which nothing else closes",
        "._clients": "clients of LlamaIndex's model, which nothing else closes",
    },
    "llamaindex/test_as_tested_there.py": dict.fromkeys(("._object_map", "._verbose"), "a name of LlamaIndex's"),
    "mcp/http_contract/test_openapi.py": {
        "retrieval_core_mcp.http.routes.ROWS": "a schema that another one has replaced can't be seen in the document",
    },
    "mcp/page/test_trouble.py": {
        "retrieval_core_mcp.browser.write_redirect": "what the command `retrieval open` writes is gone when it ends",
    },
    "process/test_cli.py": dict.fromkeys(
        ("retrieval_core.index.open", "retrieval_core_mcp.stdio"), "a moment at which the process is interrupted"
    ),
    "process/test_lancedb.py": {
        "retrieval_core.adapters.stores.lancedb.session": "shortens how long a version is remembered",
    },
    "process/test_sqlite.py": {
        "retrieval_core.adapters.stores.sqlite.changes": "shortens how long a version is remembered",
    },
    "contract/test_new_adapter.py": dict.fromkeys(
        (f"retrieval_core.pipeline.stages.{name}" for name in ("state.Stage", "select.Select", "by_id.ById")),
        "adds a stage to a copy of the library, as somebody who changes the library does",
    ),
    "contract/test_new_tool.py": {"retrieval_core.cli.commands.main": "adds a command to a copy of the library"},
    "properties/test_copy.py": {
        "retrieval_core.index.copying": "bounds that would take thousands of documents to reach",
    },
    "properties/test_service_tenants.py": {
        "retrieval_core.pipeline.grep.cursor_after": "makes the cursor of a document that another tenant has",
    },
    "seams/test_grep.py": {
        "retrieval_core.adapters.stores.sqlite.trigrams": "whether a file has them changes no result",
    },
    "seams/test_grep_everywhere.py": {
        "retrieval_core.index.index.SECONDS": "a busy machine searches everything at once",
        **dict.fromkeys(
            (f"retrieval_core.adapters.stores.first_run.{name}_progress" for name in ("write", "remove")),
            "a moment in the middle of the first run of another program",
        ),
    },
    "seams/test_grep_pages.py": dict.fromkeys(
        ("retrieval_core.pipeline.lifecycle.SystemClock", "retrieval_core.pipeline.grep._SLICE", "._fetch"),
        "time runs out after any number of bytes, which no text of a test is long enough for",
    ),
    "seams/test_first_steps.py": {
        "retrieval_core.ingest.ingester.CHUNKS_PER_WRITE": "few files are searched by words first, unless it is larger",
    },
    "seams/test_model_sources.py": {
        "retrieval_core.adapters.local_models.files.HubRepository": "names a repository with the hashes of its files",
        "retrieval_core.adapters.local_models.bert": "moves the clock of the pause between two attempts",
    },
    "seams/test_renamed_settings.py": dict.fromkeys(
        ("retrieval_core.config.moved", "moved.GONE", "moved.MOVED"), "works for all names, so it has names of its own"
    ),
    "seams/test_settings_of_0_1_0.py": dict.fromkeys(
        (
            f"retrieval_core.config.moved.{name}"
            for name in ("GONE", "OTHER_MEANINGS", "OTHER_SECTIONS", "SWITCHES", "gone", "new_name")
        ),
        "each renamed or removed setting of the tables has to be there",
    ),
    # Helpers are the one place that knows what they replace or call; tests take it from them.
    "seams/test_foreign_writers.py": {
        "retrieval_core.adapters.stores.postgres.session.View": "explains the statements",
        "retrieval_core.cli.doctor.examine_parts": "the doctor without the checks of what is installed",
    },
    "support/bombs.py": {"retrieval_core.ingest.readers.read_file": "one file is read alone, to measure its cost"},
    "support/building.py": dict.fromkeys(
        (
            "retrieval_core.adapters.stores.foreign.MAPPED",
            "retrieval_core.index.open.build_pipeline",
            "retrieval_core.index.serialization.event_to_json",
        ),
        "parts are made from settings, and events become JSON, as commands and servers do it",
    ),
    "seams/test_copy_index.py": {
        "retrieval_core.index.copying": "bounds that would take thousands of documents to reach",
    },
    "seams/test_warm_queries.py": {
        "retrieval_core.run.threads.ThreadPool": "a query starts no thread, which nothing shows from outside",
    },
    "support/command_line.py": {"retrieval_core.cli.commands.main": "the command, called in this process"},
    "support/schemathesis_hooks.py": {
        "retrieval_core.text.patterns.compile_pattern": "which texts are patterns of RE2, a schema can't say",
    },
    "support/foreign_writers.py": {
        **dict.fromkeys(("._index", "._dummy_vector"), "Haystack's store reaches Pinecone over HTTPS only"),
        "._client": "Haystack's store for Qdrant cannot be closed",
        **dict.fromkeys(("._connection", "._engine", "._loop"), "stores of PostgreSQL that cannot be closed"),
    },
    "support/http_service.py": dict.fromkeys(
        (
            "retrieval_core_mcp.http.admission.Admission",
            "retrieval_core_mcp.http.app.create_app",
            "retrieval_core_mcp.http.gate.Gate",
            "retrieval_core_mcp.http.openapi.document",
            "retrieval_core_mcp.http.settings.HttpSettings",
        ),
        "the service over HTTP, run in this process",
    ),
    "support/mcp_command.py": dict.fromkeys(
        (
            "retrieval_core_mcp.command._options",
            "retrieval_core_mcp.command.serve",
            "retrieval_core_mcp.setup.clients.CLIENTS",
            "retrieval_core_mcp.setup.clients.Machine",
        ),
        "the command of the server, called in this process",
    ),
    "support/suites.py": dict.fromkeys(
        (
            "retrieval_core.evaluate.suite.results.to_json",
            *(f"retrieval_core.evaluate.suite.results.{name}" for name in ("PerformanceMetrics", "Problem", "Subject")),
        ),
        "results of suites that were never run",
    ),
}
"""By file: what it uses, and why it may."""

FILES = [path for folder in FOLDERS for path in sorted((TESTS / folder).rglob("*.py")) if path != Path(__file__)]


@cache
def modules() -> frozenset[str]:
    """Return the dotted names of all our modules."""
    return frozenset(
        ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        for source in (ROOT / "packages" / name / "src" for name in SOURCES)
        for path in source.rglob("*.py")
    )


@cache
def named_in_pages() -> frozenset[str]:
    """Return the names that pages for users import."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "packages").glob("*/README.md")]
    imports = (found for page in pages for found in IMPORT.findall(page.read_text(encoding="utf-8")))
    return frozenset(f"{module}.{name.strip()}" for module, names in imports for name in names.split(","))


def is_public(module: str, name: str) -> bool:
    """Return whether a name of a module is public, or a module itself if the name is empty."""
    if name.startswith("_") and not name.endswith("__"):
        return False
    whole = f"{module}.{name}".rstrip(".")
    return bool(PUBLIC.fullmatch(module) or ADAPTER.fullmatch(whole) or whole in named_in_pages())


def split(dotted: str) -> tuple[str, str]:
    """Return the module of a dotted name, and the rest."""
    module = dotted
    while module not in modules() and "." in module:
        module = module.rpartition(".")[0]
    return (module, dotted[len(module) + 1 :]) if module in modules() else ("", "")


def imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the dotted names that a statement, or code in a text, imports from us, and what they are called there."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, alias.asname or alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from ((f"{node.module}.{alias.name}", alias.asname or alias.name) for alias in node.names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        if re.fullmatch(r"\w+(\.\w+)+", node.value):
            yield node.value, ""
        for module, names in IMPORT.findall(node.value):
            yield from ((f"{module}.{name.strip()}", "") for name in names.split(","))
        yield from ((name, "") for names in MODULES.findall(node.value) for name in names.split(", "))


def uses(tree: ast.AST) -> Iterator[str]:
    """Yield what a test uses and is not public: imported names, private attributes, replaced attributes of modules."""
    ours = set[str]()
    for node in ast.walk(tree):
        for dotted, name in imported(node):
            module, rest = split(dotted)
            if module and not rest:
                ours.add(name)
            if module and not is_public(module, rest):
                yield dotted
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and PRIVATE.fullmatch(node.attr):
            if ast.unparse(node.value) not in {"self", "cls", "super()"}:
                yield f".{node.attr}"
        elif isinstance(node, ast.Call) and re.fullmatch(r"monkeypatch\.\w+attr", ast.unparse(node.func)):
            target, *rest = node.args
            if ast.unparse(target) in ours and rest and isinstance(rest[0], ast.Constant):
                yield f"{ast.unparse(target)}.{rest[0].value}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(TESTS).as_posix())
def test_only_public_names(path: Path) -> None:
    """Each other one is an exception with a reason."""
    used = set(uses(ast.parse(path.read_text(encoding="utf-8"))))
    assert used == EXCEPTIONS.get(path.relative_to(TESTS).as_posix(), {}).keys()


def test_no_exception_is_left_of_a_file_that_is_gone() -> None:
    """Exceptions are of files that are there."""
    assert [name for name in EXCEPTIONS if TESTS / name not in FILES] == []


def test_what_is_not_public_is_noticed() -> None:
    """In imports, also in code in a text, in attributes, and where tests replace parts of a module."""
    code = """
from retrieval_core import Index, types
from retrieval_core.adapters.stores.sqlite import SqliteStore, _schema
from retrieval_core.run import runner
PROGRAM = "from retrieval_core.cli.commands import main"
index._store.close()
monkeypatch.setattr(runner, "PATIENCE", 1)
"""
    assert sorted(uses(ast.parse(code))) == [
        "._store",
        "retrieval_core.adapters.stores.sqlite._schema",
        "retrieval_core.cli.commands.main",
        "retrieval_core.run.runner",
        "runner.PATIENCE",
    ]
