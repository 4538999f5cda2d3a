"""Measure how much each extra of the library downloads and installs.

Usage: ``python benchmarks/install_sizes.py WHEELS [--write] [EXTRA...]``; ``nox -s sizes`` builds the wheel first.
``WHEELS`` is a folder with the library's wheel. For each extra, pip downloads the packages and uv installs them into an
empty folder, without bytecode. ``--write`` puts the table into ``docs/install.md``.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/install.md"
MARKED = re.compile(r"(?<=<!-- sizes -->\n).*(?=<!-- /sizes -->)", re.DOTALL)
NOT_MEASURED = {"provence": "it needs torch"}
"""Extras that are too large to be downloaded for this, and why."""


class Size(NamedTuple):
    """Bytes that are downloaded and installed, and the number of distributions."""

    downloaded: int
    installed: int
    distributions: int


def measure(requirement: str, wheels: Path) -> Size:
    """Return the size of a requirement with all that it requires."""
    with tempfile.TemporaryDirectory() as scratch:
        files, packages = Path(scratch, "files"), Path(scratch, "packages")
        line = ["pip", "download", "-qqq", "--disable-pip-version-check", "--find-links", str(wheels)]
        _run([sys.executable, "-m", *line, "--dest", str(files), requirement])
        install = ["uv", "pip", "install", "--quiet", "--no-index", "--find-links", str(files)]
        _run([*install, "--python", sys.executable, "--target", str(packages), requirement])
        installed = sum(file.stat().st_size for file in packages.rglob("*") if file.is_file())
        downloaded = [file.stat().st_size for file in files.iterdir()]
        return Size(sum(downloaded), installed, len(downloaded))


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True)


def rows(extras: list[str], wheels: Path) -> list[str]:
    """Return the lines of the table."""
    base = measure("retrieval-core", wheels)
    lines = [
        "| extra | download | installed | packages |",
        "|---|---|---|---|",
        f"| none | {_megabytes(base.downloaded)} | {_megabytes(base.installed)} | {base.distributions} |",
    ]
    for extra in extras:
        if extra in NOT_MEASURED:
            lines.append(f"| `{extra}` | not measured ({NOT_MEASURED[extra]}) | | |")
            continue
        size = measure(f"retrieval-core[{extra}]", wheels)
        added = [_megabytes(one - other) for one, other in zip(size[:2], base[:2], strict=True)]
        lines.append(f"| `{extra}` | {added[0]} | {added[1]} | +{size.distributions - base.distributions} |")
        print(lines[-1], flush=True)
    return lines


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f}" if size < 1e7 else f"{size / 1e6:,.0f}"


def main(wheels: str, *arguments: str) -> None:
    """Measure, print, and write if asked to."""
    project = tomllib.loads((ROOT / "packages/retrieval_core/pyproject.toml").read_text("utf-8"))["project"]
    every = sorted(project["optional-dependencies"], key=lambda extra: (extra != "all", extra))
    table = "\n".join(rows([one for one in arguments if one != "--write"] or every, Path(wheels))) + "\n"
    if "--write" in arguments:
        PAGE.write_text(MARKED.sub(lambda _: table, PAGE.read_text("utf-8")), "utf-8")
    else:
        print(table, end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
