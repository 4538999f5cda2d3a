"""Query transformers: what looks at a question before it is searched for, one file each."""
