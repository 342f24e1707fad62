"""Scheduled tasks: due by the clock, done in a conversation or in one of their own."""
