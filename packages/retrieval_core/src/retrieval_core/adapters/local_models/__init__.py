"""Models that run in this process from files: finding and checking the files, tokens, inference."""

import os

# The official builds of onnxruntime send usage data from version 1.29 on, and write a device ID into the user's cache.
# It reads this variable once, when it is loaded. A value that the user set is kept.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
