"""Heartbeats, scheduled tasks, system events, and the delivery of their alerts."""
