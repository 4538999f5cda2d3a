"""Models that run in this process from files: finding and checking the files, tokens, inference."""
