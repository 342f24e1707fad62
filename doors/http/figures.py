"""What the HTTP door has counted; ``/metrics`` shows it."""

from collections import Counter

__all__ = ["HttpFigures"]


class HttpFigures:
    """Plain sums, and what is open at the moment."""

    def __init__(self) -> None:
        self.connections = 0
        """Open."""
        self.accepted = 0
        self.turned_away = 0
        self.evicted = 0
        """Connections without a token that gave way to others."""
        self.stalled = 0
        """Peers cut off because they did not read."""
        self.streams = 0
        """Open streams of events."""
        self.behind = 0
        """Streams that were cut off with a bookmark."""
        self.events_bytes = 0
        self.sockets = 0
        """Open WebSockets."""
        self.sockets_slow = 0
        """Those that were closed because they did not read."""
        self.events_dropped = 0
        """Events that slow WebSockets have lost."""
        self.requests: Counter[int] = Counter()
        """By status."""
