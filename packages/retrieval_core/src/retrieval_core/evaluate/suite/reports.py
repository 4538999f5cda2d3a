"""Reports of a suite as JSON and as a page of HTML."""

from __future__ import annotations

import json
import re
from html import escape
from math import isfinite
from typing import TYPE_CHECKING, Any, cast

from pydantic import TypeAdapter, ValidationError

from retrieval_core.errors import InvalidParameterError, UnreadableFileError
from retrieval_core.evaluate.suite.results import CaseStatus, SuiteResult
from retrieval_core.types.escapes import CONTROLS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retrieval_core.evaluate.suite.results import CaseResult

FORMAT = 1
LONGEST_DETAILS = 400_000
"""Bytes for all that is known of the cases that went wrong; behind that, cases are shown with a line."""
_LONGEST = 160
_BYTES = 2.5
"""For a character that is shown, on average: of texts that take more, less is shown."""
_CONTROL = re.compile(f"(?![\t\n])[{CONTROLS}]")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--dim:#5b6570;--line:#d5dae0;--good:#1a7f4b;--bad:#b42318;
--warn:#8a5a00;--mark:#2f6fdf;--soft:#f4f6f8}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ed;--paper:#14171b;--dim:#9aa5b1;--line:#333a42;--good:#4cc38a;
--bad:#ff8f85;--warn:#e5b567;--mark:#7aa9ff;--soft:#1c2126}}
body{margin:0 auto;max-width:70rem;padding:1rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:.5rem 0}h2{font-size:1.1rem;margin:2rem 0 .5rem}p{margin:.3rem 0}
.dim{color:var(--dim)}.passed,.met{color:var(--good)}.failed,.missed{color:var(--bad)}.error{color:var(--warn)}
.figures{display:flex;flex-wrap:wrap;gap:.5rem 2rem;padding:0;margin:.5rem 0;list-style:none}
.figures b{display:block;font-size:1.4rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.3rem .6rem .3rem 0;border-bottom:1px solid var(--line);vertical-align:top}
td.n,th.n,td.c{white-space:nowrap}td.n,th.n{text-align:right}td.t{min-width:9rem}
td.t,summary,li,p{overflow-wrap:anywhere}
details{border-bottom:1px solid var(--line);padding:.4rem 0}summary{cursor:pointer}
ol,ul{margin:.3rem 0;padding-left:1.4rem}pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.3rem 0}
"""


def to_json(result: SuiteResult) -> str:
    """Return a report as JSON; :func:`read_report` reads it."""
    return json.dumps(result.to_json(), ensure_ascii=False, indent=2) + "\n"


def read_report(path: Path) -> SuiteResult:
    """Read a report that was written as JSON.

    Raises:
        UnreadableFileError: The file cannot be read.
        InvalidParameterError: It is no report.
    """
    try:
        told = _decoded(path)
        if not isinstance(told, dict) or cast("dict[str, Any]", told).get("format") != FORMAT:
            msg = f"{path} is no report of 'retrieval suite run --report FILE.json'"
            raise InvalidParameterError(msg)
        # Counts and means follow from the rest.
        return TypeAdapter(SuiteResult).validate_python(told)
    except OSError as error:
        raise UnreadableFileError(str(path), f"it cannot be opened: {error.strerror or error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        msg = f"{path} is no report of this version: {place}: {first['msg']}"
        raise InvalidParameterError(msg) from error


def _decoded(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        msg = f"{path} is no JSON: {error}"
        raise InvalidParameterError(msg) from error


def _finite(text: str) -> float:
    if not isfinite(number := float(text)):
        msg = f"{text} is no finite number"
        raise ValueError(msg)
    return number


def to_html(result: SuiteResult, before: SuiteResult | None = None) -> str:
    """Return a report as one page of HTML.

    Args:
        before: An earlier run, whose rank of a case is shown beside the new one if it differs.
    """
    return "\n".join(_page(result, before))


def _page(result: SuiteResult, before: SuiteResult | None) -> Iterator[str]:
    subject = result.subject
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield '<meta name="viewport" content="width=device-width,initial-scale=1">'
    yield f"<title>{_shown(result.suite)}</title><style>{_STYLE}</style></head><body><main>"
    yield f"<h1>{_shown(result.suite)}</h1>"
    documents = "" if subject.documents is None else f"{subject.documents:,} documents, "
    embedder = f", {_shown(subject.embedder)}" if subject.embedder else ""
    yield f'<p class="dim">{_shown(subject.location)}: {documents}{subject.chunks:,} passages{embedder}.</p>'
    yield f'<p class="dim">{_shown(result.timestamp)}</p>'
    yield from _figures(result)
    yield from _criteria(result)
    wrong = [case for case in result.results if case.status in {CaseStatus.FAILED, CaseStatus.ERROR}]
    if wrong:
        yield f"<h2>What went wrong ({len(wrong)})</h2>"
        room = LONGEST_DETAILS
        for number, case in enumerate(wrong):
            details = "".join(_details(case))
            room -= len(details.encode())
            if room < 0:
                yield f'<p class="dim">{len(wrong) - number} more are in the table below.</p>'
                break
            yield details
    yield from _table(result, before)
    yield from _facts(result)
    yield "</main></body></html>\n"


def _figures(result: SuiteResult) -> Iterator[str]:
    counts = {status: result.count(status) for status in (CaseStatus.PASSED, CaseStatus.FAILED, CaseStatus.ERROR)}
    yield '<ul class="figures">'
    for status, count in counts.items():
        yield f'<li class="{status}"><b>{count}</b>{status}</li>'
    yield f"<li><b>{result.skipped}</b>skipped</li>"
    for name in ("recall@5", "ndcg@10", "mrr"):
        mean = result.mean(name)
        yield f"<li><b>{'-' if mean is None else f'{mean:.3f}'}</b>{name}</li>"
    yield "</ul>"


def _criteria(result: SuiteResult) -> Iterator[str]:
    yield '<h2>Criteria</h2><div class="scroll"><table><thead><tr><th>Code<th>Verdict<th>What'
    yield '<th class="n">Measured<th class="n">Wanted</thead><tbody>'
    for criterion in result.criteria:
        values = "".join(f'<td class="n">{_number(value)}' for value in (criterion.value, criterion.target))
        verdict = f'<td class="c {criterion.verdict.split()[0]}">{criterion.verdict}'
        yield f'<tr><td class="c">{criterion.code}{verdict}<td class="t">{escape(criterion.text)}{values}'
    yield "</tbody></table></div>"


def _details(case: CaseResult) -> Iterator[str]:
    yield f'<details><summary><span class="{case.status}">{case.status}</span> {_shown(case.name)}</summary>'
    yield f"<p>Asked: {_shown(case.query, 2 * _LONGEST)}</p><ul>"
    for problem in case.problems[:10]:
        yield f"<li>{_shown(problem.error)}: {_shown(problem.message, 2 * _LONGEST)}"
    yield "</ul>"
    if case.points:
        yield "<p>Found:</p><ol>"
        for point in case.points[:5]:
            score = "" if point.score is None else f" ({point.score:.3f})"
            yield f"<li>{_shown(point.id)}{score}: <q>{_shown(str(point.payload['content']))}</q>"
        yield "</ol>"
    yield "</details>"


def _table(result: SuiteResult, before: SuiteResult | None) -> Iterator[str]:
    earlier = {case.name: _shown_rank(case) for case in before.results} if before is not None else {}
    yield '<h2>All cases</h2><div class="scroll"><table><thead><tr><th>Case<th>Status<th class="n">Rank'
    yield '<th class="n">Recall@5<th class="n">ms</thead><tbody>'
    for case in result.results:
        status = "skipped" if case.skipped is not None else case.status
        shown = _shown_rank(case)
        shown += f" (was {earlier[case.name]})" if earlier.get(case.name, shown) != shown else ""
        recall = case.measures.get("recall@5")
        numbers = [shown, "-" if recall is None else f"{recall:.2f}", _number(case.retrieval_time_ms)]
        cells = "".join(f'<td class="n">{number}' for number in numbers)
        yield f'<tr><td class="t">{_shown(case.name)}<td class="{status}">{status}{cells}'
    yield "</tbody></table></div>"


def _facts(result: SuiteResult) -> Iterator[str]:
    subject = result.subject
    facts = {"corpus": subject.corpus or "not known", **subject.versions}
    yield '<h2>Made with</h2><ul class="dim">'
    for name, value in facts.items():
        yield f"<li>{_shown(name)}: {_shown(value)}"
    for name, value in sorted(subject.configuration.items()):
        yield f"<li>{_shown(name)}: {_shown(repr(value), 1_000)}"
    yield "</ul>"


def _shown_rank(case: CaseResult) -> str:
    """Return the rank of the first thing expected; a dash if none was found, or none is expected."""
    return str(min((rank for rank in case.ranks.values() if rank is not None), default="-"))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def _shown(text: str, longest: int = _LONGEST) -> str:
    """Return text for the page, cut, with what could steer or hide it written out, in a direction of its own."""
    cut = text if len(text) <= longest else f"{text[: longest - 1]}…"
    while True:
        shown = escape(_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", cut))
        if len(shown.encode()) <= _BYTES * longest:
            return f"<bdi>{shown}</bdi>"
        cut = f"{cut[: len(cut) * 4 // 5]}…"
