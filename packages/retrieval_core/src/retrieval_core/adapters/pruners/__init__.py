"""Pruners: what tells which sentences of a passage bear on a question, one file each."""
