"""What comes with the library and can be plugged in: a folder for each kind of :mod:`retrieval_core.ports`."""
