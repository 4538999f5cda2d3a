"""The specification's names, thin over the engine."""
