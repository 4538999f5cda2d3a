"""Makes the docstrings of the code fit the site: roles become code, and signatures list each option.

The site is Markdown, which has no roles such as ``:class:`~package.Name```. It reads the code without running it, and
so finds neither the options of a query nor the methods that are made of their asynchronous twins.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any

import griffe

ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`(~?)([^`]+)`")


class Roles(griffe.Extension):
    """Rewrites each docstring as soon as it is read, and completes the methods of each class."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Replace the roles of one object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = ROLE.sub(_as_code, obj.docstring.value)

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Show methods with the signatures and docstrings that they have when the code runs."""
        written = [name for name, member in cls.members.items() if member.is_attribute or member.is_function]
        if not written or not cls.module.path.startswith("retrieval_core"):
            return
        running = vars(getattr(import_module(cls.module.path), cls.name, object))
        for name in written:
            method = running.get(name)
            if not inspect.isfunction(method) or "__signature__" not in vars(method):
                continue
            signature = inspect.signature(method)
            shown = griffe.Function(
                name,
                lineno=cls.members[name].lineno,
                parameters=griffe.Parameters(*map(_as_parameter, signature.parameters.values())),
                returns=str(signature.return_annotation),
                docstring=griffe.Docstring(ROLE.sub(_as_code, inspect.getdoc(method) or "")),
                parent=cls,
            )
            if inspect.iscoroutinefunction(method):
                shown.labels.add("async")
            cls.set_member(name, shown)


def _as_parameter(parameter: inspect.Parameter) -> griffe.Parameter:
    kinds = {
        inspect.Parameter.KEYWORD_ONLY: griffe.ParameterKind.keyword_only,
        inspect.Parameter.POSITIONAL_OR_KEYWORD: griffe.ParameterKind.positional_or_keyword,
    }
    return griffe.Parameter(
        parameter.name,
        kind=kinds[parameter.kind],
        annotation=None if parameter.annotation is parameter.empty else str(parameter.annotation),
        default=None if parameter.default is parameter.empty else repr(parameter.default),
    )


def _as_code(role: re.Match[str]) -> str:
    name = role[2].rpartition(".")[2] if role[1] else role[2]
    return f"`{name}`"
