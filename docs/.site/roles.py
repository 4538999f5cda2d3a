"""Shows roles such as ``:class:`~package.Name``` in docstrings as code: the site is Markdown, which has none."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`(~?)([^`]+)`")


class Roles(griffe.Extension):
    """Rewrites each docstring as soon as it is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Replace the roles of one object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = ROLE.sub(_as_code, obj.docstring.value)


def _as_code(role: re.Match[str]) -> str:
    name = role[2].rpartition(".")[2] if role[1] else role[2]
    return f"`{name}`"
