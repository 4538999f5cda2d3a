"""Addresses of services: where they lead, and what must not show of them; and what else looks like a secret."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_CREDENTIALS = re.compile(r"(?<=://)[^\s'\"<>]*@")
_SECRET_NAME = "(?i:key|token|secret|pass|pwd|sig|auth|cred)"  # noqa: S105 - no password
_PARAMETER = re.compile(rf"([?&][^=&\s]*{_SECRET_NAME}[^=&\s]*=)[^&\s'\"<>#]+")
_RUN = re.compile(r"[A-Za-z0-9_+=~-]{12,}")
_BEGINNING = re.compile(r"(?i)(sk|pk|rk|pcsk|gsk|hf|ghp|gho|glpat|github_pat|xox[a-z]|akia|aiza)[-_a-z0-9]")
"""How the keys of many services begin."""
_LONG_PART, _LONGEST_NAME = 8, 15
"""Characters from which on what mixes digits with letters of both cases, or of one, is taken for a key."""


def host_of(url: str) -> str:
    """Return the host of an HTTP address, with the port if it is not the scheme's default.

    Raises:
        ValueError: It is no such address, or has parts that do not belong there. The message shows none of it.
    """
    if "@" in url:  # in a path too: a password with a slash that is not encoded ends there
        msg = "contains a user name or a password, which messages would show; use api_key"
        raise ValueError(msg)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = None, None, None
    if parts is None or not host or parts.scheme not in {"http", "https"}:
        msg = "must be an address such as http://localhost:11434/v1"
        raise ValueError(msg) from None
    if parts.query or parts.fragment:
        msg = "contains a query (?…) or a fragment (#…); give only the base address of the API"
        raise ValueError(msg)
    return f"{host}:{port}" if port else host


def checked_host(host: str) -> str:
    """Return the address of an index, with a scheme or without.

    Raises:
        ValueError: It contains more than the address. The message shows none of it.
    """
    if any(sign in host for sign in "@?#"):
        msg = "must be only the address of the index, without user name, password or query"
        raise ValueError(msg)
    return host


def names_a_secret(name: str) -> bool:
    """Whether what stands under a name, such as an option or a parameter of an address, is to be kept secret."""
    return re.search(_SECRET_NAME, name) is not None


def without_credentials(text: str) -> str:
    """Return text in which addresses show neither user nor password."""
    return _CREDENTIALS.sub("[secret]@", text)


def without_secrets(text: str) -> str:
    """Return text without anything that looks like a secret: credentials in addresses, and strings that look like keys.

    Use it for messages. Known secrets are never shown; this function hides those in unexpected places.
    """
    text = _PARAMETER.sub(r"\1[secret]", without_credentials(text))
    return _RUN.sub(lambda run: "[secret]" if _looks_like_a_key(run[0]) else run[0], text)


def _looks_like_a_key(run: str) -> bool:
    """Whether a run without blanks is no name: it begins as keys do, or a part of it mixes digits and letters long."""
    begins_so = _BEGINNING.match(run.lstrip("-")) is not None
    return (begins_so and _has_both(run)) or any(map(_is_mixed, re.split("[-_+=~]", run)))


def _has_both(part: str) -> bool:
    return any(map(str.isdigit, part)) and any(map(str.isalpha, part))


def _is_mixed(part: str) -> bool:
    if not _has_both(part):
        return False
    has_both_cases = part != part.lower() and part != part.upper()
    return len(part) >= _LONG_PART if has_both_cases else len(part) > _LONGEST_NAME
