"""Connections to OpenAI, or to another server that speaks its protocol, and the mapping of their errors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar

from retrieval_core.adapters.vendors import VendorConnection
from retrieval_core.errors import MalformedAnswerError, ServiceError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

SERVICE = "openai"

# The deadline of a query bounds its calls. This only keeps work without a deadline from hanging for ever; it is the
# SDK's own default for an answer.
_SILENCE_SECONDS = 600.0


class OpenAIConnection(VendorConnection["AsyncOpenAI"]):
    """A :class:`VendorConnection` to OpenAI's protocol."""

    service: ClassVar[str] = SERVICE
    own_url: ClassVar[str] = "https://api.openai.com/v1"
    key_name: ClassVar[str] = "OPENAI_API_KEY"

    def _make(self, key: str) -> AsyncOpenAI:
        import httpx  # noqa: PLC0415 - comes with the extra
        import openai  # noqa: PLC0415 - an extra

        timeout = httpx.Timeout(_SILENCE_SECONDS)
        return openai.AsyncOpenAI(
            api_key=key,
            base_url=self._base_url,
            max_retries=0,
            timeout=timeout,
            http_client=httpx.AsyncClient(
                timeout=timeout, limits=openai.DEFAULT_CONNECTION_LIMITS, follow_redirects=True
            ),
        )

    async def _close(self, client: AsyncOpenAI) -> None:
        await client.close()

    def _mapped(self, error: Exception) -> ServiceError | None:
        import httpx  # noqa: PLC0415 - loaded with the client
        import openai  # noqa: PLC0415 - loaded with the client

        match error:
            case openai.APITimeoutError() | httpx.TimeoutException():
                return self._silent()
            case openai.APIConnectionError() | httpx.TransportError():
                return self._unreachable(error.__cause__ or error)
            case openai.APIStatusError():
                return self._of_status(error.status_code, error.body, error.response.headers)
            case openai.APIError():
                msg = f"{self._host} broke off with an error: {self.said(error.message)}"
                return ServiceError(msg, SERVICE)
            case json.JSONDecodeError() | UnicodeDecodeError():
                msg = f"{self._host} answered with something that is not JSON"
                return MalformedAnswerError(msg, SERVICE)
            case _:
                return None
