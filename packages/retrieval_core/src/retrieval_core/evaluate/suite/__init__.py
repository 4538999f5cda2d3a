"""Test suites of retrieval: queries with their expected results.

::

    from pathlib import Path
    from retrieval_core import open_index
    from retrieval_core.evaluate.suite import IndexTarget, read_suite, run_suite

    with open_index("docs.db") as index:
        suite = read_suite(Path("docs.retrieval.yaml"))
        result = index.sync.run(run_suite(IndexTarget(index), suite), seconds=None)
    print(result.pass_rate)

The command ``retrieval suite`` does the same; see docs/suites.md.
"""

from retrieval_core.evaluate.suite.cases import Case, Criteria, Expected, Forbidden, Suite, parse_suite, read_suite
from retrieval_core.evaluate.suite.results import CaseResult, CaseStatus, Criterion, RetrievedPoint, SuiteResult
from retrieval_core.evaluate.suite.running import run_case, run_suite
from retrieval_core.evaluate.suite.targets import IndexTarget, Target

__all__ = [
    "Case", "CaseResult", "CaseStatus", "Criteria", "Criterion", "Expected", "Forbidden", "IndexTarget",
    "RetrievedPoint", "Suite", "SuiteResult", "Target", "parse_suite", "read_suite", "run_case", "run_suite",
]  # fmt: skip
