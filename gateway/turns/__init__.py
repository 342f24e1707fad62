"""The turns of a session: scheduling, the turn itself, its reply, approvals, client tools."""
