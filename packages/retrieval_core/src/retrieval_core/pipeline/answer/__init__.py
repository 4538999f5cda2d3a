"""Values that an answer consists of: sentences, their sources, and their confidence."""
