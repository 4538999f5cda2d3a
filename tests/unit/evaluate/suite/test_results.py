"""States of cases, counts and times of suites."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.errors import InvalidParameterError
from retrieval_core.evaluate.suite import CaseStatus
from retrieval_core.evaluate.suite.results import advance_status, measure_performance, percentile, remove_times
from support.suites import made_up

ENDS = ("passed", "failed", "error")
LEGAL = {("pending", "running"), *(("running", end) for end in ENDS)}


@pytest.mark.parametrize(("status", "to"), list(product(CaseStatus, CaseStatus)))
def test_a_case_goes_from_pending_to_running_to_its_end_alone(status: CaseStatus, to: CaseStatus) -> None:
    if (status.value, to.value) in LEGAL:
        assert advance_status(status, to) is to
    else:
        with pytest.raises(InvalidParameterError, match=f"a case that is {status} cannot become {to}"):
            advance_status(status, to)


@given(st.dictionaries(st.text(min_size=1), st.sampled_from(list(CaseStatus))))
def test_counts_add_up(statuses: dict[str, CaseStatus]) -> None:
    """What was skipped stays pending, and is no test."""
    result = made_up(dict.fromkeys(statuses, 1.0))
    result = replace(result, results=tuple(replace(case, status=statuses[case.name]) for case in result.results))
    ended = [status for status in statuses.values() if status in ENDS]
    assert result.total_tests == len(ended) == sum(result.count(CaseStatus(end)) for end in ENDS)
    assert result.skipped == len(statuses) - len(ended)
    assert 0 <= result.pass_rate <= 100
    assert 0 <= result.failure_rate <= 100


def test_rates_of_none_are_0() -> None:
    result = made_up({})
    assert (result.total_tests, result.pass_rate, result.failure_rate) == (0, 0.0, 0.0)
    assert result.mean("mrr") is None


def test_the_95th_percentile_is_by_the_nearest_rank() -> None:
    metrics = measure_performance([float(number) for number in range(1, 21)])
    assert (metrics.avg_retrieval_time_ms, metrics.p95_retrieval_time_ms, metrics.max_retrieval_time_ms) == (
        10.5, 19.0, 20.0,
    )  # fmt: skip
    assert measure_performance([7.0]).p95_retrieval_time_ms == 7.0
    assert measure_performance([]).max_retrieval_time_ms is None


@given(st.lists(st.floats(0, 1e6), min_size=1), st.integers(1, 100))
def test_a_percentile_is_one_of_the_values(values: list[float], percent: int) -> None:
    found = percentile(values, percent)
    assert found in values
    assert sum(value <= found for value in values) >= percent / 100 * len(values) - 1e-9


def test_a_report_is_json() -> None:
    told = json.loads(json.dumps(made_up({"a": 1.0, "b": 0.0}).to_json()))
    assert (told["total_tests"], told["pass_rate"], told["means"]["mrr"]) == (2, 50.0, 0.5)


def test_times_can_be_blanked() -> None:
    result = made_up({"a": 1.0})
    later = replace(result, timestamp="later", execution_time_ms=7.0)
    assert result != later
    assert remove_times(result) == remove_times(later)
