"""Hold the MCP server against the official test tools: the conformance suite, and every offer by the inspector.

Takes the folder that holds their npm packages, and prints a line for each thing that was tried.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from support.http_process import http_process

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

OLD, NEW = "conformance-0.1.16", "conformance-0.2.0-alpha.12"
"""Folders of the suite's versions: the earlier one knows the protocol until 2025 only."""
SCENARIOS: Sequence[tuple[str, str, Sequence[str]]] = (
    (NEW, "server-initialize", ("2025-11-25",)),
    (NEW, "server-session-lifecycle", ("2025-11-25",)),
    (NEW, "ping", ("2025-11-25",)),
    (NEW, "tools-list", ("2025-11-25", "2026-07-28")),
    (NEW, "resources-list", ("2025-11-25", "2026-07-28")),
    (NEW, "prompts-list", ("2025-11-25", "2026-07-28")),
    (NEW, "completion-complete", ("2025-11-25", "2026-07-28")),
    (NEW, "dns-rebinding-protection", ("2025-11-25", "2026-07-28")),
    (NEW, "server-sse-multiple-streams", ("2025-11-25", "2026-07-28")),
    (NEW, "server-stateless", ("2026-07-28",)),
    (NEW, "caching", ("2026-07-28",)),
    (NEW, "http-header-validation", ("2026-07-28",)),
    (NEW, "sep-2164-resource-not-found", ("2026-07-28",)),
    (NEW, "input-required-result-unsupported-methods", ("2026-07-28",)),
    *((OLD, name, ("",)) for name in (
        "server-initialize", "ping", "tools-list", "resources-list", "prompts-list", "completion-complete",
        "dns-rebinding-protection", "server-sse-multiple-streams",
    )),
)  # fmt: skip
"""The scenarios for ordinary servers; the others need tools, resources and prompts of fixed names."""
EXPECTED_FAILURES = {
    "server-stateless": {
        "sep-2575-server-rejects-undeclared-capability",
        "sep-2575-missing-capability-http-400",
    }
}
"""Checks of a scenario that call a tool of a fixed name, which asks for what its client has not declared."""
REQUIREMENTS = "2026-07-28"
"""The revision of the protocol whose requirements are all run."""
NEED_FIXTURES = frozenset(
    {
        "server-stateless",
        "tools-call-image", "tools-call-audio", "tools-call-embedded-resource", "tools-call-mixed-content",
        "tools-call-with-progress",
        "resources-read-text", "resources-read-binary", "resources-templates-read",
        "prompts-get-simple", "prompts-get-with-args", "prompts-get-embedded-resource", "prompts-get-with-image",
        "input-required-result-basic-elicitation", "input-required-result-basic-sampling",
        "input-required-result-basic-list-roots", "input-required-result-request-state",
        "input-required-result-multiple-input-requests", "input-required-result-multi-round",
        "input-required-result-non-tool-request", "input-required-result-result-type",
        "input-required-result-tampered-state", "input-required-result-capability-check",
        "json-schema-2020-12", "http-custom-header-server-validation",
        "tasks-lifecycle", "tasks-capability-negotiation", "tasks-wire-fields", "tasks-request-state-removal",
        "tasks-mrtr-input", "tasks-request-headers", "tasks-dispatch-and-envelope", "tasks-required-task-error",
        "tasks-mrtr-composition",
    }
)  # fmt: skip
"""Scenarios of the requirements that call tools, resources and prompts of fixed names, or need the extension for tasks.
Only a server with these fixtures can pass them."""
_FAILED_SCENARIO = re.compile(r"^✗ (\S+?):", re.MULTILINE)
_FAILED_CHECK = re.compile(r"\[(\S+)\s*\]\s*(?:\x1b\[\d+m)*FAILURE")
ARGUMENTS: dict[str, dict[str, str]] = {
    "search": {"query": "moon"},
    "fetch": {"id": "notes/moon.md"},
    "retrieve_context": {"query": "moon"},
    "get_neighbors": {"id": "notes/moon.md#0"},
    "explain": {"query": "moon"},
    "grep": {"pattern": "moon"},
    "list": {},
    "verify_citation": {"id": "notes/moon.md#0", "quote": "The moon"},
    "answer": {"query": "how far is the moon"},
    "index_path": {"path": "notes"},
    "remove_document": {"id": "notes/sun.md"},
    "answer_with_citations": {"question": "how far is the moon"},
    "compare": {"first": "moon", "second": "sun"},
    "find_contradictions": {"topic": "moon"},
}
"""What each tool and prompt is tried with; one that is missing here is an error."""
CONFIG = """
[embedder]
kind = "retrieval_core.testing.fakes:FakeEmbedder"
[context]
token_counter = "cl100k_base"
"""


def main(packages: Path) -> int:
    """Try everything, and return the exit code."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        options = _index(folder)
        with http_process(*options, "--allow-writes") as service:
            url = f"{service.url}/mcp"
            failed = [told for told in _conformance(packages, url) if told]
            failed += [told for told in _inspected(packages, (url, "--transport", "http")) if told]
        servers = folder / "servers.json"
        started = {"command": sys.executable, "args": ["-m", "retrieval_core_mcp", *options]}
        servers.write_text(json.dumps({"mcpServers": {"stdio": started}}))
        target = ("--config", str(servers), "--server", "stdio")
        failed += [told for told in _inspected(packages, target) if told]
    print(f"{len(failed)} failed")  # noqa: T201 - it is a program
    return min(len(failed), 1)


def _index(folder: Path) -> tuple[str, ...]:
    notes = folder / "notes"
    notes.mkdir()
    (notes / "moon.md").write_text("The moon is 384,400 km away.\n\nIt has no air.\n")
    (notes / "sun.md").write_text("The sun is eight light minutes away.\n")
    config = folder / "config.toml"
    config.write_text(CONFIG)
    index = ("--index", str(folder / "index.db"), "--config", str(config))
    subprocess.run([sys.executable, "-m", "retrieval_core.cli", "index", str(notes), *index], check=True)
    return index


def _conformance(packages: Path, url: str) -> Iterator[str]:
    for package, scenario, versions in SCENARIOS:
        program = packages / package / "node_modules/.bin/conformance"
        for version in versions:
            chosen = ("--spec-version", version) if version else ()
            run = [str(program), "server", "--url", url, "--scenario", scenario, *chosen]
            yield _told(f"{package} {scenario} {version}", run, EXPECTED_FAILURES.get(scenario, set()))[0]
    yield _requirements(packages, url)


def _requirements(packages: Path, url: str) -> str:
    """Run all requirements of a revision, and return what fails besides those that need fixtures, or passes now."""
    program = packages / NEW / "node_modules/.bin/conformance"
    run = [str(program), "server", "--url", url, "--requirements", REQUIREMENTS]
    ended = subprocess.run(run, capture_output=True, text=True, check=False, timeout=600)
    differing = set(_FAILED_SCENARIO.findall(ended.stdout)) ^ NEED_FIXTURES
    told = f"requirements {REQUIREMENTS}, but for {len(NEED_FIXTURES)} scenarios that need fixtures"
    print(f"{'FAILED' if differing else 'passed'}: {told}", *sorted(differing), flush=True)  # noqa: T201 - it is a program
    return ", ".join(sorted(differing))


def _inspected(packages: Path, target: Sequence[str]) -> Iterator[str]:
    """Yield what fails of listing, calling and reading everything that a server offers."""
    program = [str(packages / "inspector" / "node_modules/.bin/mcp-inspector"), "--cli", *target, "--method"]

    def ask(method: str, *more: str) -> tuple[str, Any]:
        failure, output = _told(f"inspector {target[-1]} {method} {' '.join(more[:2])}", [*program, method, *more])
        return failure, {} if failure else json.loads(output)

    failure, listed = ask("tools/list")
    yield failure
    for tool in sorted(listed.get("tools", ()), key=lambda tool: tool["name"] == "remove_document"):
        pairs = [f"{name}={value}" for name, value in ARGUMENTS[tool["name"]].items()]
        failure, answer = ask("tools/call", "--tool-name", tool["name"], *(("--tool-arg", *pairs) if pairs else ()))
        yield failure or (f"{tool['name']}: {answer['content']}" if answer.get("isError") else "")
    failure, listed = ask("resources/list")
    yield failure
    for resource in listed.get("resources", ()):
        yield ask("resources/read", "--uri", resource["uri"])[0]
    failure, templates = ask("resources/templates/list")
    yield failure
    for template in templates.get("resourceTemplates", ()):
        entry = "notes%2Fmoon.md" + "%230" * template["uriTemplate"].startswith("chunk")
        uri = template["uriTemplate"].replace("{index}", "index").replace("{id}", entry)
        yield ask("resources/read", "--uri", uri)[0]
    failure, listed = ask("prompts/list")
    yield failure
    for prompt in listed.get("prompts", ()):
        pairs = [f"{name}={value}" for name, value in ARGUMENTS[prompt["name"]].items()]
        yield ask("prompts/get", "--prompt-name", prompt["name"], "--prompt-args", *pairs)[0]


def _told(what: str, run: Sequence[str], expected: Collection[str] = ()) -> tuple[str, str]:
    """Run a program, and return what failed, empty where nothing did, and what it printed.

    Args:
        expected: Checks that fail, these and no others.
    """
    ended = subprocess.run(run, capture_output=True, text=True, check=False, timeout=120)
    told = f"passed, but for {', '.join(sorted(expected))}" if expected else "passed"
    is_well = set(_FAILED_CHECK.findall(ended.stdout)) == set(expected) if expected else not ended.returncode
    print(f"{told if is_well else 'FAILED'}: {what}", flush=True)  # noqa: T201 - it is a program
    if not is_well:
        print(ended.stdout[-3_000:], ended.stderr[-1_000:])  # noqa: T201 - likewise
        return what, ""
    return "", ended.stdout


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
