"""The sessions: their table, administration, history, profiles and system events."""
