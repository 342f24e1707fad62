"""The session that is open in ``pool top``: when to read its messages again, and their lines. Pure."""

from typing import Any

from rich.console import Console
from rich.text import Text

from commands.session_view import history_view


class SessionLines:
    """The messages of one session. ``has_messages``: they have been read at least once."""

    def __init__(self) -> None:
        self.has_messages = False
        self._document: dict[str, Any] = {}
        self._seq = 0
        self._lines: list[Text] = []
        self._width = 0

    def is_stale(self, seq: int) -> bool:
        """Whether something has happened since they were asked for. ``seq``: of the session's latest event."""
        return seq > self._seq

    def update(self, history: dict[str, Any] | None, seq: int) -> None:
        """The answer to what was asked at ``seq``; None where it was an error: what is there stays."""
        self._seq = seq
        if history is not None and (not self.has_messages or history != self._document):
            self.has_messages, self._document, self._width = True, history, 0

    def lines(self, width: int) -> list[Text]:
        """All of them, oldest first; rendered when they or the width have changed, which takes long for many."""
        if width != self._width:
            console = Console(width=width, color_system=None, legacy_windows=False)
            rendered = console.render_lines(history_view(self._document, width), console.options, pad=False)
            self._lines = [Text.assemble(*((part.text, part.style or "") for part in line)) for line in rendered]
            self._width = width
        return self._lines
