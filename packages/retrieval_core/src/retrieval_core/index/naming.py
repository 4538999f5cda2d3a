"""Find the documents that names, paths and folders stand for."""

from __future__ import annotations

from difflib import get_close_matches
from os import sep
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from retrieval_core.errors import InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from retrieval_core.ingest.ingester import Ingester
    from retrieval_core.types import DocumentInfo


async def find_documents(
    names: Sequence[str], documents: Sequence[DocumentInfo], ingester: Ingester
) -> tuple[DocumentInfo, ...]:
    """Return the documents that names stand for, each once.

    A name in the index comes before a path to a file.

    Args:
        names: As :meth:`retrieval_core.Index.afind_documents` takes them.
        documents: All documents of the index.
        ingester: Knows where files are.

    Raises:
        InvalidParameterError: The index has no document of a name.
    """
    found: dict[str, DocumentInfo] = {}
    for name in names:
        of_name = _named(name, documents)
        if not of_name and name:
            try:
                sources = set(await ingester.names_at(Path(name), is_folder=name.endswith(("/", sep))))
            except (OSError, ValueError):  # no path of this system, or the current folder is gone
                sources = set[str]()
            of_name = [each for each in documents if each.source in sources]
        if not of_name:
            raise InvalidParameterError(_unknown(name, documents))
        found.update((each.id, each) for each in of_name)
    return tuple(found.values())


def _named(name: str, documents: Iterable[DocumentInfo]) -> list[DocumentInfo]:
    """Return the document of an id, else those of a file or folder by its name in the index."""
    if name.endswith("/"):
        return [each for each in documents if each.id.startswith(name)]
    of_file = [each for each in documents if name in (each.id, each.source)]
    return [each for each in of_file if each.id == name] or of_file


def _unknown(name: str, documents: Iterable[DocumentInfo]) -> str:
    known = {text: None for each in documents for text in (each.id, each.source) if text}
    folders = {f"{folder}/": None for text in known for folder in PurePosixPath(text).parents if folder.name}
    candidates = [*known, *folders]
    end = name.replace(sep, "/").rstrip("/").rpartition("/")[2]
    near = (
        [each for each in candidates if each.rstrip("/") == name.rstrip("/")]
        or get_close_matches(name, candidates, n=1)
        or [each for each in candidates if each.rstrip("/").rpartition("/")[2] == end]
    )
    advice = f"Did you mean {near[0]!r}?" if near else "Run 'retrieval list' to see all names."
    return f"the index has no document {name!r:.200}. {advice}"
