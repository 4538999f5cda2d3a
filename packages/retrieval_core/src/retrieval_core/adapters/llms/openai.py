"""The language model adapter for OpenAI, or for another server that speaks its protocol."""

from __future__ import annotations

import json
import re
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, cast

from pydantic import AliasChoices, Field, SecretStr

from retrieval_core.adapters.vendors import LoadsPackage
from retrieval_core.adapters.vendors.openai import SERVICE, OpenAIConnection
from retrieval_core.config.base import AdapterSettings, Address
from retrieval_core.errors import ConfigurationError, MalformedAnswerError, ServiceError
from retrieval_core.ports import LLM, Completion
from retrieval_core.types import Usage
from retrieval_core.types.escapes import valid_unicode

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from typing import Self

    from openai.types import CompletionUsage
    from openai.types.chat import ChatCompletion, ChatCompletionChunk

    from retrieval_core.ports import CompletionRequest

# Models that think before they answer refuse a temperature and the older name of the length limit. Gateways put the
# vendor's name before the model's.
_REASONING = re.compile(r"(?:.*/)?(?:o\d|gpt-[5-9])")
_SCHEMA_NAME = "answer"


class OpenAILLMSettings(AdapterSettings):
    """A language model of OpenAI, or of any server with the same API."""

    required: ClassVar[dict[str, str]] = {"api_key": "base_url"}

    model: str = "gpt-4.1-mini"
    """Name of the model, as the server calls it."""
    base_url: Address = None
    """Address of another server with the same API: Ollama, vLLM, llama.cpp, a gateway."""
    api_key: SecretStr | None = Field(default=None, validation_alias=AliasChoices("api_key", "OPENAI_API_KEY"))
    """API key. Default: the environment variable ``OPENAI_API_KEY``."""


class OpenAILLM(LoadsPackage, LLM):
    """Chat completions over HTTP; an :class:`~retrieval_core.ports.LLM`.

    A malformed answer, such as text that is not JSON where there is a schema, is a
    :class:`~retrieval_core.errors.MalformedAnswerError`, which is retried. A refusal, or an answer that was cut off at
    its greatest length, is a plain :class:`~retrieval_core.errors.ServiceError`, which is not.

    Models that reason (``o1`` and its like, ``gpt-5`` and later) are sent no temperature; their ``max_tokens`` include
    the tokens that they reason with.

    Args:
        model: The server's name for it.
        api_key: Not needed where ``base_url`` leads to a server that wants none.
        base_url: The server's, for instance ``http://localhost:11434/v1``.

    Raises:
        ConfigurationError: There is no model, or neither key nor base URL.
    """

    package: ClassVar[str] = "openai"
    Settings = OpenAILLMSettings

    def __init__(self, model: str, *, api_key: SecretStr | str | None = None, base_url: str | None = None) -> None:
        self._set_model(model)
        self._connection = OpenAIConnection("A language model with OpenAI's protocol", api_key, base_url)

    @property
    def id(self) -> str:
        """Names the model, and the server where it is not OpenAI."""
        return f"openai/{self._model}{self._connection.suffix}"

    def with_model(self, model: str) -> Self:
        """Return another model of the same server; both share connections, so closing one closes the other's.

        Raises:
            ConfigurationError: The name is empty.
        """
        other = copy(self)
        other._set_model(model)  # noqa: SLF001 - of the same class
        return other

    def _set_model(self, model: str) -> None:
        if not model:
            msg = "the name of the language model is empty; set it to what the server calls it"
            raise ConfigurationError(msg)
        self._model = model
        self._reasons = _REASONING.match(model) is not None

    async def _complete(self, request: CompletionRequest) -> Completion:
        """Answer a request.

        With a schema the text is a JSON object with exactly the properties of the schema; their values are checked only
        by servers with strict schemas, such as OpenAI's.

        Raises:
            MalformedAnswerError: The answer is empty, or not the JSON that was asked for.
            ServiceError: The service failed, the model refused, or its answer was cut off; subclasses say more.
        """
        client = await self._connection.client()
        with self._connection.mapped_errors():
            answer: ChatCompletion = await client.chat.completions.create(**self._arguments(request), stream=False)
        return self._completion(answer, request)

    async def _stream(self, request: CompletionRequest) -> AsyncGenerator[str]:
        """Answer a request piece by piece; closing the iterator closes the connection.

        Raises:
            ServiceError: As for ``complete()``, before the first piece or after any. JSON is not checked.
        """
        client = await self._connection.client()
        ended = None
        with self._connection.mapped_errors():
            async with await client.chat.completions.create(**self._arguments(request), stream=True) as chunks:
                async for chunk in chunks:
                    text, reason = self._piece(chunk)
                    ended = reason or ended
                    if text:
                        yield text
        if ended is None:
            msg = f"{self.id} ended its answer before it was complete"
            raise MalformedAnswerError(msg, SERVICE)
        self._check_end(ended)

    async def aclose(self) -> None:
        """Close the running event loop's connections; a later call opens new ones. Closing twice is fine."""
        await self._connection.aclose()

    def _arguments(self, request: CompletionRequest) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "model": self._model,
            "messages": [
                {"role": message.role, "content": valid_unicode(message.content)} for message in request.messages
            ],
        }
        if not self._reasons:
            arguments["temperature"] = request.temperature
        if request.max_tokens is not None:
            # OpenAI deprecates the old name, and servers that speak its protocol may not know the new one.
            is_new = self._reasons or self._connection.is_vendors_own
            arguments["max_completion_tokens" if is_new else "max_tokens"] = request.max_tokens
        if request.schema is not None:
            schema = {"name": _SCHEMA_NAME, "schema": request.schema, "strict": True}
            arguments["response_format"] = {"type": "json_schema", "json_schema": schema}
        return arguments

    def _completion(self, answer: ChatCompletion, request: CompletionRequest) -> Completion:
        try:
            choice = answer.choices[0]
            text, refusal, ended = choice.message.content, choice.message.refusal, choice.finish_reason
            usage = _usage(answer.usage)
        except (AttributeError, IndexError, TypeError) as error:
            msg = f"{self.id} answered with something that is no completion"
            raise MalformedAnswerError(msg, SERVICE) from error
        if refusal:
            self._refused(refusal)
        self._check_end(ended)
        if not text:
            msg = f"{self.id} answered with nothing"
            raise MalformedAnswerError(msg, SERVICE)
        if request.schema is not None:
            self._check_object(text, request.schema)
        return Completion(text, usage)

    def _piece(self, chunk: ChatCompletionChunk) -> tuple[str | None, str | None]:
        """Return the text and the finish reason of a chunk, each where it has one."""
        try:
            if not chunk.choices:
                return None, None  # some servers send such chunks for the usage, or first
            choice = chunk.choices[0]
            text, refusal, reason = choice.delta.content, choice.delta.refusal, choice.finish_reason
        except (AttributeError, IndexError, TypeError) as error:
            msg = f"{self.id} streamed something that is no part of a completion"
            raise MalformedAnswerError(msg, SERVICE) from error
        if refusal:
            self._refused(refusal)
        return text, reason

    def _refused(self, refusal: str) -> None:
        msg = f"{self.id} refused to answer: {self._connection.said(refusal)}"
        raise ServiceError(msg, SERVICE)

    def _check_end(self, reason: str) -> None:
        if reason == "length":
            msg = f"{self.id} was cut off at its greatest length; allow more tokens, or ask for less"
            raise ServiceError(msg, SERVICE)
        if reason == "content_filter":
            msg = f"{self.id} was cut off by the service's content filter"
            raise ServiceError(msg, SERVICE)

    def _check_object(self, text: str, schema: Mapping[str, Any]) -> None:
        try:
            value: object = json.loads(text)
        except ValueError as error:
            msg = f"{self.id} answered with text that is not JSON, though a schema was given"
            raise MalformedAnswerError(msg, SERVICE, answer=text) from error
        properties = cast("Mapping[str, Any]", schema.get("properties", {}))
        if not isinstance(value, dict) or cast("dict[str, Any]", value).keys() != properties.keys():
            msg = f"{self.id} answered with JSON that is not an object with exactly: {', '.join(sorted(properties))}"
            raise MalformedAnswerError(msg, SERVICE, answer=text)


def _usage(usage: CompletionUsage | None) -> Usage | None:
    return None if usage is None else Usage(usage.prompt_tokens, usage.completion_tokens)
