"""The parts that adapters get from settings, and the bases of those that ask a language model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from pydantic import BaseModel

from retrieval_core.errors import checked_count
from retrieval_core.ports import LLM, as_plugin
from retrieval_core.text.prompting import Asking

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from retrieval_core import ports
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.text.prompting import Task

A = TypeVar("A", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class AdapterParts:
    """Components that an adapter can use besides its settings.

    Attributes:
        llm: The language model.
        embedder: The index's embedder.
        cross_encoder: Returns the cross-encoder of this machine, which several stages share.
        location: The file or folder of the index, for a store.
        analyzer: Splits text into terms, for a store or a reranker.
        kind: The kind that was chosen.
        section: The section of the configuration that chose it, with the settings that all kinds share.
    """

    llm: ports.LLM | None = None
    embedder: ports.Embedder | None = None
    cross_encoder: Callable[[], ports.Reranker] | None = None
    location: Path = Path()
    analyzer: Analyzer | None = None
    kind: str = ""
    section: Any = None

    @property
    def model(self) -> ports.LLM:
        """The language model, for an adapter with ``needs_llm``."""
        return cast("ports.LLM", self.llm)

    @property
    def local_reranker(self) -> ports.Reranker:
        """The cross-encoder of this machine, not yet loaded."""
        return cast("Callable[[], ports.Reranker]", self.cross_encoder)()

    @property
    def of_store(self) -> dict[str, Any]:
        """What a store knows of embedder and text, as keyword arguments."""
        id_, dimension = (None, None) if self.embedder is None else (self.embedder.id, self.embedder.dimension)
        return {"embedder_id": id_, "dimension": dimension, "analyzer": self.analyzer}


class AsksLLM(Generic[A]):
    """Asks a language model to do one task with a question.

    Args:
        llm: Stays the caller's to close.
        prompt: Instructions in place of the module's ``DEFAULT_PROMPT``. They replace neither the form of the answer
            nor the rule that question and passages are data.

    Raises:
        InvalidParameterError: The prompt is blank.
    """

    needs_llm = True
    """It is left out if there is no language model."""
    _task: Task[A]
    _settings: tuple[object, ...]
    """Other settings that change the result. They are part of the ID."""

    def __init__(self, llm: LLM, *, prompt: str | None = None) -> None:
        self._asking = Asking(llm, self._task, prompt, *self._settings)

    @classmethod
    def from_settings(cls, settings: BaseModel | None, parts: AdapterParts) -> Self:
        """Make it over the language model, with the configured instructions."""
        prompts: dict[str, str] = parts.section.prompts if settings is None else dict(settings)
        return cls(parts.model, prompt=prompts.get(parts.kind if settings is None else "prompt"))

    async def probe(self) -> str:
        """Name the model; whether it answers is found by its own probe."""
        return f"asks {self._asking.llm_id}"

    @property
    def id(self) -> str:
        """Names the model, and a digest of everything that it is shown besides the data."""
        return self._asking.id


class AsksInBatches:
    """Asks a language model about several texts in one request.

    Args:
        llm: Stays the caller's to close.
        prompt: The instructions, which are not blank.
        batch_size: Texts in one request; at least 1.

    Raises:
        InvalidParameterError: ``batch_size`` is less than 1.
    """

    needs_llm = True
    """It is left out if there is no language model."""

    def __init__(self, llm: LLM, prompt: str, batch_size: int) -> None:
        self._llm = as_plugin(llm, LLM, "llm")
        self._prompt = prompt
        self._batch_size = checked_count(batch_size, "batch_size")

    async def probe(self) -> str:
        """Name the model; whether it answers is found by its own probe."""
        return f"asks {self._llm.id}"

    @property
    def batch_size(self) -> int:
        """The most texts of one request."""
        return self._batch_size
