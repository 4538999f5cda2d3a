"""Components that an adapter can use besides its settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrieval_core import ports
    from retrieval_core.text.analysis import Analyzer


@dataclass(frozen=True, slots=True)
class AdapterParts:
    """Components that an adapter can use besides its settings.

    Attributes:
        llm: The language model.
        embedder: The index's embedder.
        cross_encoder: Returns the cross-encoder of this machine, which several stages share.
        location: The file or folder of the index, for a store.
        analyzer: Splits text into terms, for a store or a reranker.
        kind: The kind that was chosen.
        section: The section of the configuration that chose it, with the settings that all kinds share.
    """

    llm: ports.LLM | None = None
    embedder: ports.Embedder | None = None
    cross_encoder: Callable[[], ports.Reranker] | None = None
    location: Path = Path()
    analyzer: Analyzer | None = None
    kind: str = ""
    section: Any = None

    @property
    def model(self) -> ports.LLM:
        """The language model, for an adapter with ``needs_llm``."""
        return cast("ports.LLM", self.llm)

    @property
    def local_reranker(self) -> ports.Reranker:
        """The cross-encoder of this machine, not yet loaded."""
        return cast("Callable[[], ports.Reranker]", self.cross_encoder)()

    @property
    def of_store(self) -> dict[str, Any]:
        """What a store knows of embedder and text, as keyword arguments."""
        id_, dimension = (None, None) if self.embedder is None else (self.embedder.id, self.embedder.dimension)
        return {"embedder_id": id_, "dimension": dimension, "analyzer": self.analyzer}
