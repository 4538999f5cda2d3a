"""Addresses of services: where they lead, and what must not show of them."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_CREDENTIALS = re.compile(r"(?<=://)[^\s'\"<>]*@")


def host_of(url: str) -> str:
    """Return host and port of an address over HTTP, the port where it is not the scheme's own.

    Raises:
        ValueError: It is no such address, or has parts that do not belong there. The message shows none of it.
    """
    if "@" in url:  # in a path too: a password with a slash that is not encoded ends there
        msg = "holds a user name or a password, which would show in messages; use api_key"
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
        msg = "holds a query (?…) or a fragment (#…); it is only where the paths of the protocol begin"
        raise ValueError(msg)
    return f"{host}:{port}" if port else host


def checked_host(host: str) -> str:
    """Return the address of an index, with a scheme or without.

    Raises:
        ValueError: It holds more than where the index is. The message shows none of it.
    """
    if any(sign in host for sign in "@?#"):
        msg = "must be the address of the index alone, without a user name, a password or a query"
        raise ValueError(msg)
    return host


def without_credentials(text: str) -> str:
    """Return text in which addresses show neither user nor password."""
    return _CREDENTIALS.sub("[secret]@", text)
