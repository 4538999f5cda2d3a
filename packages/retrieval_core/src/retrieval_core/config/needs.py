"""What a configuration asks for and does not bring: found before anything is built, and told all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core.errors import ConfigurationError

if TYPE_CHECKING:
    from pydantic import SecretStr

    from retrieval_core.config.adapters import CohereRerankerConfig, OpenAIEmbedderConfig, OpenAILLMConfig
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
    missing: dict[str, str] = {}
    of_openai = [
        section
        for section, kind, settings in (
            ("embedder.openai", config.embedder.kind if with_embedder else None, config.embedder.openai),
            ("llm.openai", config.llm.kind if with_llm else None, config.llm.openai),
        )
        if kind == "openai" and _lacks_key(settings)
    ]
    if of_openai:
        missing["OPENAI_API_KEY"] = " and ".join(f"{section}.api_key" for section in of_openai)
    if config.store.kind == "pinecone" and with_store:
        pinecone = config.store.pinecone
        if _is_blank(pinecone.api_key):
            missing["PINECONE_API_KEY"] = "store.pinecone.api_key"
        if not pinecone.index_name and not pinecone.host:
            missing["PINECONE_INDEX_NAME"] = "store.pinecone.index_name, or store.pinecone.host"
    reranker = config.reranker
    if reranker.enabled and "cohere" in (reranker.kind, *reranker.fallbacks) and _lacks_key(reranker.cohere):
        missing["CO_API_KEY"] = "reranker.cohere.api_key"
    if config.cache.enabled and config.cache.kind == "redis" and _is_blank(config.cache.url):
        missing["cache.url"] = "the kind 'redis', for instance redis://localhost:6379/0"
    return missing


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


def _lacks_key(settings: OpenAIEmbedderConfig | OpenAILLMConfig | CohereRerankerConfig) -> bool:
    """Whether there is no key for the vendor itself; a server of one's own may want none."""
    return settings.base_url is None and _is_blank(settings.api_key)


def _is_blank(secret: SecretStr | None) -> bool:
    return secret is None or not secret.get_secret_value().strip()
