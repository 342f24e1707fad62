"""The event bus: every event of every session in one order, durable where it must be, replayed without a gap."""

from gateway.events.bus import BusStatistics, EventBus, TextKind
from gateway.events.cursor import EventCursor
from gateway.events.ring import EncodedEvents

__all__ = ["BusStatistics", "EncodedEvents", "EventBus", "EventCursor", "TextKind"]
