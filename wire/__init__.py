"""The room wire."""
