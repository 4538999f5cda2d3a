"""The further vectors of chunks as they are configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.config import VectorsConfig
    from retrieval_core.ports import Embedder


def named_fields(config: VectorsConfig, embedder: Embedder | None) -> Mapping[str, str]:
    """Return what is embedded for each further vector, by its name; nothing without an embedder."""
    return {} if embedder is None else config.fields
