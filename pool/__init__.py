"""The room pool."""
