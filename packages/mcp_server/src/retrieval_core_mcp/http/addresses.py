"""Addresses whose answers nobody on the way can change."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit


def is_safe_address(url: str) -> bool:
    """Whether nobody on the way can change what comes from an address: HTTPS, or this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_this_machine(host)))


def is_this_machine(host: str) -> bool:
    """Whether only programs on this machine reach a host."""
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
