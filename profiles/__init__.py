"""The room profiles."""
