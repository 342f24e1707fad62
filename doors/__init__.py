"""The room doors."""
