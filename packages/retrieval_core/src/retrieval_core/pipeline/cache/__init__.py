"""Keeping what was found: the key of a result, and the caches that hold results by their keys."""
