"""Lanes: when a session's next turn begins, and what becomes of the messages that arrive while one runs."""
