"""Running calls that leave the process: deadlines, retries, threads, and the bridge from synchronous code."""
