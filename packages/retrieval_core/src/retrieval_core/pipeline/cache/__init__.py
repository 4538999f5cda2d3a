"""Caching of results: cache keys, and caches."""
