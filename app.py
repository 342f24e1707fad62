"""app: to be filled."""
