"""What turns text into vectors, one file a vendor."""
