"""Rewriters: what puts a question into other words, one file each."""
