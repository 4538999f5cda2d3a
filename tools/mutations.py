"""Change the core in small ways, one at a time, and count how many of the changes the tests notice.

    python tools/mutations.py [--seed SEED] [--count 60] [--jobs 2] [--list] [TESTS ...]

Mutations are drawn at random from ``MUTATED``. The seed is the date if none is given. Each is made in a copy of the
last commit, and only the tests that execute its line run, those first that are most about its module and short. A
mutation is caught if a test fails that passes without it, or if tests hang that are fast without it. One that no test
executes survives. If fewer than ``ENOUGH`` are caught, the exit code is 1. Mutations that no test can notice are listed
in ``mutations.toml``, each with its reason. They aren't counted.

A number up to 10 becomes one more or one less. A larger one is doubled or halved: nobody can notice a row more in a
block of 5,000, and boundaries that count have a comparison, which is changed, too. The arguments of ``min`` and ``max``
aren't swapped, and a function that returns False returns True but not None.

The map of what tests execute is kept outside the repository. After a commit only tests that changed or failed run
again; new lines have the tests of the lines around them. To make the whole map again, delete it.
"""

from __future__ import annotations

import argparse
import ast
import datetime as dt
import difflib
import hashlib
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import tomllib
from bisect import bisect
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, cast

import pytest
from coverage import Coverage, CoverageData

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parents[1]
CORE = "packages/retrieval_core/src/retrieval_core"
MUTATED = ("adapters/stores", "pipeline", "ports", "run", "types/filters")
ENOUGH = 0.9
FIRST, SECONDS = 8.0, 120.0
"""How many seconds of tests run first, and at all, for one mutation, by the time that they take without one."""
HANGS = 120
"""A test that takes as many seconds hangs, if it takes less than a third of that without the mutation."""
LEFT_OUT = ("-m", "not model and not model_server and not qdrant_server", "--ignore=tests/mcp/page")
"""Tests of the page run in a browser, whose event loop makes later asynchronous tests of the same process fail."""
SWAPS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,), ast.And: (ast.Or,), ast.Or: (ast.And,), ast.Add: (ast.Sub,), ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,), ast.Div: (ast.Mult,), ast.FloorDiv: (ast.Mult,), ast.Mod: (ast.Mult,),
    ast.BitOr: (ast.BitAnd,), ast.BitAnd: (ast.BitOr,),
}  # fmt: skip
KEY = ("function", "before", "after")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
UNTOUCHED = frozenset({"annotation", "returns", "decorator_list", "bases"})
Place = tuple[ast.stmt | ast.expr, ast.stmt | ast.expr, str]
"""The first and the last node to replace, and by what."""
COVERAGE = """\
[run]
core = ctrace
source_pkgs = retrieval_core
parallel = true
patch = subprocess, _exit
context = ${RUNNING_TEST-}
disable_warnings = module-not-imported, no-data-collected
"""

# ---- What pytest does while the map is made: with ``-p tools.mutations`` this module is a plug-in of it.

_seconds = defaultdict[str, float](float)
_failed = set[str]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Record lines for the test that begins, whatever its parameters, also in processes that it starts."""
    test = item.nodeid.partition("[")[0]
    if test != os.environ.get("RUNNING_TEST"):
        os.environ["RUNNING_TEST"] = test
        if running := Coverage.current():
            running.switch_context(test)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record how long a test takes, and whether it fails."""
    _seconds[report.nodeid.partition("[")[0]] += report.duration
    if report.failed:
        _failed.add(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write what was recorded, in the process that hands out the tests."""
    if "TEST_TIMES" in os.environ and not hasattr(session.config, "workerinput"):
        Path(os.environ["TEST_TIMES"]).write_text(json.dumps([_seconds, sorted(_failed)]), "utf-8")


# ---- Mutations


@dataclass(frozen=True)
class Mutation:
    """A change of one place: its statement or condition before and after, and the whole file after it.

    Attributes:
        is_in_body: Whether the place is in the body of a function; others run when their module is imported.
    """

    file: str
    function: str
    is_in_body: bool
    lines: tuple[int, int]
    before: str
    after: str
    source: str


def swapped(operator: ast.AST) -> list[Any]:
    """Return the operators to put in place of one; none if it stays."""
    return [swap() for swap in SWAPS.get(type(operator), ())]


def changed_expressions(node: ast.AST) -> Iterator[ast.expr]:
    """Return what to put in place of an expression."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=comparators):
            yield from (ast.Compare(left, [swap], comparators) for swap in swapped(operator))
        case ast.BoolOp(op=operator, values=values):
            yield from (ast.BoolOp(swap, values) for swap in swapped(operator))
        case ast.BinOp(left=left, op=operator, right=right) if not is_text(left) and not is_text(right):
            yield from (ast.BinOp(left, swap, right) for swap in swapped(operator))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield operand
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            half = value // 2 if isinstance(value, int) else value / 2
            yield from map(ast.Constant, (value * 2, half) if value > 10 else (value + 1, value - 1))
        case ast.Call(func=called, args=[first, second, *more], keywords=keywords):
            if (
                type(first) is type(second)
                and not isinstance(first, ast.Starred)
                and ast.unparse(called) not in {"cast", "min", "max"}
            ):
                yield ast.Call(called, [second, first, *more], keywords)
        case _:
            pass


def changed_statements(node: ast.AST) -> Iterator[tuple[ast.stmt, ast.stmt, str]]:
    """Return the first and the last statement to replace, and by what."""
    match node:
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) not in {"None", "False"}:
            yield node, node, "return None"
        case (
            ast.Expr(value=ast.Call() | ast.Await())
            | ast.Assign(targets=[ast.Attribute() | ast.Subscript()])
            | (ast.AugAssign() | ast.Raise() | ast.Delete() | ast.Continue() | ast.Break())
        ):
            yield node, node, "pass"
        case ast.ExceptHandler(body=body):
            yield body[0], body[-1], "raise"
        case ast.If(body=body) if not any(isinstance(inner, ast.Await) for inner in ast.walk(node)):
            yield body[0], body[-1], "pass"
        case _:
            pass


def is_text(node: ast.expr) -> bool:
    """Return whether an expression is surely a string."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def is_no_behavior(node: ast.AST) -> bool:
    """Return whether a node is for type checkers or one system, states what is always so, or has others' places."""
    return (
        isinstance(node, (ast.Assert, ast.JoinedStr))
        or (isinstance(node, ast.If) and ast.unparse(node.test).startswith(("TYPE_CHECKING", "sys.platform")))
        or (isinstance(node, ast.keyword) and node.arg == "strict" and isinstance(node.value, ast.Constant))
    )


def places(node: ast.AST, function: str, lines: tuple[int, int]) -> Iterator[tuple[str, tuple[int, int], Place]]:
    """Return every change inside a node, with its function and the lines of its statement, without a body."""
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        function = f"{function}.{node.name}"
    if isinstance(node, ast.stmt):
        body: list[ast.stmt] = getattr(node, "body", [])
        lines = (node.lineno, max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno)
    for first, last, text in changed_statements(node):
        yield function, (first.lineno, first.lineno), (first, last, text)
    for field, value in ast.iter_fields(node):
        for child in cast("list[object]", value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST) or field in UNTOUCHED or is_no_behavior(child):
                continue
            if isinstance(child, ast.expr):
                negated = [ast.UnaryOp(ast.Not(), child)] if field in {"test", "ifs"} else []
                for changed in (*changed_expressions(child), *negated):
                    yield function, lines, (child, child, f"({ast.unparse(changed)})")
            yield from places(child, function, lines)


def mutations_of(file: str, source: str) -> Iterator[Mutation]:
    """Return every mutation of a file."""
    raw = source.encode()
    starts = [0, *itertools.accumulate(len(line) for line in raw.splitlines(keepends=True))]
    tree = ast.parse(source)
    bodies = [(node.body[0].lineno, node.end_lineno or 0) for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
    for function, lines, (first, last, text) in places(tree, file.removeprefix(f"{CORE}/"), (1, 1)):
        end_line = last.end_lineno or last.lineno
        start, end = starts[first.lineno - 1] + first.col_offset, starts[end_line - 1] + (last.end_col_offset or 0)
        begin, stop = starts[min(first.lineno, lines[0]) - 1], starts[max(end_line, lines[1])]
        changed = raw[:start] + text.encode() + raw[end:]
        before, after = raw[begin:stop], changed[begin : len(changed) - len(raw) + stop]
        shown = [" ".join(text.decode().split()) for text in (before, after)]
        is_in_body = any(begin <= lines[0] <= end for begin, end in bodies)
        yield Mutation(file, function, is_in_body, lines, shown[0], shown[1], changed.decode())


def drawn(seed: str, count: int, equivalent: dict[tuple[str, ...], str]) -> list[Mutation]:
    """Draw mutations, at most one of each place, until there are enough that tests can notice."""
    tracked = output("git", "ls-files", f"{CORE}/").split()
    wanted = tuple(f"{CORE}/{folder}{end}" for folder in MUTATED for end in ("/", ".py"))
    files = [file for file in tracked if file.endswith(".py") and file.startswith(wanted)]
    every = [found for file in files for found in mutations_of(file, output("git", "show", f"HEAD:{file}"))]
    if gone := equivalent.keys() - set(map(key_of, every)):
        print("no longer there, remove from mutations.toml:", *gone, sep="\n  ")
    random.Random(seed).shuffle(every)
    chosen = dict[tuple[str, tuple[int, int]], Mutation]()
    for found in every:
        with suppress(SyntaxError):
            compile(found.source, found.file, "exec")
            chosen.setdefault((found.file, found.lines), found)
        if sum(key_of(one) not in equivalent for one in chosen.values()) == count:
            break
    print(f"seed {seed}: {len(chosen)} of {len(every)} mutations of {len(files)} files", flush=True)
    return list(chosen.values())


def key_of(mutation: Mutation) -> tuple[str, ...]:
    """Return what a mutation is listed by, which stays the same when lines move."""
    return tuple(getattr(mutation, name) for name in KEY)


def shown(mutation: Mutation) -> str:
    """Return a mutation's place and what it changes, without what is the same far before and after that."""
    before, after = mutation.before, mutation.after
    start = next((i for i, (one, other) in enumerate(zip(before, after, strict=False)) if one != other), 0)
    texts = " → ".join(text[max(start - 60, 0) : start + 90] for text in (before, after))
    return f"{mutation.file.removeprefix(CORE)}:{mutation.lines[0]} {texts}"


# ---- Running tests


def output(*command: str) -> str:
    """Return what a command prints."""
    return subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=True).stdout


def copied(place: Path) -> Path:
    """Return a copy of the last commit, made in an empty place."""
    output("git", "clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(place))
    output("git", "-C", str(place), "checkout", "--quiet", "--detach", output("git", "rev-parse", "HEAD").strip())
    return place


def run_tests(place: Path, arguments: Sequence[str], seconds: float, **more: str) -> tuple[int | None, str]:
    """Run tests in a copy; return the exit code, or None if they don't end in time, and what they print."""
    paths = [str(source) for source in sorted(place.glob("packages/*/src"))]
    environment = os.environ | {"HYPOTHESIS_PROFILE": "quick", "CALLS": "400"} | more
    environment["PYTHONPATH"] = os.pathsep.join([*paths, str(place)])
    before = ["-m", "coverage", "run"] if "COVERAGE_FILE" in more else []
    command = [sys.executable, *before, "-m", "pytest", "-q", "-p", "no:cacheprovider", *LEFT_OUT, *arguments]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as printed:
        running = subprocess.Popen(
            command, cwd=place, env=environment, stdout=printed, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = running.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()
        printed.seek(0)
        return code, printed.read()


@dataclass(frozen=True)
class TestMap:
    """Which tests execute each line, by their places in the list of all with their seconds, and which fail anyway."""

    executed: dict[str, dict[str, list[int]]]
    seconds: list[tuple[str, float]]
    failed: list[str]

    @classmethod
    def load(cls, tests: Sequence[str], jobs: int, place: Path) -> TestMap:
        """Return the map of the last commit: as it is kept, renewed in part, or made if none is kept."""
        head = output("git", "rev-parse", "HEAD").strip()
        key = hashlib.sha256(f"{tests}{sys.version}{COVERAGE}".encode()).hexdigest()[:16]
        kept = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "retrieval-core" / f"tests-{key}.json"
        known = None
        if kept.exists():
            commit, *parts = json.loads(kept.read_text("utf-8"))
            known = cls(*parts)
            if commit == head:
                return known
            known = known.renewed(commit, tests, jobs, place)
        known = known or cls.made(tests, jobs, place)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps([head, known.executed, known.seconds, known.failed]), "utf-8")
        return known

    def renewed(self, commit: str, tests: Sequence[str], jobs: int, place: Path) -> TestMap | None:
        """Return the map of the last commit from that of an earlier one; None if that isn't known anymore."""
        try:
            listed = output("git", "diff", "--name-only", "--no-renames", commit, "HEAD").split()
        except subprocess.CalledProcessError:
            return None
        at_head = set(output("git", "ls-files").split())
        kept = {name for test, _ in self.seconds if (name := whole_name(test)).partition("::")[0] in at_head}
        again = {name for test in self.failed if (name := whole_name(test)) in kept}
        for file in (file for file in listed if Path(file).name.startswith("test_") and file.startswith((*tests,))):
            old, new = (top_level(source_at(place, file)) for place in (commit, "HEAD"))
            named = {f"{file}::{name}": old.get(name) == code for name, code in new.items()}
            again |= {name for name, is_same in named.items() if not (is_same and name in kept)}
            kept -= {f"{file}::{name}" for name in old.keys() - new.keys()}
        kept -= again
        more = TestMap.made(sorted(again), jobs, place) if again else TestMap({}, [], [])
        executed = dict[str, dict[str, list[int]]]()
        moved = {file for file in listed if file.startswith(f"{CORE}/")}
        lines = {file: self.executed.get(file, {}) for file in moved}
        around = sorted({test for tests in lines.values() for found in tests.values() for test in found})
        for file in (self.executed.keys() | more.executed.keys() | moved) & at_head:
            old = self.executed.get(file, {})
            if file in moved:
                before, after = (source_at(place, file).splitlines() for place in (commit, "HEAD"))
                old = moved_lines(before, after, old, around)
            executed[file] = {
                line: [test for test in found if whole_name(self.seconds[test][0]) in kept]
                for line, found in old.items()
            }
            for line, found in more.executed.get(file, {}).items():
                executed[file][line] = executed[file].get(line, []) + [test + len(self.seconds) for test in found]
        return TestMap(executed, [*self.seconds, *more.seconds], more.failed)

    @staticmethod
    def made(tests: Sequence[str], jobs: int, place: Path) -> TestMap:
        """Run all tests and return what they execute."""
        print(
            f"finding out which lines {len(tests) if '::' in tests[0] else 'all'} tests execute",
            flush=True,
        )
        times, data, settings = place / "times.json", place / ".coverage", place / "coverage.ini"
        settings.write_text(COVERAGE, "utf-8")
        more = {"TEST_TIMES": str(times), "COVERAGE_FILE": str(data), "COVERAGE_RCFILE": str(settings)}
        code, printed = run_tests(
            place,
            ["-p", "tools.mutations", "-n", str(jobs), "--continue-on-collection-errors", *tests],
            4 * 3600,
            **more,
        )
        if code not in {0, 1, 5}:
            sys.exit(f"the tests did not run: exit code {code}\n{printed[-3000:]}")
        subprocess.run(
            [sys.executable, "-m", "coverage", "combine", "--quiet"], cwd=place, env=os.environ | more, check=True
        )
        seconds, failed = json.loads(times.read_text("utf-8"))
        number = {test: place for place, test in enumerate(seconds)}
        found = CoverageData(str(data))
        found.read()
        executed = dict[str, dict[str, list[int]]]()
        for file in (file for file in found.measured_files() if file.startswith(f"{place / CORE}/")):
            executed[Path(file).relative_to(place).as_posix()] = {
                str(line): sorted({number[test] for one in contexts if (test := one.rpartition("|")[2]) in number})
                for line, contexts in found.contexts_by_lineno(file).items()
            }
        return TestMap(executed, list(seconds.items()), failed)

    @cached_property
    def total(self) -> Counter[int]:
        """How many lines each test executes."""
        return Counter(test for lines in self.executed.values() for tests in lines.values() for test in tests)

    def of(self, mutation: Mutation) -> list[tuple[str, float]]:
        """Return the tests that execute a mutation's lines, or its module if that is when it is imported."""
        lines = self.executed.get(mutation.file, {})
        about = Counter(test for tests in lines.values() for test in tests)
        own = [lines.get(str(line), []) for line in range(mutation.lines[0], mutation.lines[1] + 1)]
        found = {test for tests in own for test in tests} if mutation.is_in_body else set(about)
        shares = {test: about[test] / self.total[test] / (0.1 + self.seconds[test][1]) for test in found}
        best = sorted(found, key=lambda test: (-shares[test], test))
        return [self.seconds[test] for test in best]


def source_at(commit: str, file: str) -> str:
    """Return a file as it was at a commit; empty if it wasn't there."""
    shown = ("git", "show", f"{commit}:{file}")
    return subprocess.run(shown, cwd=ROOT, capture_output=True, encoding="utf-8", check=False).stdout


def whole_name(test: str) -> str:
    """Return a test's file with the function or the class that it is, without parameters and methods."""
    return "::".join(test.partition("[")[0].split("::")[:2])


def top_level(source: str) -> dict[str, str]:
    """Return the code of a file's tests and classes of tests by name."""
    nodes = (node for node in ast.parse(source).body if isinstance(node, (*FUNCTIONS, ast.ClassDef)))
    return {node.name: ast.dump(node) for node in nodes if node.name.lower().startswith("test")}


def moved_lines(
    before: Sequence[str], after: Sequence[str], tests: dict[str, list[int]], otherwise: list[int]
) -> dict[str, list[int]]:
    """Return the tests of each line of a changed file by those of its lines before; new files have `otherwise`."""
    if not before:
        return {str(line): otherwise for line in range(1, len(after) + 1)}
    moved = dict[str, list[int]]()
    for same, begin, end, first, last in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if same == "equal":
            moved |= {
                str(new): tests[str(old)]
                for old, new in zip(range(begin + 1, end + 1), range(first + 1, last + 1), strict=True)
                if str(old) in tests
            }
        else:
            near = sorted({test for line in range(begin, end + 2) for test in tests.get(str(line), ())})
            moved |= {str(line): near for line in range(first + 1, last + 1)}
    return moved


def judged(place: Path, mutation: Mutation, known: TestMap) -> tuple[bool, str]:
    """Return whether the tests notice a mutation, and by which test or after how many tests."""
    every = known.of(mutation)
    until = list(itertools.accumulate(seconds for _, seconds in every))
    first, all_of_them = bisect(until, FIRST) + 1, bisect(until, SECONDS) + 1
    file, anyway = place / mutation.file, list(known.failed)
    original = file.read_text("utf-8")
    for part in filter(None, (every[:first], every[first:all_of_them])):
        limit = 120 + 6 * sum(seconds for _, seconds in part)
        while True:
            options = ["-n", "0", "-x", "-rfE", f"--timeout={HANGS}", *(f"--deselect={test}" for test in anyway)]
            options += [test for test, _ in part]
            file.write_text(mutation.source, "utf-8")
            try:
                code, printed = run_tests(place, options, limit)
            finally:
                file.write_text(original, "utf-8")
            if code in {0, 5}:
                break
            if code is None:
                hangs = run_tests(place, options, limit / 3)[0] is not None
                return hangs, f"{'hangs' if hangs else 'too slow to tell'} after {limit:.0f} s"
            named = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", printed, re.MULTILINE)
            if named is None:
                return run_tests(place, options, limit)[0] == 0, f"pytest ended with {code}: {printed[-200:]!r}"
            if run_tests(place, ["-n", "0", f"--timeout={HANGS // 3}", named[1]], limit)[0] == 0:
                return True, named[1]
            anyway.append(named[1])
    left = f" of {len(every)}" if all_of_them < len(every) else ""
    return False, f"survived {min(all_of_them, len(every))}{left} tests" if every else "no test executes it"


def main() -> int:
    """Draw mutations, run their tests and print what became of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="*", default=["tests"], help="tests that may catch mutations (all)")
    parser.add_argument("--seed", default=dt.datetime.now(dt.UTC).date().isoformat(), help="(the date)")
    parser.add_argument("--count", type=int, default=60, help="mutations to try (60)")
    parser.add_argument("--jobs", type=int, default=2, help="processes that run tests (2)")
    parser.add_argument("--list", action="store_true", help="show the mutations, run nothing")
    options = parser.parse_args()
    listed = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["equivalent"]
    equivalent = {tuple(one[name] for name in KEY): one["reason"] for one in listed}
    mutations = drawn(options.seed, options.count, equivalent)
    if options.list:
        print(*map(shown, mutations), sep="\n")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        places = SimpleQueue[Path]()
        for job in range(options.jobs):
            places.put(copied(Path(folder).resolve() / str(job)))
        known = TestMap.load(options.tests, options.jobs, copied(Path(folder).resolve() / "map"))

        def tried(mutation: Mutation) -> bool:
            place = places.get()
            caught, how = judged(place, mutation, known)
            places.put(place)
            print(f"{'caught  ' if caught else 'SURVIVED'}  {shown(mutation)}\n          {how}", flush=True)
            return caught

        counted = [mutation for mutation in mutations if key_of(mutation) not in equivalent]
        with ThreadPoolExecutor(options.jobs) as pool:
            results = list(pool.map(tried, counted))
    for mutation in mutations:
        if reason := equivalent.get(key_of(mutation)):
            print(f"equivalent  {shown(mutation)}\n            {reason}")
    for mutation, caught in zip(counted, results, strict=True):
        if not caught:
            print("\n[[equivalent]]", *(f"{name} = {json.dumps(getattr(mutation, name))}" for name in KEY), sep="\n")
    print(f"\n{sum(results)} of {len(results)} mutations caught (seed {options.seed})")
    return int(sum(results) < ENOUGH * len(results))


if __name__ == "__main__":
    sys.exit(main())
