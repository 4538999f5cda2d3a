"""Methods that are written once: their synchronous twins, and the options in their signatures and help."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from inspect import Parameter, cleandoc, iscoroutinefunction, signature
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from retrieval_core.run.sync import in_step

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
    from types import EllipsisType

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])

_AWAITED = re.compile(r"\(await (\w+\.)a(\w+\([^()]*\))\)|(?:await (\w+\.)a|async )|(?<= in )(\w+\.)a")
_ENTRY = re.compile(r"^    (\w+): ", re.MULTILINE)


@overload
def sync_twin(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
    *,
    seconds: float | EllipsisType | None = ...,
    begins_here: bool = False,
) -> Callable[Concatenate[S, P], T]: ...


@overload
def sync_twin(method: Callable[Concatenate[S, P], AsyncGenerator[T]]) -> Callable[Concatenate[S, P], Generator[T]]: ...


def sync_twin(method: Any, *, seconds: float | EllipsisType | None = ..., begins_here: bool = False) -> Any:
    """Return the synchronous twin of an asynchronous method, with its signature and docstring.

    The twin calls the method of the same name, also if a subclass overrides it. Calls in the docstring's example are
    made synchronous.

    Args:
        method: A coroutine function, or a function that returns an asynchronous generator. Its name begins with ``a``,
            and its object has a ``sync``, a :class:`~retrieval_core.run.sync.SyncBridge`.
        seconds: How long a call may take; ``None`` for as long as it needs. Default: as long as a query may.
        begins_here: Whether a call begins on the caller's thread, without an event loop, see
            :meth:`~retrieval_core.run.sync.SyncBridge.run_here`. Default: ``False``.

    Example::

        class Greeter:
            async def agreet(self, name: str) -> str: ...

            greet = sync_twin(agreet)
    """
    name: str = method.__name__
    if begins_here:

        def twin(self: Any, *args: Any, **kwargs: Any) -> Any:
            return self.sync.run_here(getattr(self, name)(*args, **kwargs))

    elif not iscoroutinefunction(method):

        def twin(self: Any, *args: Any, **kwargs: Any) -> Any:
            return in_step(self.sync, getattr(self, name)(*args, **kwargs))

    else:

        def twin(self: Any, *args: Any, **kwargs: Any) -> Any:
            return self.sync.run(getattr(self, name)(*args, **kwargs), seconds)

    described = signature(method)
    result = str(described.return_annotation).replace("AsyncGenerator", "Generator")
    twin.__name__ = name.removeprefix("a")
    twin.__qualname__ = f"{method.__qualname__.rpartition('.')[0]}.{twin.__name__}"
    twin.__module__ = method.__module__
    twin.__annotations__ = {**method.__annotations__, "return": result}
    twin.__signature__ = described.replace(return_annotation=result)  # type: ignore[attr-defined] - inspect reads it
    if method.__doc__:
        text, example, code = method.__doc__.partition("Example::")
        twin.__doc__ = text + example + _AWAITED.sub(_without_waiting, code)
    return twin


def _without_waiting(found: re.Match[str]) -> str:
    call = f"{found[1]}{found[2]}" if found[1] else None
    return call or found[3] or found[4] or ""


def with_options(*options: type, without: Sequence[str] = ()) -> Callable[[Method], Method]:
    """Show each option of a method by its name in its signature and its help, instead of ``**options``.

    Args:
        options: The typed dictionaries of the options. The section ``Attributes`` of their docstrings explains each.
        without: Options that the method does not have.
    """
    explained = {name: text for each in options for name, text in _entries(each.__doc__ or "")}
    annotations = {name: kind for each in options for name, kind in each.__annotations__.items() if name not in without}
    explanations = [explained[name] for name in annotations if name in explained]
    shown = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind.__forward_arg__)
        for name, kind in annotations.items()
    ]

    def decorate(method: Method) -> Method:
        described = signature(method)
        own = [each for each in described.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
        method.__signature__ = described.replace(parameters=own + shown)  # type: ignore[attr-defined] - inspect reads it
        if method.__doc__:
            lines = cleandoc(method.__doc__).split("\n")
            place = next(number for number, line in enumerate(lines) if line.startswith("    **options: "))
            method.__doc__ = "\n".join([*lines[:place], *explanations, *lines[place + 1 :]])
        return method

    return decorate


def _entries(doc: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each attribute that a docstring explains, and its entry."""
    section = cleandoc(doc).partition("Attributes:\n")[2].partition("\n\n")[0]
    entries = _ENTRY.split(section)
    for name, text in zip(entries[1::2], entries[2::2], strict=True):
        yield name, f"    {name}: {text.rstrip()}"
