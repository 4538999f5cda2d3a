"""Runs a program, and writes which thread was importing what, and loading what, and when.

    python benchmarks/start_trace.py FILE MODULE [ARGUMENT ...]
    python benchmarks/start_trace.py FILE -c CODE

``FILE`` gets a JSON list of spans: thread, what, begin and end on the clock of ``time.perf_counter``. An import counts
as that of the package that began it, until it comes to one of :data:`NAMED`.
"""

from __future__ import annotations

import builtins
import importlib
import json
import os
import runpy
import sys
import threading
import time

TYPE_CHECKING = False  # typing is left for the program to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

NAMED = {
    "mcp": "MCP", "mcp_types": "MCP", "pydantic": "pydantic", "pydantic_core": "pydantic", "numpy": "numpy",
    "onnxruntime": "onnxruntime", "tokenizers": "tokenizers", "retrieval_core": "own", "retrieval_core_mcp": "own",
    "click": "click", "rich": "rich",
}  # fmt: skip
LOADING = {
    "retrieval_core.adapters.local_models.files": ("_sha256", "checksum"),
    "retrieval_core.adapters.local_models.onnx": ("OnnxModel", "model"),
    "retrieval_core.adapters.local_models.tokens": ("load_tokenizer", "tokenizer"),
}
"""Functions of our own that load something: the name of each in its module, and in the picture."""
SHORTEST = 0.001


class Trace:
    """Takes the place of what imports modules, and notes how long each import took."""

    def __init__(self) -> None:
        self.spans: list[dict[str, object]] = []
        self._timed_modules: set[str] = set()
        self._importing: dict[int, list[str]] = {}
        self._import, self._import_module = builtins.__import__, importlib.import_module
        builtins.__import__, importlib.import_module = self._traced_import, self._traced_import_module

    def _traced_import(
        self,
        name: str,
        globals: Any = None,  # noqa: A002 - it is called by these names
        locals: Any = None,  # noqa: A002
        fromlist: Any = (),
        level: int = 0,
    ) -> Any:
        package: str = globals["__package__"] if level else name
        return self._note_import(package, lambda: self._import(name, globals, locals, fromlist, level))

    def _traced_import_module(self, name: str, package: str | None = None) -> Any:
        return self._note_import(package or name, lambda: self._import_module(name, package))

    def _note_import(self, name: str, run: Callable[[], Any]) -> Any:
        what = NAMED.get(name.partition(".")[0])
        stack = self._importing.setdefault(threading.get_ident(), [])
        if what is None or (stack and stack[-1] == what):
            return run()
        stack.append(what)
        try:
            return self._note(what, run)
        finally:
            stack.pop()
            if not stack:
                self._note_loading()

    def _note_loading(self) -> None:
        for module, (attribute, what) in LOADING.items():
            owner = sys.modules.get(module)
            # Another thread may still be importing it.
            if hasattr(owner, attribute) and module not in self._timed_modules:
                self._timed_modules.add(module)
                setattr(owner, attribute, self._timed(getattr(owner, attribute), what))

    def _timed(self, function: Callable[..., Any], what: str) -> Callable[..., Any]:
        return lambda *arguments: self._note(what, lambda: function(*arguments))

    def _note(self, what: str, run: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        try:
            return run()
        finally:
            end = time.perf_counter()
            if end - begin >= SHORTEST:
                self.spans.append({"thread": threading.get_ident(), "what": what, "begin": begin, "end": end})


def main(file: str, program: list[str]) -> None:
    """Run a program; its arguments are what follows."""
    trace = Trace()
    plain_exit = os._exit

    def write_and_exit(code: int) -> NoReturn:
        write()
        plain_exit(code)

    def write() -> None:
        with open(file, "w", encoding="utf-8") as output:  # noqa: PTH123 - pathlib is left for the program to import
            json.dump(trace.spans, output)

    os._exit = write_and_exit  # how the server ends
    try:
        if program[0] == "-c":
            sys.argv = ["-c", *program[2:]]
            exec(compile(program[1], "-c", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = program
            runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    finally:
        write()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
