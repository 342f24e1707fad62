"""One worker process: its dialect, its life, its client."""
