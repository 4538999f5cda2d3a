"""The tools ``index_path`` and ``remove_document``, which are listed only if the server may write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, PrivateAttr

from retrieval_core.errors import NotFoundError
from retrieval_core.service.reading import ChunkRequest
from retrieval_core.service.writing import (
    FileFailure,
    FileWarning,
    IngestRequest,
    IngestResponse,
    RemoveRequest,
    remove,
)
from retrieval_core_mcp.fitting import in_one_line
from retrieval_core_mcp.tools.arguments import shown
from retrieval_core_mcp.tools.fit import Shrink
from retrieval_core_mcp.tools.tool import Id, ToolAnswer

if TYPE_CHECKING:
    from retrieval_core.service.service_context import ServiceContext
    from retrieval_core_mcp.tools.tool import ToolCall

MOST_FAILURES = 20


class IndexArguments(IngestRequest):
    """Arguments of the tool index_path."""

    path: Annotated[Id, Field(description="File or folder")]


class IndexedAnswer(ToolAnswer):
    """The result of an indexing run, counted in documents."""

    added: int
    updated: int
    unchanged: int
    removed: int
    documents: int = Field(description="In the index after the run")
    passages: int
    failed: Annotated[list[FileFailure], Shrink()]
    notes: Annotated[list[FileWarning], Shrink(), Field(description="Warnings, such as a guessed encoding")]
    empty: int = Field(0, description="Empty files")
    skipped_types: dict[str, int] = Field({}, description="Skipped files, by suffix")
    skipped: dict[str, int] = Field({}, description="Skipped files, by reason")
    _counts: tuple[int, int] = PrivateAttr()

    @classmethod
    def of(cls, response: IngestResponse, call: ToolCall) -> Self:
        """Return the counts, and the first files that failed."""
        del call
        answer = cls(
            added=response.added,
            updated=response.updated,
            unchanged=response.unchanged,
            removed=response.removed,
            documents=response.documents,
            passages=response.chunks,
            failed=[
                FileFailure(path=in_one_line(each.path, 200), error=in_one_line(each.error, 200))
                for each in response.failed[:MOST_FAILURES]
            ],
            notes=[
                FileWarning(path=in_one_line(each.path, 200), message=in_one_line(each.message, 400))
                for each in response.notes[:MOST_FAILURES]
            ],
            empty=response.empty,
            skipped_types=dict([*response.skipped_types.items()][:MOST_FAILURES]),
            skipped=dict(response.skipped),
        )
        answer._counts = len(response.failed), len(response.notes)
        return answer

    def render(self) -> str:
        """Return the counts, and a line for each file with a problem."""
        counts = ", ".join(f"{getattr(self, name):,} {name}" for name in ("added", "updated", "unchanged", "removed"))
        lines = [f"{counts}; the index contains {self.documents:,} documents, {self.passages:,} chunks."]
        if self.empty:
            lines.append(f"{self.empty:,} file{'s are' if self.empty > 1 else ' is'} empty.")
        if self.skipped_types:
            each = ", ".join(f"{count:,} {suffix or 'without suffix'}" for suffix, count in self.skipped_types.items())
            lines.append(f"Skipped, because files of these types can't be read: {in_one_line(each, 300)}.")
        if self.skipped:
            each = ", ".join(f"{count:,} {reason}" for reason, count in self.skipped.items())
            lines.append(f"Skipped files: {each}.")
        failed, notes = self._counts
        if failed:
            lines.append(f"{failed:,} could not be read:")
        lines += [f"- {file.path}: {file.error}" for file in self.failed]
        if notes:
            lines.append(f"{notes:,} {'warning' if notes == 1 else 'warnings'} about files that were read:")
        lines += [f"- {note.path}: {note.message}" for note in self.notes]
        return "\n".join(lines)


class RemoveArguments(ChunkRequest):
    """Arguments of the tool remove_document."""

    id: Annotated[Id, Field(description="ID of the document")]


async def remove_document(context: ServiceContext, request: RemoveArguments) -> int:
    """Remove a document, and return the number of its chunks.

    Raises:
        NotFoundError: There is none of that ID.
        RetrievalError: As :func:`retrieval_core.service.writing.remove`.
    """
    response = await remove(context, RemoveRequest(ids=(request.id,), index=request.index))
    if not (removed := response.removed_chunks[request.id]):
        raise NotFoundError("Document", request.id)
    return removed


class RemovalAnswer(ToolAnswer):
    """The number of chunks that were removed."""

    removed_passages: int
    _id: str = PrivateAttr()

    @classmethod
    def of(cls, response: int, call: ToolCall) -> Self:
        """Return the number."""
        answer = cls(removed_passages=response)
        answer._id = call.request.id
        return answer

    def render(self) -> str:
        """Return a sentence."""
        removed = self.removed_passages
        return f"Removed {shown(self._id)} with {removed:,} chunk{'s' * (removed != 1)}."
