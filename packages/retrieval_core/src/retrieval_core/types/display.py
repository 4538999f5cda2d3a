"""A short ``repr`` and a table for notebooks, for results and what they contain."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Display:
    """Renders a value as one line and as HTML, see :mod:`retrieval_core.types.rendering`."""

    __slots__ = ()

    def _facts(self) -> Mapping[str, object] | None:
        """Return what to show, by name; ``None`` for the types that the rendering knows."""
        return None

    def __repr__(self) -> str:
        from retrieval_core.types.rendering import render_line  # noqa: PLC0415 - only people ask for it

        return render_line(self, self._facts())

    def _repr_html_(self) -> str:
        from retrieval_core.types.rendering import render_html  # noqa: PLC0415 - as above

        return render_html(self, self._facts())
