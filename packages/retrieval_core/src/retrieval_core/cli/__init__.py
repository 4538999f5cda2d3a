"""The command ``retrieval``; nothing is imported here, so that what starts it can be interrupted quietly."""
