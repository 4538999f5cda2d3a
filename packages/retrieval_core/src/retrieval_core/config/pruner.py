"""Settings of what shortens passages to the sentences that bear on the question."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from retrieval_core.config.backends import WithOptions


class PrunerConfig(WithOptions):
    """Showing of each passage only the sentences that bear on the question."""

    _take_options: ClassVar[tuple[str, ...]] = ("provence",)  # model and revision

    kind: str = "none"
    """``none``, ``embedder`` (the index's own), ``local`` (a cross-encoder on this machine), ``provence`` or
    ``"package.module:factory"``."""
    threshold: float | None = Field(default=None, ge=-1, le=1)
    """The least score of a sentence that is kept, on the kind's own scale; a measured one where it is not set, which
    ``embedder`` has for the default embedder only."""
    concurrency: int = Field(default=4, ge=1, le=100)
    """Calls at a time."""
