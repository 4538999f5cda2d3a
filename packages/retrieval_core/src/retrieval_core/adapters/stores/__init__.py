"""Where chunks, vectors and words are kept."""
