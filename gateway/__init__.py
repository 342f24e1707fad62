"""The room gateway."""
