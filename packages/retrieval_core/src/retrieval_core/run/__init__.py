"""How calls that leave the process are run: in time, in threads, and from synchronous code."""
