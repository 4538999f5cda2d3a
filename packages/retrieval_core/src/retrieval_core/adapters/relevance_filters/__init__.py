"""Relevance filters: what tells which passages bear on a question, one file each."""
