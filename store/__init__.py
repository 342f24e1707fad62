"""Sessions, runs, events and documents in one SQLite file, written in batches by one thread."""
