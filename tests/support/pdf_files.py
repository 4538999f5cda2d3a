"""PDF files of several pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 8


def make_chapters(file: Path, pages: int) -> None:
    """Write a PDF with a heading and eight lines on each page: each page is a section, and a chunk."""
    canvas = pytest.importorskip("reportlab.pdfgen.canvas", reason="the group 'test-files' is not installed").Canvas(
        str(file)
    )
    pytest.importorskip("pypdfium2", reason="the extra 'files' is not installed")
    for page in range(1, pages + 1):
        canvas.setFont("Helvetica-Bold", 16)
        canvas.drawString(72, 740, f"Chapter {page}")
        canvas.setFont("Helvetica", 10)
        for row in range(ROWS):
            canvas.drawString(72, 700 - 12 * row, f"Row {row} of page {page} has the valve number {10 * page + row}.")
        canvas.showPage()
    canvas.save()
