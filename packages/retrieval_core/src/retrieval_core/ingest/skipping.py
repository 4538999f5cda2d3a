"""Files in folders that are not read: secrets, and code that would be found in place of what people look for.

A file that is named itself is always read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from retrieval_core.ingest.languages import language_of

if TYPE_CHECKING:
    from pathlib import Path, PurePath

MOST_BYTES = 1_000_000
"""The longest file of code or structured text that is read."""
LONGEST_LINE = 5_000
"""Bytes of a line; longer ones are minified code, or data."""
_PACKAGES = frozenset({"bower_components", "node_modules"})
_VENDORED = frozenset({"third-party", "third_party", "vendor", "vendored", "vendors", *_PACKAGES})
_BUILT = frozenset({"dist"})
_LOCKED = frozenset({"npm-shrinkwrap.json", "package-lock.json", "packages.lock.json", "pnpm-lock.yaml"})
_MINIFIED = re.compile(r"[-.]min\.\w+$")
_SETTINGS = "retrieval.toml"
_SECRET = re.compile(
    r"(?:(?:credentials?|secrets?|service[-_]account|client_secret\S*)(?:\.[\w-]+)?"
    r"\.(?:cfg|conf|csv|ini|json|jsonc|properties|toml|txt|xml|ya?ml)|.*\.tfvars(?:\.json)?|htpasswd)"
)
_PRIVATE_KEY = re.compile(rb"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----(?:\\[nr]|\s)+[A-Za-z0-9+/=]{40}")
_KEY_FILE = re.compile(rb"\s*-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----")
_STRUCTURED = frozenset({"ini", "json", "toml", "xml", "yaml"})
_GENERATED = re.compile(rb"@generated\b|\bdo not edit\b", re.IGNORECASE)
_HEAD = 1_000


def is_package_folder(name: str) -> bool:
    """Return whether a folder of this name has nothing but the packages that a package manager installed."""
    return name in _PACKAGES


def is_secret(path: PurePath) -> bool:
    """Return whether a file of this name holds settings of this library, which may contain keys, or other secrets."""
    name = path.name.lower()
    return name == _SETTINGS or _SECRET.fullmatch(name) is not None


def skip_by_name(below: PurePath) -> str | None:
    """Return why a file is skipped; ``None`` if it is not.

    Args:
        below: Its path below the folder that is indexed.
    """
    if language_of(below) is None:
        return None
    name, folders = below.name.lower(), {part.lower() for part in below.parts[:-1]}
    if not folders.isdisjoint(_VENDORED):
        return "vendored"
    if not folders.isdisjoint(_BUILT):
        return "generated"
    if name in _LOCKED:
        return "lock file"
    return "minified" if _MINIFIED.search(name) else None


def skip_by_content(path: Path) -> str | None:
    """Return why a file is skipped: it is a private key, or code that nobody wrote or reads; ``None`` if it is not.

    Raises:
        OSError: It can't be read.
    """
    language = language_of(path)
    with path.open("rb") as file:
        if _KEY_FILE.match(file.read(_HEAD)):  # whatever its name, such as id_rsa.txt
            return "secrets"
    if language is None:
        return None
    if path.stat().st_size > MOST_BYTES:
        return "larger than 1 MB"
    content = path.read_bytes()
    if language in _STRUCTURED and _PRIVATE_KEY.search(content):
        return "secrets"
    if _GENERATED.search(content[:_HEAD]):
        return "generated"
    return "minified" if max(map(len, content.split(b"\n"))) >= LONGEST_LINE else None
