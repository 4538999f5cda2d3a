"""Caches, one file each."""
