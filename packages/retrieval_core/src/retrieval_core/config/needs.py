"""Find missing required settings, and settings without effect.

Both follow from the annotations in the tree of settings; see :class:`~retrieval_core.config.adapters.Use`.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, SecretStr

from retrieval_core.config.adapters import Use
from retrieval_core.config.model import RetrievalConfig
from retrieval_core.errors import ConfigurationError

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
        # What stands in for a reranker is a choice as well.
        if section is not None and given.keys().isdisjoint((section[0], section[0].replace(".kind", ".fallbacks"))):
            idle[key] = section
    at_work = {names[key] for key in names.keys() - idle.keys()}
    for key, (chooser, choice) in idle.items():
        if key in names and names[key] in at_work:
            continue
        name = f"{key} (given as {names[key]})" if key in names else key
        yield f"{name}: has no effect unless {chooser} is {choice}; set {chooser}, or remove this setting"


def choice_of(key: str) -> tuple[str, str] | None:
    """Return which setting decides whether one is used, and the choice that it is for; ``None`` for what always is."""
    return next((choice for one, choice in CHOSEN_BY.items() if f"{key}.".startswith(f"{one}.")), None)


def _leaves(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(cast("Mapping[str, Any]", value), f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def missing_settings(
    config: RetrievalConfig, *, with_embedder: bool = True, with_store: bool = True, with_llm: bool = True
) -> dict[str, str]:
    """Return what is missing: the names to set, in the environment or as a key, each with what needs it.

    Args:
        config: Only what it names is looked at: a key for a service that is not used is not missing.
        with_embedder: Whether the configured embedder is used, and not one of the caller's.
        with_store: Whether the configured store is.
        with_llm: Whether the configured language model is.
    """
    given = {"embedder": not with_embedder, "store": not with_store, "llm": not with_llm}
    missing: dict[str, list[str]] = {}
    for key, use in USES.items():
        name, choice = key.partition(".")[0], choice_of(key)
        section: Any = getattr(config, name)
        if not use.is_needed or choice is None or given.get(name) or choice[1] not in section.kinds:
            continue
        above, _, last = key.rpartition(".")
        settings: Any = attrgetter(above)(config)
        if all(_is_blank(getattr(settings, one)) for one in (last, use.unless or last)):
            what = key if use.environment else f"the kind {choice[1]!r}, for instance {use.example}"
            # A server of one's own, which wants no key, is no other way to say the same.
            what += f", or {above}.{use.unless}" if use.unless and use.unless != "base_url" else ""
            missing.setdefault(use.environment or key, []).append(what)
    return {name: " and ".join(missing[name]) for name in sorted(missing)}


def check_complete(
    config: RetrievalConfig, *, with_embedder: bool = True, with_store: bool = True, with_llm: bool = True
) -> None:
    """Refuse a configuration that lacks something; see :func:`missing_settings`.

    Raises:
        ConfigurationError: ``missing_keys`` has exactly the names that are missing, ``problems`` a line for each.
    """
    missing = missing_settings(config, with_embedder=with_embedder, with_store=with_store, with_llm=with_llm)
    if not missing:
        return
    problems = [f"{name}: not set (for {what})" for name, what in missing.items()]
    msg = (
        f"the configuration lacks {len(problems)} setting{'s' * (len(problems) > 1)}:\n  "
        + "\n  ".join(problems)
        + "\nSet them in the environment or the configuration. From Python, pass the environment: "
        "load_config(…, environment=os.environ)."
    )
    raise ConfigurationError(msg, missing_keys=tuple(missing), problems=problems)


def _is_blank(value: SecretStr | str | None) -> bool:
    return not (value.get_secret_value() if isinstance(value, SecretStr) else value or "").strip()
