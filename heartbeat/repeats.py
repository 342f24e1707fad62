"""The same alert about the same events is shown once a day; digests of the latest ones. Pure: ``wall`` comes in."""

from collections.abc import Mapping
from hashlib import blake2b

from heartbeat.acknowledgement import Alert

__all__ = ["Repeats"]

_DAY = 86400.0
_MOST = 200


class Repeats:
    """One agent's alerts of the last 24 hours, at most 200 of them: beyond that the oldest is forgotten.

    Times are Unix time in seconds, since the memory outlives the supervisor. A clock that was set back makes nothing
    silent for longer than a day.
    """

    def __init__(self, told: Mapping[str, float] | None = None, *, most: int = _MOST) -> None:
        """``told``: what ``told`` of an earlier life was."""
        self._most = most
        self._told = dict(sorted((told or {}).items(), key=lambda item: item[1])[-most:])

    @property
    def told(self) -> dict[str, float]:
        """When each alert was told, by its digest; to be kept, and handed to the next life."""
        return dict(self._told)

    def is_repeat(self, session: str, alert: Alert, wall: float, *, about: str = "") -> bool:
        """Whether the session had the same text within a day. Files are always news: their names say little.

        ``about``: the events of the beat, in words. The same text about other events is news.
        """
        at = self._told.get(_digest(session, about, alert.text))
        return not alert.has_media and at is not None and abs(wall - at) < _DAY

    def remember(self, session: str, alert: Alert, wall: float, *, about: str = "") -> None:
        """The alert is shown now. A repetition does not prolong the day."""
        if alert.has_media or self.is_repeat(session, alert, wall, about=about):
            return
        name = _digest(session, about, alert.text)
        self._told.pop(name, None)
        self._told[name] = wall
        self._forget_the_old(wall)

    def _forget_the_old(self, wall: float) -> None:
        for name in [name for name, at in self._told.items() if abs(wall - at) >= _DAY]:
            del self._told[name]
        while len(self._told) > self._most:
            del self._told[next(iter(self._told))]


def _digest(session: str, about: str, text: str) -> str:
    parts = f"{len(session)}:{session}{len(about)}:{about}{text.strip()}"
    return blake2b(parts.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
