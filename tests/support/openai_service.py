"""OpenAI's embeddings and chat completions as its API reference describes them, for the real SDK to talk to.

It shares no code with the adapters, and refuses what the reference does not allow, as the vendor does. Its tokens are
bytes, the shortest tokens that the vendor's vocabularies can make.
"""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.testing.fakes import FakeEmbedder
from support.wire_server import Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.wire_server import Request

KEY = "sk-test-0123456789"
EMBEDDING_MODELS = {"text-embedding-3-large": 3072, "text-embedding-3-small": 1536, "text-embedding-ada-002": 1536}
CHAT_MODELS = frozenset({"gpt-4.1-mini", "o4-mini", "gpt-5-mini"})
REASONING_MODELS = frozenset({"o4-mini", "gpt-5-mini"})
EMBEDDING_FIELDS = frozenset({"model", "input", "dimensions", "encoding_format", "user"})
CHAT_FIELDS = frozenset(
    {"model", "messages", "temperature", "max_tokens", "max_completion_tokens", "response_format", "stream"}
)


class RefusedError(Exception):
    """A request that the vendor answers with an error."""

    def __init__(self, status: int, message: str, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.response = error(status, message, code, param)


def error(status: int, message: str, code: str | None = None, param: str | None = None) -> Response:
    """Return an error as the vendor writes it."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return Response(status, {"error": {"message": message, "type": kind, "param": param, "code": code}})


def echo(request: dict[str, Any]) -> str:
    """Answer with the last message, or with an object of the schema whose texts are that message."""
    said: str = request["messages"][-1]["content"]
    if "response_format" not in request:
        return said
    schema = request["response_format"]["json_schema"]["schema"]
    kinds = {"string": said, "number": 0.5, "integer": 1, "boolean": True}
    return json.dumps({name: kinds[part["type"]] for name, part in schema["properties"].items()})


@dataclass
class OpenAIService:
    """Answers requests below ``/v1``.

    Attributes:
        answer: What the model says to a chat completion's request.
        message: Fields of the answer's message in place of the usual ones.
        finish_reason: Why the answer ends.
        key: What clients must authorise themselves with; ``None`` for anything.
        dimensions: Further embedding models, by their dimension.
        floats: Whether vectors are lists of numbers even where base64 is asked for, as some other servers answer.
    """

    answer: Callable[[dict[str, Any]], str] = echo
    message: dict[str, Any] = field(default_factory=dict[str, Any])
    finish_reason: str | None = "stop"
    key: str | None = KEY
    dimensions: dict[str, int] = field(default_factory=dict[str, int])
    floats: bool = False

    def __call__(self, request: Request) -> Response:
        try:
            self._authorise(request)
            if request.method == "POST" and request.path == "/v1/embeddings":
                return self._embed(request.json())
            if request.method == "POST" and request.path == "/v1/chat/completions":
                return self._complete(request.json())
            return error(404, f"Invalid URL ({request.method} {request.path})")
        except RefusedError as refused:
            return refused.response

    def _authorise(self, request: Request) -> None:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.key is not None and given != self.key:
            message = f"Incorrect API key provided: {given}. You can find your API key at your account page."
            raise RefusedError(401, message, "invalid_api_key")

    def _embed(self, asked: dict[str, Any]) -> Response:
        _known_fields(asked, EMBEDDING_FIELDS)
        model, texts = asked["model"], asked["input"]
        full = (EMBEDDING_MODELS | self.dimensions).get(model)
        if full is None:
            raise RefusedError(
                404, f"The model `{model}` does not exist or you do not have access to it.", "model_not_found"
            )
        if "dimensions" in asked and not model.startswith("text-embedding-3"):
            raise RefusedError(400, "This model does not support specifying dimensions.", param="dimensions")
        dimension = asked.get("dimensions", full)
        if not 1 <= dimension <= full:
            raise RefusedError(
                400, f"Invalid value for 'dimensions' = {dimension}. Must be less than or equal to {full}."
            )
        texts = [texts] if isinstance(texts, str) else texts
        _check_inputs(texts, is_bounded=model in EMBEDDING_MODELS)
        embedder = FakeEmbedder(dimension)
        data = [
            {"object": "embedding", "index": row, "embedding": self._vector(embedder, text, asked)}
            for row, text in enumerate(texts)
        ]
        tokens = sum(len(text.encode()) for text in texts)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        # The order is not promised, so the first comes last.
        return Response(body={"object": "list", "data": data[1:] + data[:1], "model": model, "usage": usage})

    def _vector(self, embedder: FakeEmbedder, text: str, asked: dict[str, Any]) -> str | list[float]:
        numbers = [float(number) for number in embedder.vector(text)]
        if asked.get("encoding_format", "float") == "float" or self.floats:
            return numbers
        return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()

    def _complete(self, asked: dict[str, Any]) -> Response:
        _known_fields(asked, CHAT_FIELDS)
        model = asked["model"]
        if self.key is not None and model not in CHAT_MODELS:
            raise RefusedError(
                404, f"The model `{model}` does not exist or you do not have access to it.", "model_not_found"
            )
        _check_parameters(asked)
        text = self.answer(asked)
        if asked.get("stream"):
            return self._streamed(model, text)
        message = {"role": "assistant", "content": text, "refusal": None, **self.message}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.finish_reason}
        asked_tokens = sum(len(part["content"].split()) for part in asked["messages"])
        tokens = len(text.split())
        usage = {"prompt_tokens": asked_tokens, "completion_tokens": tokens, "total_tokens": asked_tokens + tokens}
        whole = {"object": "chat.completion", "choices": [choice], "usage": usage}
        return Response(body={"id": "chatcmpl-1", "created": 1, "model": model, **whole})

    def _streamed(self, model: str, text: str) -> Response:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": piece} for piece in text.split(" ")] if not self.message else [self.message]
        for delta in deltas[2:]:
            delta["content"] = f" {delta['content']}"
        common = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}
        events: list[dict[str, Any]] = [
            {**common, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
        ]
        events.append({**common, "choices": [{"index": 0, "delta": {}, "finish_reason": self.finish_reason}]})
        return Response(chunks=[*(event(json.dumps(part)) for part in events), event("[DONE]")])


def event(data: str) -> bytes:
    """Return a server-sent event."""
    return f"data: {data}\n\n".encode()


def broken_off(pieces: int, *data: str) -> Callable[[Response], Response]:
    """Return a change of a stream: behind so many pieces of its text come these events, and then its end.

    The connection stays in good order. No data at all is a stream without a reason to end and without ``[DONE]``.
    """
    return lambda response: replace(response, chunks=[*(response.chunks or ())[: 1 + pieces], *map(event, data)])


def without_done(response: Response) -> Response:
    """Return a stream that says why it ends, and then just does."""
    return replace(response, chunks=[*(response.chunks or ())[:-1]])


def _known_fields(asked: dict[str, Any], known: frozenset[str]) -> None:
    if unknown := asked.keys() - known:
        raise RefusedError(400, f"Unrecognized request arguments supplied: {', '.join(sorted(unknown))}")


def _check_inputs(texts: Any, *, is_bounded: bool) -> None:
    if not texts or not isinstance(texts, list):
        raise RefusedError(400, "'$.input' is invalid.")
    strings = [text for text in cast("list[object]", texts) if isinstance(text, str)]
    if len(strings) != len(cast("list[object]", texts)) or not all(strings):
        raise RefusedError(400, "'$.input' is invalid. It cannot be an empty string.")
    if len(strings) > 2048:
        raise RefusedError(400, "'$.input' is invalid. Please check the API reference: at most 2048 inputs.")
    tokens = [len(text.encode()) for text in strings]
    if is_bounded and max(tokens) > 8192:
        raise RefusedError(
            400, f"This model's maximum context length is 8192 tokens, however you requested {max(tokens)}."
        )
    if is_bounded and sum(tokens) > 300_000:
        raise RefusedError(
            400, "Requested tokens exceed the max of 300000 tokens per request", "max_tokens_per_request"
        )


def _check_parameters(asked: dict[str, Any]) -> None:
    if asked["model"] in REASONING_MODELS:
        if "max_tokens" in asked:
            message = "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
            raise RefusedError(400, f"Unsupported parameter: {message}", "unsupported_parameter", "max_tokens")
        if asked.get("temperature", 1) != 1:
            message = "'temperature' does not support 0 with this model. Only the default (1) value is supported."
            raise RefusedError(400, f"Unsupported value: {message}", "unsupported_value", "temperature")
    if (wanted := asked.get("response_format")) is not None:
        schema = wanted["json_schema"]["schema"]
        is_strict = schema.get("additionalProperties") is False and [*schema["properties"]] == schema.get("required")
        if wanted["type"] != "json_schema" or not wanted["json_schema"]["strict"] or not is_strict:
            raise RefusedError(400, f"Invalid schema for response_format '{wanted['json_schema']['name']}'")
