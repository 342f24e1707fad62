"""The room agent."""
