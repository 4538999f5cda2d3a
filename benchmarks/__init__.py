"""Measurements of speed and memory, beside other libraries: ``python -m benchmarks``."""
