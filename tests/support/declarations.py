"""Holding what a specification declares against what a module has."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType


def declared(source: str) -> dict[str, type]:
    """Return the classes of a text with declarations, whose annotations are never looked at."""
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(compile(f"from __future__ import annotations\n{source}", "declared", "exec"), namespace)
    return {name: kind for name, kind in namespace.items() if isinstance(kind, type) and kind.__module__ == __name__}


def differences(wanted: type, module: ModuleType) -> list[str]:
    """Return what a module's class of the same name lacks: fields and arguments by name, order and default."""
    ours: Any = getattr(module, wanted.__name__)
    told: list[str] = []
    known = _fields(ours)
    for name, default in _fields(wanted).items():
        if name not in known:
            told.append(f"{wanted.__name__}.{name} is missing")
        elif default is not MISSING and known[name] != default:
            told.append(f"{wanted.__name__}.{name} is {known[name]!r} by default, not {default!r}")
    if _is_record(wanted) and _is_record(ours) and list(known)[: len(_fields(wanted))] != list(_fields(wanted)):
        told.append(f"{wanted.__name__} has its fields in another order")
    for name, method in vars(wanted).items():
        if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")) and not _is_record(wanted):
            told += _arguments_missing(f"{wanted.__name__}.{name}", method, getattr(ours, name))
    return told


def _arguments_missing(name: str, wanted: Any, ours: Any) -> list[str]:
    if inspect.iscoroutinefunction(wanted) != inspect.iscoroutinefunction(ours):
        return [f"{name} is synchronous in one place alone"]
    given, known = (list(inspect.signature(function).parameters.values()) for function in (wanted, ours))
    told = [
        f"{name}: argument {one.name}={one.default} is {other.name}={other.default}"
        for one, other in zip(given, known, strict=False)
        if (one.name, one.default) != (other.name, other.default)
    ]
    needed = [one.name for one in known[len(given) :] if one.default is one.empty and one.kind != one.VAR_KEYWORD]
    return [*told, *[f"{name} needs {one} too" for one in needed]] if len(given) <= len(known) else [f"{name}: too few"]


def _fields(kind: Any) -> dict[str, Any]:
    if hasattr(kind, "model_fields"):
        return {name: MISSING if one.is_required() else one.default for name, one in kind.model_fields.items()}
    if not _is_record(kind):
        return {}
    made = {one.name: one.default_factory for one in fields(kind) if one.default_factory is not MISSING}
    return {one.name: made[one.name]() if one.name in made else one.default for one in fields(kind)}  # type: ignore[operator]


def _is_record(kind: Any) -> bool:
    return hasattr(kind, "__dataclass_fields__")
