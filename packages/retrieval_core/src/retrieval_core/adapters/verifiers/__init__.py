"""Verifiers of answers: exact comparison of sentences on this machine, and language models."""
