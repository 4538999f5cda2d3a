"""Several processes that answer from one index, with models and a cache that tests can look into."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from retrieval_core import Chunk, load_config, open_index
from support.http_process import http_process
from support.openai_service import OpenAIService
from support.wire_server import WireServer

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from support.http_process import HttpProcess

EMBEDDINGS = "/v1/embeddings"


class Models(WireServer):
    """An embedding service."""

    def __init__(self) -> None:
        super().__init__(OpenAIService(key=None))

    def embedded(self, words: str) -> int:
        """Return how often texts with these words were embedded."""
        bodies = [request.body for request in tuple(self.requests) if request.path == EMBEDDINGS]
        return sum(words in json.dumps(json.loads(body)["input"]) for body in bodies)


def write_config(folder: Path, models: Models, more: str = "") -> Path:
    """Write settings with the embedding service, and return their file."""
    file = folder / "config.toml"
    file.write_text(f"""
deadline_seconds = 600
[embedder]
kind = "openai"
[embedder.openai]
model = "text-embedding-3-small"
base_url = "{models.url}/v1"
{more}
""")
    return file


@contextmanager
def replicas(
    folder: Path, *each: Sequence[str], more: str = "", fill: bool = True, **environment: str
) -> Generator[tuple[Models, list[HttpProcess]]]:
    """Start services with an index of five chunks.

    Args:
        each: The options of each service.
        more: Further settings of the library, as TOML; ``store.kind`` may be another than SQLite.
        environment: Settings of the services.
    """
    with Models() as models, ExitStack() as running:
        config = write_config(folder, models, more)
        index = str(folder / "index.db")
        if fill:
            with open_index(config=load_config(config, {"index": index}, {})) as opened:
                opened.add([
                    Chunk(f"c{row}", f"d{row}", f"The moon has no air, says {row}.", metadata={"tenant": "acme"})
                    for row in range(5)
                ])  # fmt: skip
        given = {f"RETRIEVAL_MCP__HTTP__{name}": value for name, value in environment.items()}
        options = ("--index", index, "--config", str(config), "--allow-writes")
        services = [running.enter_context(http_process(*options, *own, environment=given)) for own in each]
        yield models, services
