"""Sleeping until something happens in a session, or anywhere; nobody is woken for what it does not wait for."""

import trio

__all__ = ["News"]


class _Sleepers:
    """Those who wait for the next event of one session; ``seq`` is that event's, once it is there."""

    __slots__ = ("lot", "seq")

    def __init__(self) -> None:
        self.lot = trio.lowlevel.ParkingLot()
        self.seq = 0


class News:
    """A parking lot for each session that somebody waits for, and one (None) for those who wait for any."""

    def __init__(self) -> None:
        self._sleepers: dict[str | None, _Sleepers] = {}

    @property
    def sleeping(self) -> int:
        """How many wait."""
        return sum(len(sleepers.lot) for sleepers in self._sleepers.values())

    async def wait(self, session: str | None) -> int:
        """Sleep until the session's next event; return its seq: nothing has happened there in between."""
        sleepers = self._sleepers.get(session)
        if sleepers is None:
            sleepers = self._sleepers[session] = _Sleepers()
        try:
            await sleepers.lot.park()
        finally:
            if not sleepers.lot and self._sleepers.get(session) is sleepers:
                del self._sleepers[session]
        return sleepers.seq

    def tell(self, session: str, seq: int) -> None:
        """Something of the session can be seen from ``seq`` on."""
        for key in (session, None):
            sleepers = self._sleepers.pop(key, None)
            if sleepers is not None:
                sleepers.seq = seq
                sleepers.lot.unpark_all()
