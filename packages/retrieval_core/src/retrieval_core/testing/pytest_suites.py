"""A plug-in for pytest that collects suites, ``*.retrieval.yaml`` and ``*.retrieval.json``: one test a case.

pytest finds it by itself once this package is installed. It imports the library with the first suite only, so that a
project without any does not wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retrieval_core.evaluate.suite import Case, CaseResult, Suite, Target
    from retrieval_core.run.sync import SyncBridge

_SUFFIXES = (".retrieval.yaml", ".retrieval.yml", ".retrieval.json")
_INDEX = "retrieval_index"
_CONFIG = "retrieval_config"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the settings for the index to search."""
    group = parser.getgroup("retrieval", "suites of retrieval tests")
    told = "the index that suites are run on, in place of the one that each names"
    group.addoption("--retrieval-index", metavar="FILE", help=told)
    parser.addini(_INDEX, "the index of suites that name none, a file below the root folder")
    parser.addini(_CONFIG, "a TOML file or the name of a preset, for opening the indexes of suites")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a suite's file."""
    if not file_path.name.endswith(_SUFFIXES):
        return None
    return SuiteFile.from_parent(parent, path=file_path)  # pyright: ignore[reportUnknownMemberType] - untyped


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the indexes that were opened."""
    opened = config.stash.get(_OPENED, None)
    if opened is not None:
        opened.close()


class SuiteFile(pytest.File):
    """A suite's file."""

    suite: Suite

    def collect(self) -> Iterator[pytest.Item]:
        """Read the file, and yield its cases.

        Raises:
            CollectError: It cannot be read, or is not well formed.
        """
        from retrieval_core.errors import RetrievalError  # noqa: PLC0415 - with the first suite only
        from retrieval_core.evaluate.suite.cases import read_with_lines  # noqa: PLC0415

        try:
            self.suite, lines = read_with_lines(self.path)
        except RetrievalError as error:
            raise self.CollectError(str(error)) from None
        for case, line in zip(self.suite.cases, lines, strict=True):
            name = case.name.replace("::", ":")  # which separates the parts of a node's id
            item: CaseItem = CaseItem.from_parent(self, name=name)  # pyright: ignore[reportUnknownMemberType]
            item.case, item.line = case, line
            item.extra_keyword_matches.update(case.tags)
            if case.skip is not None:
                item.add_marker(pytest.mark.skip(reason=case.skip))
            yield item


class CaseItem(pytest.Item):
    """A case."""

    case: Case
    line: int

    def runtest(self) -> None:
        """Ask the question, and judge what is found.

        Raises:
            CaseFailedError: Something else was found than expected, or the case could not be judged.
        """
        from retrieval_core.evaluate.suite import CaseStatus, run_case  # noqa: PLC0415 - with the first suite only

        bridge, target = _opened(self.config).target_of(self)
        result = bridge.run(run_case(target, self.case), seconds=None)
        if result.status is not CaseStatus.PASSED:
            raise CaseFailedError(result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the text of a failure: the reason, and the actual results."""
        if isinstance(excinfo.value, CaseFailedError):
            return str(excinfo.value)
        from retrieval_core.errors import RetrievalError  # noqa: PLC0415 - as above

        if isinstance(excinfo.value, RetrievalError):
            return f"{type(excinfo.value).__name__}: {excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return where the case is, its line from 0, and its name."""
        return self.path, self.line - 1, self.name


class CaseFailedError(Exception):
    """A case did not pass."""

    def __init__(self, result: CaseResult) -> None:
        took = "" if result.retrieval_time_ms is None else f" ({result.retrieval_time_ms:.0f} ms)"
        super().__init__("\n".join([f"asked: {result.query}{took}", *result.failure_lines()]))


class _Opened:
    """The indexes that cases are run on, each opened once."""

    def __init__(self, config: pytest.Config) -> None:
        from contextlib import ExitStack  # noqa: PLC0415 - with the first suite only

        self._config = config
        self._given: str | None = config.getoption("--retrieval-index")
        self._closing = ExitStack()
        self._targets: dict[str, tuple[SyncBridge, Target]] = {}

    def target_of(self, item: CaseItem) -> tuple[SyncBridge, Target]:
        """Return what a case is run on."""
        place = self._place(item)
        if place not in self._targets:
            from retrieval_core.evaluate.suite.running import load_models  # noqa: PLC0415 - with the first suite only

            self._targets[place] = bridge, target = self._open(place)
            bridge.run(load_models(target, item.case), seconds=None)
        return self._targets[place]

    def close(self) -> None:
        """Close them all."""
        self._closing.close()

    def _place(self, item: CaseItem) -> str:
        """Return the index: the option's, else the suite's own, else the setting's, else the default one."""
        given = self._given
        folder = self._config.invocation_params.dir
        if not given:
            file = item.getparent(SuiteFile)
            given = None if file is None else file.suite.index
            folder = item.path.parent
        if not given:
            given = self._config.getini(_INDEX) or ".retrieval/index.db"
            folder = self._config.rootpath
        return str(folder / given)

    def _open(self, place: str) -> tuple[SyncBridge, Target]:
        from retrieval_core.evaluate.suite import IndexTarget  # noqa: PLC0415
        from retrieval_core.index.open import open_index  # noqa: PLC0415
        from retrieval_core.index.settings import load_index_config  # noqa: PLC0415

        given = self._config.getini(_CONFIG) or None
        if given is not None and given.endswith(".toml"):
            given = str(self._config.rootpath / given)
        config = load_index_config(place, file=given, overrides={"cache.kind": "none"})
        index = self._closing.enter_context(open_index(config=config))
        return index.sync, IndexTarget(index)


_OPENED = pytest.StashKey[_Opened]()


def _opened(config: pytest.Config) -> _Opened:
    if _OPENED not in config.stash:
        config.stash[_OPENED] = _Opened(config)
    return config.stash[_OPENED]
