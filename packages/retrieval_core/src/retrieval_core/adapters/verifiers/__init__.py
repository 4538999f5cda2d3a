"""What holds the sentences of an answer against the passages: exact comparison on this machine, and language models."""
