"""The command ``retrieval``."""

from retrieval_core.cli.main import main

__all__ = ["main"]
