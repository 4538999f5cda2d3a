"""The events that the retriever adds to LlamaIndex's instrumentation."""

from __future__ import annotations

from llama_index.core.instrumentation import get_dispatcher  # pyright: ignore[reportPrivateImportUsage] - its public home
from llama_index.core.instrumentation.events import BaseEvent


class RetrievalDegradedEvent(BaseEvent):
    """A query was answered in a degraded way.

    Attributes:
        query_str: The question.
        degraded: The stages that failed and why, one sentence each.
    """

    query_str: str
    degraded: list[str]

    @classmethod
    def class_name(cls) -> str:
        """Name the event in what LlamaIndex records."""
        return "RetrievalDegradedEvent"


def report(event: BaseEvent) -> None:
    """Hand an event to whoever listens to LlamaIndex's instrumentation."""
    get_dispatcher(__name__).event(event)
