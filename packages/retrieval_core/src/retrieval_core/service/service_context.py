"""The caller of a function of the service, and what it may see and change."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Protocol, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from retrieval_core.errors import NotPermittedError, RetrievalError
from retrieval_core.service.redaction import message_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from retrieval_core.service.redaction import Redact
    from retrieval_core.service.served import ServedIndex, ServedIndexes
    from retrieval_core.types import Chunk
    from retrieval_core.types.filters import Filter


def _as_whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _as_tuple(value: object) -> object:
    return tuple(cast("list[object]", value)) if isinstance(value, list) else value


WHOLE = BeforeValidator(_as_whole)
"""JSON has one kind of number: 5.0 is as whole as 5. Put it after the bounds, or the JSON schema lacks them."""
SEVERAL = BeforeValidator(_as_tuple)
"""A JSON array for a tuple; put it last."""


Range = Annotated[
    tuple[int, int],
    WithJsonSchema({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}),  # read by every tool
]
"""The first and the last of lines or pages, from 1."""
IndexName = Annotated[str | None, Field(description="Name of the index. Default: the first one")]


@lru_cache(1_000)
def in_utc(moment: datetime) -> str:
    """Return a time as ``YYYY-MM-DDTHH:MM:SSZ``. A time without a zone is read as UTC."""
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return aware.replace(tzinfo=None).isoformat(timespec="seconds") + "Z"  # strftime writes the year 922 with 3 digits


class ServiceModel(BaseModel):
    """A request or response of the service. It is frozen, and rejects unknown fields and wrong types."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class OnStep(Protocol):
    """A function that gets each completed step of some work."""

    def __call__(self, message: str, done: int = 0, total: int = 0) -> None:
        """Take a step, and the amounts of work that are done and that there are; 0 if unknown."""
        ...


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """The caller of a function of the service. Each face makes one per request.

    Attributes:
        indexes: The served indexes.
        tenant: Filter of the chunks that the caller sees; ``None`` if it sees all of them.
        may_write: Whether the caller may change indexes.
        on_step: Function that gets each completed step of the work, from any thread.
        is_local: Whether the caller works on this machine, so that messages keep their paths.
    """

    indexes: ServedIndexes
    tenant: Filter | None = None
    may_write: bool = False
    on_step: OnStep | None = None
    is_local: bool = False

    @property
    def redact(self) -> Redact:
        """The function that removes paths and credentials from a message."""
        return str if self.is_local else self.indexes.redact

    def message_of(self, error: BaseException) -> str:
        """Return the message of an error for the caller."""
        return message_of(error, self.redact)

    def index(self, name: str | None = None) -> ServedIndex:
        """Return an index by its name; ``None`` for the first.

        Raises:
            NotFoundError: There is none of that name.
        """
        return self.indexes.named(name)

    async def changed_since(self, name: str | None, chunks: Iterable[Chunk]) -> frozenset[str]:
        """Return the IDs of chunks whose files were changed after they were indexed; none if that is unknown."""
        index = await self.index(name).index()
        with suppress(RetrievalError):
            return await index.aedited_since(chunks)
        return frozenset()

    def check_writing(self) -> None:
        """Refuse a caller that may not write.

        Raises:
            NotPermittedError: The caller sees only some of the documents, or may only read.
        """
        if self.tenant is not None:
            msg = "a caller who sees only some of the documents can't change them"
            raise NotPermittedError(msg)
        if not self.may_write:
            msg = "this caller may only read"
            raise NotPermittedError(msg)
