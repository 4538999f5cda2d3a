"""Hold the service against its own OpenAPI document with Schemathesis, without tokens and with one.

    python tests/support/schemathesis_run.py EXAMPLES

Fails where a check does, and where Schemathesis warns that it tested less than it should.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from reportlab.pdfgen.canvas import Canvas

from retrieval_core import Document, open_index
from retrieval_core.evaluate.suite import SuiteResult
from retrieval_core.testing.fakes import FakeEmbedder
from support.suites import PerformanceMetrics, Subject, to_json

if TYPE_CHECKING:
    from collections.abc import Generator

CONFIG = """
[embedder]
kind = "retrieval_core.testing.fakes:FakeEmbedder"
[context]
token_counter = "o200k_base"
"""
DOCUMENTS = {
    "moon.md": "The moon is 384,400 km away from the earth. It has no air.",
    "sun.md": "The sun is eight light minutes away.",
}
TOKEN = "a-token-for-schemathesis"
LISTENS = re.compile(r"listens at (http://\S+)")


def main(examples: int) -> int:
    """Run both at the same time, and return the exit code."""
    with ThreadPoolExecutor() as pool:
        return max(pool.map(partial(run, examples), (None, TOKEN)))


def run(examples: int, token: str | None) -> int:
    """Run Schemathesis once against a server of its own."""
    with TemporaryDirectory() as folder, serving(Path(folder), token) as place:
        header = ["--header", f"Authorization: Bearer {token}"] if token else []
        told = subprocess.run(
            [
                *(str(Path(sys.executable).with_name("st")), "run", f"{place}/openapi.json", "--no-color"),
                *("--checks", "all", "--phases", "examples,coverage,fuzzing,stateful", "--seed", "1"),
                *("--max-examples", str(examples), "--workers", "1", *header),
            ],
            capture_output=True,
            text=True,
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": str(Path(__file__).parents[1]),
                "SCHEMATHESIS_HOOKS": "support.schemathesis_hooks",
            },
            check=False,
        )
    print(told.stdout, told.stderr, sep="")  # noqa: T201 - a report
    warned = "WARNINGS" in told.stdout
    return told.returncode or int(warned)


@contextmanager
def serving(folder: Path, token: str | None) -> Generator[str]:
    """Serve a new index, and yield where."""
    documents = [
        Document(name, text, source=name, content_hash="", metadata={"kind": "star"})
        for name, text in DOCUMENTS.items()
    ]
    page = Canvas(str(folder / "guide.pdf"))
    page.drawString(50, 700, "The tide follows the moon.")
    page.save()
    with open_index(folder / "docs.db", embedder=FakeEmbedder()) as index:
        index.add_documents(documents)
        index.ingest(folder / "guide.pdf")
    (folder / "config.toml").write_text(CONFIG, encoding="utf-8")
    # A body of too many bytes is refused with 413, which Schemathesis takes for acceptance of what else is wrong in it.
    environment = {**os.environ, "RETRIEVAL_MCP__HTTP__MAX_BODY_BYTES": str(2**26)}
    report = folder / "report.json"
    nothing = SuiteResult("none", Subject("docs.db", 3), (), (), PerformanceMetrics(), 0.0, "2026-01-02T03:04:05+00:00")
    report.write_text(to_json(nothing), encoding="utf-8")
    environment["RETRIEVAL_MCP__HTTP__SUITE_REPORT"] = str(report)
    if token is not None:
        environment["RETRIEVAL_MCP__HTTP__TOKENS"] = f"sha256:{sha256(token.encode()).hexdigest()}"
    command = [
        *(str(Path(sys.executable).with_name("retrieval-mcp")), "--http", "127.0.0.1:0", "--allow-writes"),
        *("--index", f"docs={folder / 'docs.db'}", "--config", str(folder / "config.toml")),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stderr is not None
        try:
            found = next(filter(None, map(LISTENS.search, server.stderr)))
            yield found[1]
        finally:
            server.terminate()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
