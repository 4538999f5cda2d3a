"""From settings to objects, one file for each part; see :mod:`retrieval_core.index.open`."""
