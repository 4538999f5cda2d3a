"""Connections to Cohere, or to another server that speaks its protocol, and the mapping of their errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from retrieval_core.adapters.vendors import VendorConnection
from retrieval_core.errors import MalformedAnswerError

if TYPE_CHECKING:
    import httpx
    from cohere import AsyncClientV2

    from retrieval_core.errors import ServiceError

SERVICE = "cohere"

# The deadline of a query bounds its calls. This only keeps work without a deadline from hanging for ever; it is the
# SDK's own default for an answer.
_SILENCE_SECONDS = 300.0
_MOST_CONNECTIONS = 1000
_MOST_IDLE_CONNECTIONS = 100


class CohereClient(NamedTuple):
    """The SDK has no public way to close the connections that it opens itself."""

    sdk: AsyncClientV2
    connections: httpx.AsyncClient


class CohereConnection(VendorConnection[CohereClient]):
    """A :class:`VendorConnection` to Cohere's protocol, whose paths begin with ``/v2``."""

    service: ClassVar[str] = SERVICE
    own_url: ClassVar[str] = "https://api.cohere.com"
    key_name: ClassVar[str] = "CO_API_KEY"

    def _make(self, key: str) -> CohereClient:
        import httpx  # noqa: PLC0415 - comes with the extra
        from cohere import AsyncClientV2  # noqa: PLC0415 - an extra

        connections = httpx.AsyncClient(
            timeout=_SILENCE_SECONDS,
            limits=httpx.Limits(max_connections=_MOST_CONNECTIONS, max_keepalive_connections=_MOST_IDLE_CONNECTIONS),
            follow_redirects=True,
        )
        return CohereClient(
            AsyncClientV2(key, base_url=self._base_url, max_retries=0, httpx_client=connections), connections
        )

    async def _close(self, client: CohereClient) -> None:
        await client.connections.aclose()

    def _mapped(self, error: Exception) -> ServiceError | None:
        import httpx  # noqa: PLC0415 - loaded with the client
        from cohere.core.api_error import ApiError  # noqa: PLC0415 - loaded with the client
        from cohere.core.parse_error import ParsingError  # noqa: PLC0415 - loaded with the client

        match error:
            case httpx.TimeoutException():
                return self._silent()
            case httpx.TransportError():
                return self._unreachable(error)
            case ApiError() if error.status_code is not None and not 200 <= error.status_code < 300:
                return self._of_status(error.status_code, error.body, error.headers or {})
            # The SDK does not check what it reads: an answer of another shape fails wherever it is used first.
            case ApiError() | ParsingError() | AttributeError() | TypeError() | ValueError():
                msg = f"{self._host} answered with something that is not JSON, or not what the protocol says"
                return MalformedAnswerError(msg, SERVICE)
            case _:
                return None
