"""Without the extra, and without what the tests make files with, there is nothing to read."""

from importlib.util import find_spec

NEEDED = ("docx", "html_to_markdown", "mammoth", "openpyxl", "pptx", "pypdf", "pypdfium2", "reportlab")

collect_ignore = (
    ["test_bombs.py", "test_long_office_files.py", "test_readers_documents.py", "test_readers_pdf.py"]
    if any(find_spec(name) is None for name in NEEDED)
    else []
)
