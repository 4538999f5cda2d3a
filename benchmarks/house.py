"""Count the code, and what one query runs through, in this checkout or beside another revision.

    python -m benchmarks.house [REVISION]

``REVISION`` is a tag or commit, which gets a column too. It runs with the dependencies that are installed here.

A line of code has a token other than a comment or docstring. A circle is a group of modules or folders that import each
other, also inside functions and for type checking. The query is a new one to an open SQLite index of 20 small files,
which is in memory as it is for nearly all queries, with a given vector; and the third one right after indexing, when
the index is still read from its file. Only named functions of the core are counted; a coroutine that continues is
called again.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from tokenize import COMMENT, DEDENT, ENCODING, ENDMARKER, INDENT, NEWLINE, NL, generate_tokens
from typing import TYPE_CHECKING, Any, get_args

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import FrameType

ROOT = Path(__file__).parents[1]
PACKAGES = {"core": "retrieval_core", "MCP server": "mcp_server", "plug-in": "llamaindex_plugin"}
ROOMS = (
    "installation", "errors", "types", "ports", "config", "run", "text", "adapters", "ingest", "pipeline", "index",
    "evaluate", "service", "compat", "__init__", "cli", "integrations", "testing",
)  # fmt: skip
"""Of the core: each imports from those before it."""
NO_CODE = frozenset({COMMENT, NL, NEWLINE, INDENT, DEDENT, ENCODING, ENDMARKER})
FILES = 20
TARGETS = {
    "lines of code, core": 29_000, "lines of code, MCP server": 5_000, "lines of code, plug-in": 3_000,
    "files of the core": 190, "import circles of modules": 0, "import circles of folders": 0,
    "imports from a higher room": 0, "lines of tests": 55_000, "functions of a query, in the event loop": 70,
    "calls of a query, in the event loop": 500, "settings": 125,
}  # fmt: skip


def code_lines(source: str) -> int:
    """Return how many lines have a token of code."""
    docstrings = set[tuple[int, int]]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                docstrings.add((first.lineno, first.col_offset))
    lines = set[int]()
    for token in generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE and token.start not in docstrings:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines)


def imported_names(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted name of all that a module imports, also inside functions and for type checking."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports_of(package: Path) -> dict[str, set[str]]:
    """Return which modules of a package each of them imports, by dotted name."""
    names = {
        file: ".".join(file.relative_to(package.parent).with_suffix("").parts) for file in sorted(package.rglob("*.py"))
    }
    modules = {name.removesuffix(".__init__"): file for file, name in names.items()}
    found = dict[str, set[str]]()
    for module, file in modules.items():
        imported = imported_names(ast.parse(file.read_text(encoding="utf-8")))
        targets = {name if name in modules else name.rpartition(".")[0] for name in imported}
        found[module] = {name for name in targets if name in modules and name != module}
    return found


def circles(arrows: Mapping[str, set[str]]) -> list[set[str]]:
    """Return the groups of two or more that reach each other."""

    def reached(start: str) -> set[str]:
        seen, ahead = set[str](), [start]
        while ahead:
            new = arrows.get(ahead.pop(), set[str]()) - seen
            seen |= new
            ahead += new
        return seen

    reach = {name: reached(name) for name in arrows}
    groups = {
        frozenset(other for other in reach[name] if name in reach[other]) for name in arrows if name in reach[name]
    }
    return [set(group) for group in sorted(groups, key=sorted)]


def between(arrows: Mapping[str, set[str]], depth: int) -> dict[str, set[str]]:
    """Return which folders import which others, by the first parts of the modules' names below the package."""

    def folder(module: str) -> str:
        return ".".join([*module.split("."), "__init__"][1 : depth + 1])

    found = dict[str, set[str]]()
    for module, names in arrows.items():
        here = folder(module)
        found.setdefault(here, set()).update({folder(name) for name in names} - {here})
    return found


def structure(tree: Path) -> dict[str, int]:
    """Count what can be counted in the source text of a checkout."""
    counted = dict[str, int]()
    for name, folder in PACKAGES.items():
        files = sorted((tree / "packages" / folder / "src").rglob("*.py"))
        counted[f"lines of code, {name}"] = sum(code_lines(file.read_text(encoding="utf-8")) for file in files)
    core = tree / "packages/retrieval_core/src/retrieval_core"
    counted["files of the core"] = len(sorted(core.rglob("*.py")))
    arrows = imports_of(core)
    counted["import circles of modules"] = len(circles(arrows))
    counted["import circles of folders"] = len(circles(between(arrows, 2)))
    order = {room: number for number, room in enumerate(ROOMS)}
    pairs = ((here, there) for here, names in between(arrows, 1).items() for there in names)
    counted["imports from a higher room"] = sum(order.get(here, -1) < order.get(there, -1) for here, there in pairs)
    tests = sorted((tree / "tests").rglob("*.py"))
    counted["lines of tests"] = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in tests)
    return counted


class Embedder:
    """Returns one vector for every text."""

    id = "given"
    dimension = 8

    async def embed_query(self, text: str) -> Any:
        """Return the vector."""
        return (await self.embed_texts([text]))[0]

    async def embed_texts(self, texts: Sequence[str]) -> Any:
        """Return the vector for each text."""
        import numpy as np

        return np.full((len(texts), self.dimension), self.dimension**-0.5, dtype=np.float32)


def write_files(folder: Path) -> None:
    """Write the documents to search."""
    for number in range(FILES):
        (folder / f"{number}.md").write_text(f"# Moon {number}\n\nMoon {number} has rocks and dust.\n", "utf-8")


async def count_calls() -> dict[str, int]:
    """Count what a hybrid query runs through, in this thread and in all that it starts."""
    calls: dict[str, Counter[object]] = {
        f"{state}{where}": Counter[object]()
        for state in ("", "right after indexing, ")
        for where in ("in the event loop", "in all threads")
    }
    core = str(Path(str(getattr(find_spec("retrieval_core"), "origin", ""))).parent)
    loop_thread = threading.get_ident()
    state: str | None = None

    def record(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if state is not None and event == "call" and code.co_filename.startswith(core) and code.co_name[0] != "<":
            calls[f"{state}in all threads"][code] += 1
            if threading.get_ident() == loop_thread:
                calls[f"{state}in the event loop"][code] += 1

    threading.setprofile(record)
    sys.setprofile(record)
    from retrieval_core import open_index

    with TemporaryDirectory() as folder:
        write_files(Path(folder))
        embedder: Any = Embedder()
        async with open_index(Path(folder, "index.db"), embedder=embedder) as index:
            await index.aingest([folder])
            for query in ("which moon has rocks", "dust on a moon", "rocks and dust"):
                state = "right after indexing, " if query == "rocks and dust" else None
                await index.aretrieve(query)
            state = None
            if hasattr(index, "aload"):  # older revisions read the file in each query
                await index.aload()
            for query in ("is there dust", "rocks on the moon"):
                state = "" if query == "rocks on the moon" else None
                await index.aretrieve(query)
            state = None
    found = {f"functions of a query, {name}": len(counted) for name, counted in calls.items()}
    return found | {f"calls of a query, {name}": counted.total() for name, counted in calls.items()}


def settings(model: Any) -> int:
    """Return the number of settings in a tree of pydantic's models, with those in the tables of adapters."""

    def models(annotation: Any) -> list[Any]:
        if hasattr(annotation, "model_fields"):
            return [annotation]
        return [found for part in get_args(annotation) for found in models(part)]

    parts = (models(field.annotation) for field in model.model_fields.values())
    port = getattr(model, "port", None)  # none in older revisions, whose models have the adapters' tables
    adapters = () if port is None else [port.settings_of(kind) for kind in port.built_in]
    return sum(sum(map(settings, tables)) if tables else 1 for tables in (*parts, *filter(None, map(models, adapters))))


def run_inside() -> None:
    """Print what has to be run to be counted, as JSON."""
    from retrieval_core.config import RetrievalConfig

    print(json.dumps(asyncio.run(count_calls()) | {"settings": settings(RetrievalConfig)}))


def count(tree: Path) -> dict[str, int]:
    """Count everything in a checkout."""
    sources = [str(tree / "packages" / folder / "src") for folder in PACKAGES.values()]
    path = os.environ | {"PYTHONPATH": os.pathsep.join([*sources, str(ROOT)])}
    command = [sys.executable, "-c", "from benchmarks.house import run_inside; run_inside()"]
    done = subprocess.run(command, env=path, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return structure(tree) | json.loads(done.stdout)


def revision(name: str) -> dict[str, int]:
    """Count everything in a tag or commit."""
    command = ["git", "archive", name, "packages", "tests"]
    packed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    with TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        return count(Path(folder))


def main(argv: Sequence[str]) -> int:
    """Print the table, and return the exit code."""
    parser = argparse.ArgumentParser("python -m benchmarks.house", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("revision", nargs="?", help="tag or commit to show beside this checkout")
    options = parser.parse_args(argv)
    columns: dict[str, Mapping[str, int]] = {"this checkout": count(ROOT), "at most": TARGETS}
    if options.revision:
        columns = {options.revision: revision(options.revision)} | columns
    print(f"| {'':40} |" + "".join(f" {name:>13} |" for name in columns))
    print("|---|" + "---:|" * len(columns))
    for row in columns["this checkout"]:
        print(
            f"| {row:40} |"
            + "".join(f" {format(counted[row], ',') if row in counted else '':>13} |" for counted in columns.values())
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
