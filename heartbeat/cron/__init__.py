"""Scheduled tasks, run in a conversation or in a session of their own."""
