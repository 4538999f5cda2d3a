"""A plug-in for pytest that collects suites, ``*.retrieval.yaml`` and ``*.retrieval.json``: one test per case.

pytest finds it once this package is installed. It imports the library only if there is a suite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retrieval_core import Index
    from retrieval_core.evaluate.suite import Case, IndexTarget, Suite

_SUFFIXES = (".retrieval.yaml", ".retrieval.yml", ".retrieval.json")
_CONFIG = "retrieval_config"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the setting for the index to search."""
    group = parser.getgroup("retrieval", "suites of retrieval tests")
    group.addoption("--retrieval-index", metavar="FILE", help="search this index instead of the one of each suite")
    parser.addini(_CONFIG, "a TOML file or the name of a preset, for opening the indexes of suites")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a suite's file."""
    if not file_path.name.endswith(_SUFFIXES):
        return None
    return SuiteFile.from_parent(parent, path=file_path)  # pyright: ignore[reportUnknownMemberType] - untyped


class SuiteFile(pytest.File):
    """A suite's file; its index is open while its cases run."""

    suite: Suite
    index: Index
    target: IndexTarget

    def collect(self) -> Iterator[pytest.Item]:
        """Read the file, and yield its cases.

        Raises:
            CollectError: It cannot be read, or is not well formed.
        """
        from retrieval_core.errors import RetrievalError  # noqa: PLC0415 - only if there is a suite
        from retrieval_core.evaluate.suite.cases import read_with_lines  # noqa: PLC0415 - as above

        try:
            self.suite, lines = read_with_lines(self.path)
        except RetrievalError as error:
            raise self.CollectError(str(error)) from None
        for case, line in zip(self.suite.cases, lines, strict=True):
            name = case.name.replace("::", ":")  # which separates the parts of a node's ID
            item: CaseItem = CaseItem.from_parent(self, name=name)  # pyright: ignore[reportUnknownMemberType]
            item.file, item.case, item.line = self, case, line
            item.extra_keyword_matches.update(case.tags)
            if case.skip is not None:
                item.add_marker(pytest.mark.skip(reason=case.skip))
            yield item

    def setup(self) -> None:
        """Open the index and load its models."""
        from retrieval_core import RetrievalError, open_index  # noqa: PLC0415 - only if there is a suite
        from retrieval_core.evaluate.suite import IndexTarget  # noqa: PLC0415 - as above
        from retrieval_core.evaluate.suite.running import load_models  # noqa: PLC0415 - as above
        from retrieval_core.index.settings import load_index_config  # noqa: PLC0415 - as above

        given = self.config.getini(_CONFIG) or None
        if given is not None and given.endswith(".toml"):
            given = str(self.config.rootpath / given)
        try:
            config = load_index_config(self._find_index(), file=given, overrides={"cache.kind": "none"})
            self.index = open_index(config=config)
        except RetrievalError as error:
            pytest.fail(f"{type(error).__name__}: {error}", pytrace=False)
        self.target = IndexTarget(self.index)
        self.index.sync.run(load_models(self.target, self.suite.cases[0]), seconds=None)

    def _find_index(self) -> str:
        """Return the option's index, else the suite's own, else the default one."""
        if given := self.config.getoption("--retrieval-index"):
            return str(self.config.invocation_params.dir / given)
        if self.suite.index is not None:
            return str(self.path.parent / self.suite.index)
        return str(self.config.rootpath / ".retrieval/index.db")

    def teardown(self) -> None:
        """Close the index."""
        if hasattr(self, "index"):
            self.index.close()


class CaseItem(pytest.Item):
    """A case."""

    file: SuiteFile
    case: Case
    line: int

    def runtest(self) -> None:
        """Run the case; if it did not pass, report why and the first results."""
        from retrieval_core.evaluate.suite import CaseStatus, run_case  # noqa: PLC0415 - only if there is a suite

        result = self.file.index.sync.run(run_case(self.file.target, self.case), seconds=None)
        if result.status is not CaseStatus.PASSED:
            took = "" if result.retrieval_time_ms is None else f" ({result.retrieval_time_ms:.0f} ms)"
            pytest.fail("\n".join([f"query: {result.query}{took}", *result.failure_lines()]), pytrace=False)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the file, the line from 0, and the name."""
        return self.path, self.line - 1, self.name
