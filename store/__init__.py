"""What must survive the supervisor: sessions, runs and events in one SQLite file, written in batches by one thread."""
