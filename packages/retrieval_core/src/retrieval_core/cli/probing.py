"""How ``retrieval doctor`` asks one part: in a bounded time, on an event loop of its own, without telling a secret."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING, Literal, TypeVar, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BaseModel, SecretStr

from retrieval_core.config import without_credentials, without_secrets
from retrieval_core.config.addresses import names_a_secret
from retrieval_core.errors import IndexNotFoundError, RetrievalError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.ports import LLM

T = TypeVar("T")

GRACE_SECONDS = 5.0
"""For letting go of what did not answer; after that it is left behind, since a thread cannot be cancelled."""
# Shorter ones would be taken out of words too, and servers of one's own are often given a word as the key. Adapters
# keep theirs to themselves whatever its length.
_SHORTEST_KEY = 8
_SHORTEST_PASSWORD = 4
SEE_LLM = "not looked at, as the language model cannot be used; see there"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; ``missing`` is optional and absent, ``wrong`` has to be mended."""

    subject: str
    verdict: Literal["ok", "missing", "wrong"]
    detail: str


class AbsentError(Exception):
    """Something optional is not there."""


def built_llm(config: RetrievalConfig) -> LLM:
    """Return the configured language model, not yet asked.

    Raises:
        AbsentError: There is none.
    """
    from retrieval_core.index.open import build_llm  # noqa: PLC0415

    llm = build_llm(config.llm)
    if llm is None:
        msg = "it needs a language model and is left out without one; set llm.kind"
        raise AbsentError(msg)
    return llm


def llm_for_a_stage(config: RetrievalConfig) -> LLM:
    """Return the language model of a stage; whether it answers is another finding."""
    try:
        return built_llm(config)
    except RetrievalError as error:
        raise AbsentError(SEE_LLM) from error


def made_by(kind: str) -> str:
    """Say of a part of the user's own that it is there."""
    return f"{kind} made it; it was not called"


def ask(seconds: float, call: Callable[[], Awaitable[T]], *parts: object) -> T:
    """Make one call on an event loop of its own, and close what was used there."""

    async def main() -> T:
        async with AsyncExitStack() as stack:
            for part in parts:
                if (close := getattr(part, "aclose", None)) is not None:
                    stack.push_async_callback(close)
            async with asyncio.timeout(seconds):
                return await call()

    return asyncio.run(main())


def bounded(subject: str, seconds: float, probe: Callable[[], str], secrets: frozenset[str]) -> Finding:
    """Run a probe in a thread and wait no longer than it may take; whatever goes wrong is a finding."""
    found: list[Finding] = []

    def finding(verdict: Literal["ok", "missing", "wrong"], detail: str) -> None:
        text = detail
        for secret in sorted(secrets, key=len, reverse=True):
            text = text.replace(secret, "[secret]")
        text = without_secrets(text) if verdict == "wrong" else without_credentials(text)
        found.append(Finding(subject, verdict, text))

    def work() -> None:
        try:
            finding("ok", probe())
        except (AbsentError, IndexNotFoundError) as error:
            finding("missing", str(error))
        except TimeoutError as error:
            finding("wrong", str(error) or _silence(seconds))
        except RetrievalError as error:
            finding("wrong", str(error))
        except Exception as error:  # noqa: BLE001 - of a factory, or of a library that a service needs
            finding("wrong", f"{type(error).__name__}: {error}")

    thread = Thread(target=work, name=f"retrieval-doctor-{subject}", daemon=True)
    thread.start()
    thread.join(seconds + GRACE_SECONDS)
    return found[0] if found else Finding(subject, "wrong", _silence(seconds))


def _silence(seconds: float) -> str:
    return f"no answer within {seconds:g} seconds; check the address, or try again if it is only starting up"


def secrets_of(config: RetrievalConfig) -> frozenset[str]:
    """Return all that must not be printed, in case that somebody else's message holds it."""
    return frozenset(_secrets_in(config))


def _secrets_in(value: object, name: str = "") -> Iterator[str]:
    """Yield what is a secret, however deep: its type says so, or within options the name that it stands under."""
    if isinstance(value, SecretStr):
        text = value.get_secret_value()
        yield from (one for one in (text,) if len(one) >= _SHORTEST_KEY)
        yield from (one for one in _passwords_in(text) if len(one) >= _SHORTEST_PASSWORD)
    elif isinstance(value, (BaseModel, Mapping)):
        for key, one in dict(cast("Mapping[str, object]", value)).items():
            yield from _secrets_in(one, f"{name}.{key}")
    elif isinstance(value, (list, tuple)):
        for one in cast("Sequence[object]", value):
            yield from _secrets_in(one, name)
    elif isinstance(value, str) and len(value) >= _SHORTEST_PASSWORD:
        _, _, within = name.partition(".options.")
        if names_a_secret(within) or "url" in within.lower():
            yield value


def _passwords_in(url: str) -> set[str]:
    try:
        parts = urlsplit(url)
        password = parts.password or ""
    except ValueError:
        return set()
    return {password, unquote(password), *(value for _, value in parse_qsl(parts.query))}
