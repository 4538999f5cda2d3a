"""From files to documents, chunks and vectors."""
