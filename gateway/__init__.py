"""What happens between a door and a worker: sessions, lanes, runs, methods."""
