"""Embedders, one file a vendor."""
