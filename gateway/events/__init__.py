"""The event bus: every event of every session in one order, durable where it must be, replayed without a gap."""
