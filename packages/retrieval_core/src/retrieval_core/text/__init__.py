"""Looking into texts: where their blocks are."""
