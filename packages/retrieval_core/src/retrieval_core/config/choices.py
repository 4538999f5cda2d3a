"""Settings that are for one choice of another setting, and do nothing as long as nothing was chosen there."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel

from retrieval_core.config.adapters import Use
from retrieval_core.config.model import RetrievalConfig

if TYPE_CHECKING:
    from collections.abc import Iterator


def _uses(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, Use]]:
    for name, field in model.model_fields.items():
        yield from ((f"{above}{name}", one) for one in field.metadata if isinstance(one, Use))
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _uses(field.annotation, f"{above}{name}.")


USES: Mapping[str, Use] = MappingProxyType(dict(_uses(RetrievalConfig)))
"""By setting or section, what the tree of settings says that it is for."""
CHOSEN_BY: Mapping[str, tuple[str, str]] = MappingProxyType(
    {key: (f"{key.rpartition('.')[0]}.{use.chosen_by}", use.choice) for key, use in USES.items() if use.choice}
)
"""By setting or section, the setting that decides whether it is used, and the choice that it is for."""
_CHOOSE_TOO: Mapping[str, str] = MappingProxyType({"reranker.kind": "reranker.fallbacks"})
"""Settings that may make the choice as well."""


def without_choice(tree: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each setting that does nothing, since what it is for was not chosen.

    Where another choice was made, it may be kept for a change of mind: a file has it, and the command line says
    otherwise.

    Args:
        tree: All that was set, by our names.
        names: By which other name a setting was given. Such a name may stand for several settings, of which one is
            enough.
    """
    given = dict.fromkeys(key for key, value in _leaves(tree) if value is not None and str(value).strip())
    idle: dict[str, tuple[str, str]] = {}
    for key in given:
        section = choice_of(key)
        if section is not None and given.keys().isdisjoint(_choosing(section[0])):
            idle[key] = section
    at_work = {names[key] for key in names.keys() - idle.keys()}
    for key, (chooser, choice) in idle.items():
        if key in names and names[key] in at_work:
            continue
        name = f"{key} (given as {names[key]})" if key in names else key
        yield f"{name}: is for {chooser} = {choice}, and {chooser} is not set; set it to {choice}, or leave this out"


def choice_of(key: str) -> tuple[str, str] | None:
    """Return which setting decides whether one is used, and the choice that it is for; ``None`` for what always is."""
    return next((choice for one, choice in CHOSEN_BY.items() if f"{key}.".startswith(f"{one}.")), None)


def _choosing(chooser: str) -> tuple[str, ...]:
    return (chooser, _CHOOSE_TOO[chooser]) if chooser in _CHOOSE_TOO else (chooser,)


def _leaves(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(cast("Mapping[str, Any]", value), f"{above}{name}.")
        else:
            yield f"{above}{name}", value
