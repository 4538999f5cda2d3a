"""``retrieval info``, ``stats`` and ``verify``: what an index contains, how it is used, and whether it is undamaged."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retrieval_core.cli.common import index_options, print_json
from retrieval_core.cli.messages import count
from retrieval_core.cli.process import FAILURE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.cli.common import Given
    from retrieval_core.ports import FieldInfo, StoreInfo
    from retrieval_core.run.observe import Totals

MOST_FIELDS = 200
"""Fields of an index that are listed."""
UNVERIFIABLE = 2
"""Nothing differs, and for some chunks there is nothing to compare with."""


@click.command("info")
@index_options
def info_command(*, given: Given) -> None:
    """Show the size, embedder and metadata fields of the index."""
    from retrieval_core.adapters.registry import model_source  # noqa: PLC0415
    from retrieval_core.cli.render import print_facts  # noqa: PLC0415
    from retrieval_core.index.open import open_index  # noqa: PLC0415
    from retrieval_core.index.settings import sources_of  # noqa: PLC0415
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
        "unembedded": info.unembedded,
        "generation": info.generation,
        "embedder": manifest.embedder_id if manifest else None,
        "model": model_source(config.embedder),
        "dimension": manifest.dimension if manifest else None,
        "metric": manifest.metric if manifest else None,
        "analyzer": manifest.analyzer if manifest else None,
        "unused_vectors": list(manifest.vectors) if manifest else [],
        "sides": sorted(info.sides),
        "bytes": size_of(Path(info.location)),
    }
    sources = sources_of(config)
    if given.as_json:
        listed = None if fields is None else {name: asdict(field) for name, field in fields.items()}
        print_json({**facts, "settings": sources, "fields": listed})
    else:
        print_facts(_info_for_people({**facts, "settings": sources}, fields))


def _info_for_people(facts: Mapping[str, Any], fields: Mapping[str, FieldInfo] | None) -> dict[str, object]:
    """Return what is known of an index, by readable names."""
    sides = {"dense": "vector", "lexical": "keyword"}
    shown: dict[str, object] = {
        "location": facts["location"],
        "size": _megabytes(facts["bytes"]),
        "documents": f"{facts['documents']:,}",
        "chunks": f"{facts['chunks']:,}",
        "not embedded yet": f"{facts['unembedded']:,}" if facts["unembedded"] else None,
        "search": ", ".join(sides[side] for side in facts["sides"]),
        "embedder": facts["embedder"],
        "model": facts["model"],
        "dimension": facts["dimension"],
        "metric": facts["metric"],
        "analyzer": facts["analyzer"],
        "unused vectors": ", ".join(facts["unused_vectors"]),
        "generation": facts["generation"],
        "settings": "\n".join(f"from {source}: {', '.join(keys)}" for source, keys in facts["settings"].items()),
        "fields": None if fields is None else _in_lines(fields),
    }
    return {name: value for name, value in shown.items() if value not in (None, "")}


def _in_lines(fields: Mapping[str, FieldInfo]) -> str:
    """Return the fields of an index, one a line, each with its types and how many passages have it."""
    lines: list[str] = []
    for name, info in fields.items():
        types = ", ".join(info.types if len(info.types) == 1 else (f"{kind} {n:,}" for kind, n in info.types.items()))
        lines.append(f"{' '.join(name.split())}: {types} ({info.passages:,})")
    return "\n".join(lines)


@click.command("stats")
@click.option("--reset", is_flag=True, help="Reset the counts after printing them.")
@index_options
def stats_command(*, reset: bool, given: Given) -> None:
    """Show query counts, error rates and times of the index.

    The commands search, context and answer count their queries beside the index. Only numbers are stored, no text.
    """
    from retrieval_core.cli.render import print_facts  # noqa: PLC0415
    from retrieval_core.index.open import open_index  # noqa: PLC0415
    from retrieval_core.index.settings import totals_of  # noqa: PLC0415
    from retrieval_core.run.observe import read_totals, reset_totals  # noqa: PLC0415

    config = given.config()
    file = totals_of(config)
    totals = None if file is None else read_totals(file)
    with open_index(config=config) as index:
        info = index.describe()
    if given.as_json:
        print_json({"index": _index_facts(info), "usage": _usage(totals)})
    else:
        print_facts(_for_people(info, totals))
    if reset and file is not None:
        reset_totals(file)


def _index_facts(info: StoreInfo) -> dict[str, Any]:
    return {
        "location": info.location,
        "documents": info.documents,
        "chunks": info.chunks,
        "bytes": size_of(Path(info.location)),
    }


def size_of(path: Path) -> int | None:
    """Return the bytes of a file, or of all files in a folder; ``None`` where there is neither."""
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size if path.is_file() else None


def _usage(totals: Totals | None) -> dict[str, Any] | None:
    """Return the usage statistics as JSON; ``None`` where nothing was counted yet."""
    if totals is None:
        return None
    from retrieval_core.run.observe import Summary  # noqa: PLC0415

    seen, summary = totals.counts, Summary.of(totals.counts)
    counts = ("queries", "answered", "failed", "cancelled", "cache_hits", "degraded_queries")
    stages = {
        stage: {
            **{name: getattr(seen.stages[stage], name) for name in ("calls", "attempts", "failures", "cancellations")},
            **{name: getattr(seen.stages[stage], name) for name in ("input_tokens", "output_tokens")},
            "seconds": asdict(latency),
        }
        for stage, latency in summary.stages.items()
    }
    rates = {name: getattr(summary, f"{name}_rate") for name in ("error", "cache_hit", "degraded")}
    return {
        "since": totals.since.isoformat(timespec="seconds"),
        **{name: getattr(seen, name) for name in counts},
        "degraded": dict(sorted(seen.degraded.items())),
        "rates": rates,
        "seconds": asdict(summary.query),
        "stages": stages,
    }


def _for_people(info: StoreInfo, totals: Totals | None) -> dict[str, object]:
    facts: dict[str, object] = _index_facts(info)
    facts["size"] = _megabytes(facts.pop("bytes"))
    usage = _usage(totals)
    if usage is None:
        facts["queries"] = 0
    else:
        facts |= {"counted since": usage["since"]}
        facts |= {name.replace("_", " "): usage[name] for name in ("queries", "answered", "failed", "cancelled")}
        facts |= {f"{name} rate".replace("_", " "): _percent(rate) for name, rate in usage["rates"].items()}
        facts |= {f"degraded: {stage}": number for stage, number in usage["degraded"].items()}
        facts["query"] = _milliseconds(usage["seconds"])
        for stage, numbers in usage["stages"].items():
            told = [count(numbers["calls"], "call")]
            told += [f"{numbers[name]:,} {name}" for name in ("failures", "cancellations") if numbers[name]]
            facts[f"stage: {stage}"] = f"{', '.join(told)}; {_milliseconds(numbers['seconds'])}"
    return facts


def _megabytes(size: Any) -> str | None:
    return None if size is None else f"{size / 1024**2:,.1f} MB"


def _percent(rate: float | None) -> str | None:
    return None if rate is None else f"{rate:.1%}"


def _milliseconds(seconds: dict[str, Any]) -> str | None:
    if not seconds["count"]:
        return None
    return ", ".join(f"{name} {seconds[name] * 1000:,.1f} ms" for name in ("mean", "p50", "p95"))


@click.command("verify")
@click.option("--sample", type=click.IntRange(1), metavar="N", help="Verify N random documents.  [default: all]")
@click.option("--seed", type=int, metavar="N", help="Draw the same sample again with this seed.")
@click.option("--repair", is_flag=True, help="Repair differences, then verify again.")
@index_options
def verify_command(*, sample: int | None, seed: int | None, repair: bool, given: Given) -> None:
    """Verify that the index is undamaged and matches its files.

    It verifies text, fields, vectors and postings of each chunk, and files that changed. Exit codes: 0 no differences,
    1 differences, 2 no differences, but some chunks can't be verified.
    """
    from retrieval_core.cli.render import print_integrity  # noqa: PLC0415 - help and completion need none of this
    from retrieval_core.index.open import open_index  # noqa: PLC0415
    from retrieval_core.index.serialization import integrity_to_json  # noqa: PLC0415

    with open_index(config=given.config()) as index:
        report = index.check_integrity(sample=sample, seed=seed, repair=repair)
    if given.as_json:
        print_json(integrity_to_json(report))
    else:
        print_integrity(report)
    if code := {"clean": 0, "mismatch": FAILURE, "unverifiable": UNVERIFIABLE}[report.verdict]:
        raise SystemExit(code)
