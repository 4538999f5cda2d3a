"""``python -m benchmarks NAME``: see ``docs/dev/measurements.md`` for what each one measures."""

from __future__ import annotations

import sys
from importlib import import_module

COMMANDS = {
    "collections": "makes collections of code, frequently asked questions, tables and several languages",
    "quality": "nDCG@10 beside other libraries, with the same vectors, on any collections in BEIR's form",
    "speed": "milliseconds of a hybrid question beside other libraries, by number of passages",
    "scale": "time to load, disk, memory, speed and recall with many passages, beside LanceDB",
    "concurrency": "questions a second with many callers at once, beside other libraries",
    "flames": "what the time goes into, function by function, before and after a change",
    "start": "from the start of a process to its first complete answer",
    "agents": "what assistants read to find answers: this server's tools beside grep, as retrieval savings prints it",
    "house": "count the code, its import circles, the settings and the calls of one query",
}


def main(argv: list[str]) -> int:
    """Run one benchmark and return its exit code."""
    if not argv or argv[0] not in COMMANDS:
        print("usage: python -m benchmarks NAME [options], or NAME --help; NAME is one of", file=sys.stderr)
        for name, meaning in COMMANDS.items():
            print(f"  {name:12}{meaning}", file=sys.stderr)
        return 0 if argv and argv[0] in {"-h", "--help"} else 2
    # A module of that name would stand before the standard library's where a benchmark is run as a file.
    module = "public_collections" if argv[0] == "collections" else argv[0]
    return import_module(f"benchmarks.{module}").main(argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
