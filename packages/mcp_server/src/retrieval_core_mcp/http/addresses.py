"""Addresses whose answers nobody on the way can change."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit


def is_safe_address(url: str) -> bool:
    """Whether nobody on the way can change what comes from an address: HTTPS, or this machine."""
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return True
    if parts.scheme != "http" or not parts.hostname:
        return False
    try:
        return parts.hostname == "localhost" or ip_address(parts.hostname).is_loopback
    except ValueError:
        return False
