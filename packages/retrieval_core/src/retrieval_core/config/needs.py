"""What a configuration asks for and does not bring: found before anything is built, and told all at once."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from retrieval_core.config.choices import USES, choice_of
from retrieval_core.errors import ConfigurationError

if TYPE_CHECKING:
    from retrieval_core.config.model import RetrievalConfig


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
        + "\nSet them in the environment or the configuration. From Python, the environment is read only where it is "
        "handed over: load_config(…, environment=os.environ)."
    )
    raise ConfigurationError(msg, missing_keys=tuple(missing), problems=problems)


def _is_blank(value: SecretStr | str | None) -> bool:
    return not (value.get_secret_value() if isinstance(value, SecretStr) else value or "").strip()
