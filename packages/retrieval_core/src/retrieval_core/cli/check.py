"""``retrieval info`` and ``retrieval doctor``: what there is, and what is wrong with it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from retrieval_core.cli.common import index_options, print_json
from retrieval_core.cli.process import FAILURE
from retrieval_core.cli.stats import size_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.cli.common import Given
    from retrieval_core.ports import FieldInfo

MOST_FIELDS = 200
"""Fields of an index that are listed."""


@click.command("info")
@index_options
def info_command(*, given: Given) -> None:
    """Say what the index holds, and which fields its passages have."""
    from retrieval_core.cli.render import print_facts  # noqa: PLC0415
    from retrieval_core.index.open import open_index  # noqa: PLC0415
    from retrieval_core.ports import FieldCatalogue  # noqa: PLC0415

    config = given.config()
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
    if given.as_json:
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
@index_options
def doctor_command(*, given: Given) -> None:
    """Say what is installed and whether all that is configured can be used, what is wrong and how to mend it.

    Each configured part is asked once, with a small request that costs little: a language model writes one word, an
    embedding model embeds one question, a cache is asked for something that it does not hold.
    """
    from retrieval_core.cli.probes import examine  # noqa: PLC0415 - help and completion need none of this
    from retrieval_core.cli.render import print_findings  # noqa: PLC0415

    config = given.config()
    findings = list(examine(config))
    healthy = all(finding.verdict != "wrong" for finding in findings)
    if given.as_json:
        entries = [{"subject": f.subject, "verdict": f.verdict, "detail": f.detail} for f in findings]
        print_json({"healthy": healthy, "findings": entries})
    else:
        print_findings(findings)
    if not healthy:
        raise SystemExit(FAILURE)
