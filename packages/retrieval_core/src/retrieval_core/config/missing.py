"""Find required settings that are not set."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.config.base import AdapterSettings
from retrieval_core.config.kinds import PORTS, TRANSFORMER, table_of
from retrieval_core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from retrieval_core.config.adapters import PortConfig
    from retrieval_core.config.model import RetrievalConfig


def missing_settings(
    config: RetrievalConfig,
    *,
    with_embedder: bool = True,
    with_store: bool = True,
    with_llm: bool = True,
    transformers: Collection[str] = (),
) -> dict[str, str]:
    """Return the required settings that are missing: variables of the environment or keys, each with what needs it.

    Args:
        config: Only the kinds that it chooses count.
        with_embedder: Whether the configured embedder is used, and not one of the caller's.
        with_store: Whether the configured store is.
        with_llm: Whether the configured language model is.
        transformers: Names of the caller's own transformers, which no settings are for.
    """
    given = {"embedder": not with_embedder, "store": not with_store, "llm": not with_llm}
    missing: dict[str, list[str]] = {}
    for section, kind, settings in _chosen(config, transformers):
        if given.get(section):
            continue
        key = f"{section}.{table_of(kind)}"
        variables = settings.variables()
        for name in settings.missing():
            other = settings.required[name]
            what = f"{key}.{name}" if name in variables else f"the kind {kind!r}, for instance {other}"
            # A server of one's own, which wants no key, is no other way to say the same.
            what += f", or {key}.{other}" if other in type(settings).model_fields and other != "base_url" else ""
            missing.setdefault(variables.get(name, f"{key}.{name}"), []).append(what)
    return {name: " and ".join(missing[name]) for name in sorted(missing)}


def _chosen(config: RetrievalConfig, transformers: Collection[str]) -> Iterator[tuple[str, str, AdapterSettings]]:
    """Yield each chosen kind that may need settings: its section, its name and its settings."""
    for port in PORTS.values():
        section: PortConfig | Any = getattr(config, port.section)
        for kind in getattr(section, "kinds", ()):
            is_given = port is TRANSFORMER and kind in transformers
            if not is_given and port.needs_settings(kind):
                with suppress(ConfigurationError):  # there is no such kind, which is told when it is made
                    settings = cast("PortConfig", section).settings_of(kind)
                    if isinstance(settings, AdapterSettings):
                        yield port.section, kind, settings


def check_complete(
    config: RetrievalConfig,
    *,
    with_embedder: bool = True,
    with_store: bool = True,
    with_llm: bool = True,
    transformers: Collection[str] = (),
) -> None:
    """Refuse a configuration that lacks something; see :func:`missing_settings`.

    Raises:
        ConfigurationError: ``missing_keys`` has exactly the names that are missing, ``problems`` a line for each.
    """
    missing = missing_settings(
        config, with_embedder=with_embedder, with_store=with_store, with_llm=with_llm, transformers=transformers
    )
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
