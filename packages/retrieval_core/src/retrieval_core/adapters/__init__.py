"""Adapters: the built-in plug-ins, with a folder for each port of :mod:`retrieval_core.ports`."""
