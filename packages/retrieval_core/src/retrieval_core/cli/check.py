"""``retrieval info`` and ``retrieval doctor``: what there is, and what is wrong with it."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from retrieval_core.cli.common import common_options, ends_well, index_option, print_json, read_config
from retrieval_core.cli.probes import examine_parts
from retrieval_core.cli.probing import Finding
from retrieval_core.cli.process import FAILURE
from retrieval_core.cli.stats import size_of
from retrieval_core.errors import install_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.ports import FieldInfo

_EXTRA_REQUIREMENT = re.compile(r"""(?P<name>[\w.-]+).*;.*extra == ['"](?P<extra>[\w-]+)['"]""")
"""A line of a distribution's ``Requires-Dist`` that belongs to an extra."""

MOST_FIELDS = 200
"""Fields of an index that are listed."""


@click.command("info")
@index_option
@common_options
@ends_well
def info_command(
    *, index_file: str | None, config_file: str | None, assignments: tuple[str, ...], as_json: bool
) -> None:
    """Say what the index holds, and which fields its passages have."""
    from retrieval_core.cli.render import print_facts  # noqa: PLC0415
    from retrieval_core.index.open import open_index  # noqa: PLC0415
    from retrieval_core.ports import FieldCatalogue  # noqa: PLC0415

    config = read_config(config_file, assignments, index=index_file)
    with open_index(config=config) as index:
        info = index.describe()
        store = index.store
        fields = index.sync.run(store.fields(MOST_FIELDS)) if isinstance(store, FieldCatalogue) else None
    manifest = info.manifest
    facts = {
        "location": info.location,
        "documents": info.documents,
        "chunks": info.chunks,
        "generation": info.generation,
        "embedder": manifest.embedder_id if manifest else None,
        "dimension": manifest.dimension if manifest else None,
        "metric": manifest.metric if manifest else None,
        "analyzer": manifest.analyzer if manifest else None,
        "sides": sorted(info.sides),
        "bytes": size_of(Path(info.location)),
    }
    if as_json:
        listed = None if fields is None else {name: asdict(field) for name, field in fields.items()}
        print_json({**facts, "fields": listed})
    else:
        print_facts({**facts, "fields": None if fields is None else _in_lines(fields)})


def _in_lines(fields: Mapping[str, FieldInfo]) -> str:
    """Return the fields of an index, one a line, each with its types and how many passages have it."""
    lines: list[str] = []
    for name, info in fields.items():
        types = ", ".join(info.types if len(info.types) == 1 else (f"{kind} {n:,}" for kind, n in info.types.items()))
        lines.append(f"{' '.join(name.split())}: {types} ({info.passages:,})")
    return "\n".join(lines)


@click.command("doctor")
@index_option
@common_options
@ends_well
def doctor_command(
    *, index_file: str | None, config_file: str | None, assignments: tuple[str, ...], as_json: bool
) -> None:
    """Say what is installed and whether all that is configured can be used, what is wrong and how to mend it.

    Each configured part is asked once, with a small request that costs little: a language model writes one word, an
    embedding model embeds one question, a cache is asked for something that it does not hold.
    """
    from retrieval_core.cli.render import print_findings  # noqa: PLC0415

    config = read_config(config_file, assignments, index=index_file)
    findings = list(_examine(config))
    healthy = all(finding.verdict != "wrong" for finding in findings)
    if as_json:
        entries = [{"subject": f.subject, "verdict": f.verdict, "detail": f.detail} for f in findings]
        print_json({"healthy": healthy, "findings": entries})
    else:
        print_findings(findings)
    if not healthy:
        raise SystemExit(FAILURE)


def _examine(config: RetrievalConfig) -> Iterator[Finding]:
    yield _python()
    yield _sqlite()
    yield from _extras()
    yield from examine_parts(config)


def _python() -> Finding:
    import platform  # noqa: PLC0415
    from importlib.metadata import version  # noqa: PLC0415

    return Finding("retrieval-core", "ok", f"{version('retrieval-core')} on Python {platform.python_version()}")


def _sqlite() -> Finding:
    import sqlite3  # noqa: PLC0415

    with sqlite3.connect(":memory:") as connection:
        options = {option for (option,) in connection.execute("pragma compile_options")}
    connection.close()
    if sqlite3.sqlite_version_info < (3, 40):
        advice = "the index needs 3.40 or later; use a newer Python, for instance from python.org"
        return Finding("SQLite", "wrong", f"{sqlite3.sqlite_version}: {advice}")
    if "ENABLE_FTS5" not in options:
        advice = "it was built without FTS5, which lexical search needs; use a Python from python.org or your system"
        return Finding("SQLite", "wrong", f"{sqlite3.sqlite_version}: {advice}")
    return Finding("SQLite", "ok", f"{sqlite3.sqlite_version} with FTS5")


def _extras() -> Iterator[Finding]:
    """Say of each extra whether all its distributions are there, as the package's own metadata list them."""
    from importlib.metadata import PackageNotFoundError, requires, version  # noqa: PLC0415

    wanted: dict[str, list[str]] = {}
    for requirement in requires("retrieval-core") or ():
        if parts := _EXTRA_REQUIREMENT.match(requirement):
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
            advice = f"not installed: {', '.join(absent)}; {install_line(extra)}"
            yield Finding(f"extra {extra}", "missing", advice)
        else:
            yield Finding(f"extra {extra}", "ok", ", ".join(found))
