"""A short ``repr`` and a table for notebooks, for results and what they contain."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Display:
    """Renders a value as one line and as HTML, see :mod:`retrieval_core.types.rendering`."""

    __slots__ = ()

    def _facts(self) -> Mapping[str, object]:
        """Return what to show, by name."""
        return {}

    def _details(self) -> Mapping[str, object]:
        """Return what there is room for in a table only."""
        return {}

    def _rows(self) -> tuple[Sequence[str], Iterable[Sequence[object]]] | None:
        """Return what the value contains as a table: its head and its rows; ``None`` for a table of its facts."""
        return None

    def _lines(self) -> Sequence[object]:
        """Return what has a line of its own."""
        return ()

    @staticmethod
    def _facts_of(part: Display) -> Mapping[str, object]:
        return part._facts()

    @staticmethod
    def _details_of(part: Display) -> Mapping[str, object]:
        return part._details()

    def __repr__(self) -> str:
        from retrieval_core.types.rendering import render_line  # noqa: PLC0415 - only people ask for it

        return render_line(type(self).__name__, self._facts(), self._lines())

    def _repr_html_(self) -> str:
        from retrieval_core.types.rendering import render_html  # noqa: PLC0415 - as above

        return render_html(type(self).__name__, self._facts(), self._details(), self._rows())
