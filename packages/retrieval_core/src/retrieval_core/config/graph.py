"""Settings of the knowledge graph."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - pydantic resolves it at run time

from retrieval_core.config.backends import Settings


class GraphConfig(Settings):
    """Facts as triples, which lead from the names in a question to chunks."""

    file: Path | None = None
    """A file of triples of your own, one JSON object a line."""
    extract: bool = False
    """Whether a language model notes the facts of chunks as they are indexed, in a file beside the index."""
    prompt: str | None = None
    """For ``extract``: instructions in place of the built-in ones."""
