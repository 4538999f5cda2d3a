"""What several adapters share: connections to one vendor, and how answers over HTTP are read."""
