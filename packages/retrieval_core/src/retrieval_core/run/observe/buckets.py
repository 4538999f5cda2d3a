"""The limits that durations are counted between."""

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper limits in seconds, from a search in memory to the default deadline of a query."""
