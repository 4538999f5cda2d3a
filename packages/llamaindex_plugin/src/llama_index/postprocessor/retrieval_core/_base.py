"""What all postprocessors share: events, the bridge from sync to async, and guarded calls of models."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from math import isfinite
from typing import Any, Self, TypedDict, cast

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.callbacks import CallbackManager, CBEventType, EventPayload
from llama_index.core.instrumentation.events.exception import ExceptionEvent
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.llms import LLM as LlamaLLM  # noqa: N811 - the core's port has the name, too
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.prompts import BasePromptTemplate, PromptTemplate
from llama_index.core.prompts.mixin import PromptMixin
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle

from llama_index.retrievers.retrieval_core.adapters.llm import LlamaIndexLLM
from llama_index.retrievers.retrieval_core.convert import chunk_from_node
from llama_index.retrievers.retrieval_core.events import RetrievalDegradedEvent, report
from retrieval_core.adapters.rerankers.local import LocalCrossEncoder
from retrieval_core.config import RetrievalConfig
from retrieval_core.errors import InvalidParameterError, SearchError
from retrieval_core.pipeline.lifecycle import PATIENCE, guard_of
from retrieval_core.pipeline.options import check_names
from retrieval_core.pipeline.stages.expand import as_hits
from retrieval_core.ports import LLM, as_plugin
from retrieval_core.run.outcomes import Failed, raise_faults
from retrieval_core.run.runner import Guard, Run
from retrieval_core.run.sync import SyncBridge
from retrieval_core.run.threads import ThreadPool
from retrieval_core.types import Chunk, Degradation, Hit

logger = logging.getLogger(__name__)

CONCURRENCY = 4
"""Calls of a model at a time, as the pipeline's default."""


class Postprocessor(BaseNodePostprocessor, PromptMixin):
    """A postprocessor with one way to work, an asynchronous one, which the synchronous methods use too.

    LlamaIndex's instrumentation is told of the start and the end of every call, or of the error that it raises; so are
    the handlers of ``callback_manager``.
    """

    _bridge: SyncBridge = PrivateAttr(default_factory=SyncBridge)

    def __init__(self, callback_manager: CallbackManager | None = None, **fields: Any) -> None:
        check_names(fields, tuple(type(self).model_fields))
        super().__init__(**fields, **({} if callback_manager is None else {"callback_manager": callback_manager}))

    @classmethod
    def class_name(cls) -> str:
        """Name the postprocessor in what LlamaIndex records."""
        return cls.__name__

    def __getstate__(self) -> dict[str, Any]:
        # LlamaIndex would silently leave out what cannot be pickled.
        name = type(self).__name__
        msg = f"a {name} cannot be pickled, because the models or stores in it cannot; make a new one instead"
        raise TypeError(msg)

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> Self:
        """Refuse: LlamaIndex would make one with other models and settings, since a dictionary does not hold them.

        Raises:
            TypeError: Always.
        """
        del data, kwargs
        msg = f"a dictionary does not hold all that a {cls.__name__} was made with; call the constructor instead"
        raise TypeError(msg)

    # The two bases call the argument differently; it is passed by position.
    def _update_prompts(self, prompts_dict: dict[str, BasePromptTemplate]) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        known = self._get_prompts()
        if unknown := sorted(prompts_dict.keys() - known.keys()):
            there = ", ".join(known) or "none, because it asks no language model"
            msg = f"{self.class_name()} has no prompt {', '.join(unknown)}; there is {there}"
            raise InvalidParameterError(msg)

    @property
    @abstractmethod
    def _works_with(self) -> str:
        """Names the model or the method, for events."""

    @abstractmethod
    async def _process(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> list[NodeWithScore]:
        """Return the new nodes; the given ones, and what is in them, are not changed."""

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return self._bridge.run(self._watched(list(nodes), query_bundle))

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return await self._watched(list(nodes), query_bundle)

    async def _watched(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> list[NodeWithScore]:
        name, top_n = self._works_with, getattr(self, "top_n", len(nodes))
        payload: dict[str, Any] = {
            EventPayload.NODES: nodes,
            EventPayload.MODEL_NAME: name,
            EventPayload.QUERY_STR: None if query is None else query.query_str,
            EventPayload.TOP_K: top_n,
        }
        report(ReRankStartEvent(query=query, nodes=nodes, top_n=top_n, model_name=name))
        with self.callback_manager.event(CBEventType.RERANKING, payload=payload) as event:
            try:
                result = await self._process(nodes, query)
            except BaseException as error:
                report(ExceptionEvent(exception=error))
                raise
            event.on_end(payload={EventPayload.NODES: result})
        report(ReRankEndEvent(nodes=result))
        return result

    def close(self) -> None:
        """Stop the background loop of synchronous calls, if there is one. Closing twice is fine."""
        self._bridge.close()


class ModelOptions(TypedDict, total=False):
    """Keyword arguments of every postprocessor that calls a model, or reads a store around its nodes."""

    strict: bool
    """Whether to raise where that fails, or its answer has faults; by default the nodes stay as they are, a warning is
    logged, and a :class:`RetrievalDegradedEvent` goes to LlamaIndex's instrumentation."""
    deadline_seconds: float | None
    """The time that a call may take, with retries: 30 by default, ``None`` for no bound."""
    callback_manager: CallbackManager | None
    """Of LlamaIndex; its handlers are told of every call."""


class ModelPostprocessor(Postprocessor):
    """A postprocessor that calls a model: within a deadline, with retries, and with a way to go on where it fails."""

    strict: bool = False
    deadline_seconds: float | None = 30.0
    _pool: ThreadPool = PrivateAttr()
    _guard: Guard = PrivateAttr()
    _own: LocalCrossEncoder | None = PrivateAttr(default=None)

    def __init__(self, *, deadline_seconds: float | None = 30.0, **fields: Any) -> None:
        if deadline_seconds is not None and not 0 < deadline_seconds < float("inf"):
            msg = f"deadline_seconds must be above 0, or None for no bound, got {deadline_seconds!r:.80}"
            raise InvalidParameterError(msg)
        super().__init__(deadline_seconds=deadline_seconds, **fields)
        self._pool = ThreadPool("retrieval-postprocessor", threads=CONCURRENCY, patience=PATIENCE)
        self._guard = guard_of(RetrievalConfig())

    def _run(self) -> Run:
        return Run(self._pool, seconds=self.deadline_seconds, guard=self._guard)

    def _question(self, query: QueryBundle | None) -> str:
        if query is None:
            msg = f"{self.class_name()} needs the question: give query_str or query_bundle with the nodes"
            raise InvalidParameterError(msg)
        return query.query_str

    def _told(
        self, query: QueryBundle | None, failures: Sequence[Failed], degraded: Sequence[Degradation] = ()
    ) -> None:
        """Say what did not work as asked: in a warning and an event.

        Raises:
            RetrievalError: Something is set up wrongly; or, with ``strict``, anything failed.
        """
        raise_faults(failures, strict=self.strict)
        told = [f"{item.stage}: {item.reason}" for item in (*failures, *degraded)]
        if told and self.strict:
            raise SearchError("; ".join(told))
        if told:
            logger.warning("%s did not work as asked: %s", self.class_name(), "; ".join(told))
            question = "" if query is None else query.query_str
            report(RetrievalDegradedEvent(query_str=question, degraded=told))

    def close(self) -> None:
        """Close the model that was made here, and stop the background loop of synchronous calls."""
        if self._own is not None:
            self._own.close()
        super().close()


class PromptedPostprocessor(ModelPostprocessor):
    """A postprocessor that may ask a language model, with instructions that ``update_prompts`` replaces."""

    _prompt_name: str = PrivateAttr()
    _prompt: BasePromptTemplate | None = PrivateAttr(default=None)

    def __init__(self, *, prompt_name: str, prompt: BasePromptTemplate | None, **fields: Any) -> None:
        super().__init__(**fields)
        self._prompt_name = prompt_name
        self._prompt = prompt

    @property
    def _instructions(self) -> str | None:
        return None if self._prompt is None else instructions_of(self._prompt)

    def _get_prompts(self) -> dict[str, BasePromptTemplate]:
        return {} if self._prompt is None else {self._prompt_name: self._prompt}

    def _update_prompts(self, prompts_dict: dict[str, BasePromptTemplate]) -> None:
        super()._update_prompts(prompts_dict)
        for prompt in prompts_dict.values():
            self._prompt = checked_prompt(prompt)


def checked_prompt(prompt: BasePromptTemplate | str) -> BasePromptTemplate:
    """Return instructions as a prompt.

    Raises:
        InvalidParameterError: As of :func:`instructions_of`.
    """
    template = PromptTemplate(prompt) if isinstance(prompt, str) else prompt
    instructions_of(template)
    return template


def instructions_of(prompt: BasePromptTemplate) -> str:
    """Return the text of a prompt.

    Raises:
        InvalidParameterError: It is blank, or has variables that nothing fills: question and passages go to the model
            as data, behind the instructions.
    """
    mapped: dict[str, Any] = cast("Any", prompt).function_mappings or {}
    filled = {*prompt.kwargs, *mapped}
    if unfilled := [name for name in prompt.template_vars if name not in filled]:
        msg = (
            f"nothing fills the variables of the prompt: {', '.join(unfilled)}. Give only instructions: the "
            "question and the chunks are sent after them, as data"
        )
        raise InvalidParameterError(msg)
    text = prompt.format()
    if not text.strip():
        msg = "the prompt is blank; leave it out for the built-in instructions"
        raise InvalidParameterError(msg)
    return text


def checked_llm(llm: LlamaLLM | LLM) -> LLM:
    """Return a language model as one of retrieval-core.

    LlamaIndex's is called by its synchronous methods, in threads: clients of some are bound to the event loop of their
    first call, and the callers of a postprocessor may have several.

    Raises:
        InvalidParameterError: It is neither of LlamaIndex nor of retrieval-core.
    """
    return LlamaIndexLLM(llm, in_threads=True) if isinstance(llm, LlamaLLM) else as_plugin(llm, LLM, "llm")


def with_score(item: NodeWithScore, score: float | None) -> NodeWithScore:
    """Return a copy with another score; a :class:`NodeHit` keeps the facts of its query, such as the citation."""
    return item.model_copy(update={"score": score})


def hits_of(nodes: Sequence[NodeWithScore]) -> tuple[Hit, ...]:
    """Return nodes as hits with the texts that models judge; each hit's id is the node's place.

    Nodes of other retrievers may share an id, and their metadata may hold anything. The scores are the nodes', unless
    one is missing or no number: then they only tell the order.
    """
    scores = [item.score for item in nodes if item.score is not None and isfinite(item.score)]
    if len(scores) < len(nodes):
        scores = [float(-place) for place in range(len(nodes))]
    chunks = (Chunk(str(place), item.node.node_id, _judged_text(item.node)) for place, item in enumerate(nodes))
    return as_hits(chunks, scores)


def _judged_text(node: BaseNode) -> str:
    """Return title, headings and text of a passage of ours, as in the index; of others, what is embedded of them."""
    with suppress(InvalidParameterError):  # its metadata hold something that only another retriever knows of
        chunk = chunk_from_node(node)
        if chunk.title or chunk.section_path:
            return chunk.indexed_text
    return node.get_content(metadata_mode=MetadataMode.EMBED)


def with_text(item: NodeWithScore, text: str, start: int | None = None) -> NodeWithScore:
    """Return a copy of a node with another text, and without the embedding of the old one.

    Args:
        text: The new text.
        start: Where it begins in the old text; ``None`` where it is no stretch of it, and the node has no place then.
    """
    node = item.node.model_copy(update={"embedding": None})
    node.set_content(text)
    begin: int | None = getattr(node, "start_char_idx", None)
    if hasattr(node, "start_char_idx"):
        place = None if begin is None or start is None else begin + start
        node.start_char_idx = place  # pyright: ignore[reportAttributeAccessIssue]
        node.end_char_idx = None if place is None else place + len(text)  # pyright: ignore[reportAttributeAccessIssue]
    return item.model_copy(update={"node": node})
