"""The base of all ports: what an author writes is called in one place, and its answer is checked once."""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC
from contextvars import ContextVar
from math import isfinite
from numbers import Real
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard, TypeVar, cast

from retrieval_core.errors import InvalidParameterError, UnusableAnswerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

T = TypeVar("T")
F = TypeVar("F", bound="Callable[..., object]")
P = TypeVar("P", bound="Plugin")

PLUGIN_CALLER: ContextVar[Callable[..., Awaitable[Any]] | None] = ContextVar("plugin_caller", default=None)
"""Calls what an author wrote, for whoever bounds the call of the port in time; ``None`` if nobody does."""


class Plugin(ABC):
    """The base of all ports. A subclass of :class:`~retrieval_core.ports.Reranker`, for example, defines ``_score()``.

    The public methods call them: coroutine functions are awaited, ordinary functions run in a thread. They check what
    comes back, so that nobody else has to. A plug-in may have these too:

    - ``is_loaded`` and a coroutine method ``load()``: it is loaded before the first query that needs it;
    - ``aclose()``: it is called when the index is closed;
    - :meth:`probe`: it is called by ``retrieval doctor``.

    Attributes:
        id: Names model and settings: two plug-ins with the same id give the same answers. An attribute or a property.
            Results of a plug-in without one are not cached.
        port_role: Its name in errors.
        port_attributes: Names of the attributes that each plug-in of the port must have.
        port_calls: The public methods that check, each of which calls the method of its name with an underscore.
        port_optional: Names of the optional methods, which ``capabilities`` lists if a plug-in has them.
        port_advice: Ends the message about an object that lacks something.
    """

    id: Any  # str; with that type no property could override it
    port_role: ClassVar[str] = "the plug-in"
    port_attributes: ClassVar[tuple[str, ...]] = ()
    port_calls: ClassVar[tuple[str, ...]] = ()
    port_optional: ClassVar[tuple[str, ...]] = ()
    port_advice: ClassVar[str] = "see retrieval_core.ports"

    @property
    def capabilities(self) -> frozenset[str]:
        """Names of the port's optional methods that this plug-in has."""
        return frozenset(name for name in self.port_optional if not _is_default(self, name, self))

    async def probe(self) -> str:
        """Make the smallest call that shows whether the plug-in works; ``retrieval doctor`` prints the result.

        Returns:
            A sentence such as ``my-model scores chunks``; blank if nothing was called.

        Raises:
            RetrievalError: It does not work; the message has what to do. An ``UnsupportedError`` or an
                ``IndexNotFoundError`` means that something optional is not set up, which is no problem.
        """
        return ""

    def _refuse(self, problem: str) -> UnusableAnswerError:
        """Return the error for an answer that can't be used."""
        return UnusableAnswerError(f"the answer of {self.port_role} cannot be used: {problem}")

    def _expect(self, answer: object, kind: type[T]) -> T:
        """Return an answer that is of a kind.

        Raises:
            UnusableAnswerError: It is not.
        """
        if isinstance(answer, kind):
            return answer
        raise self._refuse(f"it gave {answer!r:.80}, which is no {kind.__name__}")


def _is_default(owner: object, name: str, port: Plugin | type[Plugin]) -> bool:
    """Return whether a plug-in, or its class, has nothing but the port's own version of an optional method."""
    method = getattr(owner, _written(name) if name in port.port_calls else name)
    return getattr(method, "is_default", False) is True  # a mock has every attribute


def _written(name: str) -> str:
    """Return the name of the method that an author writes for a public one."""
    return f"_{name.strip('_')}"


def default(method: F) -> F:
    """Mark what a port has in place of an optional method that its subclass does not define."""
    method.is_default = True  # type: ignore[attr-defined]
    return method


class BatchPlugin(Plugin):
    """A plug-in that gets several texts in a call.

    Attributes:
        batch_size: The most texts of one call, at least 1.
    """

    batch_size: Any  # int
    port_attributes = ("batch_size",)


def calls_plugin(method: F) -> F:
    """Mark a method of a port that calls what an author wrote, and checks what comes back."""
    method.calls_plugin = True  # type: ignore[attr-defined]
    return method


async def call_plugin(function: Callable[..., Awaitable[T] | T], /, *args: object) -> T:
    """Call what an author wrote: a coroutine function is awaited, an ordinary function runs in a thread."""
    caller = PLUGIN_CALLER.get()
    if caller is not None:
        PLUGIN_CALLER.set(None)  # it bounds this call, and with it those that this call makes
        return await caller(function, *args)
    is_async = inspect.iscoroutinefunction(function)
    answer: Any = function(*args) if is_async else await asyncio.to_thread(function, *args)
    return await answer if inspect.isawaitable(answer) else answer


def as_plugin(given: object, port: type[P], name: str | None = None) -> P:
    """Return an object as an instance of a port.

    An instance of a subclass is returned as it is. Any other object with the port's public methods is wrapped; so is an
    instance that overrides one of them, or whose class does. The wrapper has all attributes of the object, which is in
    its attribute ``wrapped``.

    Args:
        name: The argument's name, for the error. Default: the port's.

    Raises:
        InvalidParameterError: It lacks a method or an attribute of the port, such as ``id``; or it is a class.

    Example::

        reranker = as_plugin(MyReranker(), Reranker)
    """
    needed = (*port.port_attributes, *(call for call in port.port_calls if call not in port.port_optional))
    check_members(given, needed, name or port.port_role.removeprefix("the "), port.port_advice)
    if isinstance(given, port) and not any(
        getattr(type(given), call) is not getattr(port, call) or call in vars(given) for call in port.port_calls
    ):
        return given
    return cast("P", _wrapper_of(type(given), dir(given), port)(given))


def as_optional(given: object, port: type[P], name: str | None = None) -> P | None:
    """Return an object as :func:`as_plugin` does; ``None`` if there is none."""
    return None if given is None else as_plugin(given, port, name)


def check_members(given: object, needed: Sequence[str], name: str, advice: str) -> None:
    """Refuse an object that lacks an attribute or a method. Its value is not shown, since it may be a secret.

    Args:
        needed: The attributes. Properties are not evaluated, as they may load a model.
        name: The argument's name.
        advice: Ends the message.

    Raises:
        InvalidParameterError: It lacks one, or it is a class.
    """
    kind: type = given if isinstance(given, type) else type(given)
    missing = [one for one in needed if inspect.getattr_static(given, one, None) is None and not hasattr(given, one)]
    if kind is not given and not missing:
        return
    *first, last = needed
    msg = f"{name} must be an object with {', '.join(first)}{' and ' if first else ''}{last}; "
    path = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    if kind is given:
        msg += f"got the class {path}. Give an instance of it; {advice}"
    else:
        msg += f"the given {path} has no {', '.join(missing)}. To fix it: {advice}"
    raise InvalidParameterError(msg)


def given_as(plugin: object) -> Any:
    """Return the object that :func:`as_plugin` was called with."""
    return plugin.wrapped if isinstance(plugin, Wrapper) else plugin


class Wrapper:
    """Mixed into a port: its methods are those of another object."""

    def __init__(self, wrapped: object) -> None:
        self.wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        if name == "wrapped":  # of a copy that is being made
            raise AttributeError(name)
        return getattr(self.wrapped, name)

    def __repr__(self) -> str:
        return repr(self.wrapped)


def _wrapper_of(kind: type, names: Sequence[str], port: type[Plugin]) -> Callable[[object], object]:
    if issubclass(kind, port):  # what it has from the port is no optional method of the plug-in
        inherited = {name for name in port.port_optional if getattr(kind, name) is getattr(port, name)}
        names = [name for name in names if name not in inherited or not _is_default(kind, name, port)]
    own: dict[str, Any] = {
        _written(name): property(attrgetter(f"wrapped.{name}"))
        for name in port.port_calls
        if name in names or name not in port.port_optional
    }
    # Its attributes, and those that the port requires: a missing one fails as on the object itself.
    for name in {*names, *port.port_attributes} - {*port.port_calls, *_OF_EACH, "wrapped"}:
        if not name.startswith("_"):
            own[name] = property(attrgetter(f"wrapped.{name}"))
    return type(f"{port.__name__}Of{kind.__name__}", (Wrapper, port), own)


_OF_EACH = vars(Plugin).keys() - {"probe"}
"""What a wrapper has itself: everything of a plug-in that an author does not write."""


def are(items: object, fits: Callable[[Any], bool]) -> bool:
    """Return whether this is a tuple or a list of items that fit."""
    return isinstance(items, (tuple, list)) and all(map(fits, cast("Sequence[object]", items)))


def is_text(value: object) -> TypeGuard[str]:
    """Return whether this is text that is not blank."""
    return isinstance(value, str) and bool(value.strip())


def is_finite(value: Any) -> bool:
    """Return whether this is a finite number."""
    if type(value) is float:  # as nearly all are; asking what else is a number takes many times as long
        return isfinite(value)
    try:
        return isinstance(value, Real) and isfinite(value)
    except OverflowError:
        return False
