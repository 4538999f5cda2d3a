"""The way of a question, one file a stage."""
