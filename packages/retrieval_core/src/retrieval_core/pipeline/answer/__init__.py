"""What an answer is made of, as values: sentences, their sources, and how far they can be relied on."""
