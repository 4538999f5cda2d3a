"""What importing the library costs, beside two packages that everybody imports.

    python benchmarks/import_cost.py [--runs N]

Prints processor time and number of modules loaded, as medians over runs in fresh interpreters that take turns.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from statistics import median

PROGRAMS = {
    "empty interpreter": "",
    "import numpy": "import numpy",
    "import pydantic": "import pydantic; pydantic.BaseModel",
    "import retrieval_core": "import retrieval_core",
}
REPORT = "\nimport sys; print(len(sys.modules))"


def measure(program: str) -> tuple[float, int]:
    """Return processor milliseconds and number of modules of one fresh interpreter."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run([sys.executable, "-c", program + REPORT], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds * 1000, int(run.stdout)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description="Processor time and modules of importing the library.")
    parser.add_argument("--runs", type=int, default=7, help="interpreters for each row (default 7)")
    runs: int = parser.parse_args().runs
    for program in PROGRAMS.values():
        measure(program)  # compiles what is not compiled yet
    rounds = [{name: measure(program) for name, program in PROGRAMS.items()} for _ in range(runs)]
    print(f"{'':<24}{'CPU ms':>8}{'modules':>9}")
    for name in PROGRAMS:
        results = [measured[name] for measured in rounds]
        print(f"{name:<24}{median(time for time, _ in results):>8.0f}{median(count for _, count in results):>9.0f}")


if __name__ == "__main__":
    main()
