"""A default that changes is another answer for everyone who never set it, so each one is a decision.

``defaults.txt`` lists those of the public functions, methods and classes. After a decision, write it anew with
``python tests/contract/test_defaults.py``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

LISTED = Path(__file__).with_name("defaults.txt")
MODULES = (
    "retrieval_core",
    "retrieval_core.types",
    "retrieval_core.ports",
    "retrieval_core.pipeline",
    "retrieval_core.run.observe",
)
STORES = {
    "memory": "Memory",
    "sqlite": "Sqlite",
    "lancedb": "LanceDB",
    "postgres": "Postgres",
    "qdrant": "Qdrant",
    "pinecone": "Pinecone",
}


def public_things() -> Iterator[tuple[str, Any]]:
    """Return what users import, by its full name."""
    for module in MODULES:
        for name in import_module(module).__all__:
            yield f"{module}.{name}", getattr(import_module(module), name)
    for module, name in STORES.items():
        path = f"retrieval_core.adapters.stores.{module}"
        yield f"{path}.{name}Store", getattr(import_module(path), f"{name}Store")


def has_signature(thing: Any) -> bool:
    """Return whether this is a function, or a class that is made with arguments of its own."""
    return inspect.isfunction(thing) or (inspect.isclass(thing) and not issubclass(thing, (Exception, dict)))


def callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Return public functions, classes and their public methods, by their full names."""
    for path, thing in public_things():
        if has_signature(thing):
            yield path, thing
        for name in dir(thing) if has_signature(thing) else ():
            static = inspect.getattr_static(thing, name)
            method: object = getattr(static, "__func__", static)
            if not name.startswith("_") and inspect.isfunction(method):
                yield f"{path}.{name}", method


def shown_default(default: object) -> str | None:
    """Return how a default is listed; None if it isn't a plain value."""
    if isinstance(default, frozenset):
        return f"{sorted(map(str, cast('frozenset[object]', default)))}"
    values = cast("tuple[object, ...]", default) if isinstance(default, tuple) else (default,)
    is_plain = all(isinstance(value, (bool, int, float, str)) for value in values)
    return f"{cast('object', default)!r}" if is_plain else None


def defaults() -> list[str]:
    """Return each public name that has defaults, with them."""
    lines = set[str]()
    for path, thing in callables():
        if getattr(thing, "__module__", "").startswith("retrieval_core"):
            parameters = inspect.signature(thing).parameters.values()
            shown = ((each.name, shown_default(each.default)) for each in parameters)
            lines.update(f"{path}({name}={default})" for name, default in shown if default is not None)
    return sorted(lines)


def test_defaults_stay() -> None:
    """Nobody gets another default without a decision."""
    assert defaults() == LISTED.read_text("utf-8").splitlines()


if __name__ == "__main__":
    LISTED.write_text("\n".join([*defaults(), ""]), "utf-8")
