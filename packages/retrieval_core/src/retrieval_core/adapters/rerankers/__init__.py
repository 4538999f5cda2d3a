"""Rerankers: adapters to the models that read a question and a passage together, one file each."""
