"""What was typed into earlier chats: a bounded file that this user alone can read."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from wire.files import open_regular, replace_file

MAX_BYTES = 1_000_000
_KEPT_BYTES = MAX_BYTES // 2
"""What is kept of a larger file, at its end."""
_ENTRY = b"\n# "


class ChatHistory(FileHistory):
    """The file; once it cannot be written, this chat's memory alone. ``on_problem`` gets one line about it."""

    def __init__(self, file: Path, on_problem: Callable[[str], None]) -> None:
        super().__init__(str(file))
        self._on_problem: Callable[[str], None] | None = on_problem

    def store_string(self, string: str) -> None:
        """Append an entry."""
        try:
            super().store_string(string)
        except OSError as error:
            on_problem, self._on_problem = self._on_problem, None
            if on_problem is not None:
                on_problem(_problem_text(error))


def open_history(env: Mapping[str, str], on_problem: Callable[[str], None]) -> History:
    """The history in the state directory of ``env``, cut to ``MAX_BYTES``; in memory where that cannot be used."""
    try:
        base = env.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
        file = Path(base) / "pool" / "chat-history"
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.touch(mode=0o600)
        _cut(file)
    except (OSError, RuntimeError) as error:  # RuntimeError: this user has no home directory
        on_problem(_problem_text(error))
        return InMemoryHistory()
    return ChatHistory(file, on_problem)


def _problem_text(error: Exception) -> str:
    """Why what is typed will not be there in the next chat."""
    return f"what is typed here will not be remembered: {error}"


def _cut(file: Path) -> None:
    """Drop the oldest entries of a file that is too large. Raises OSError."""
    with os.fdopen(open_regular(file, os.O_RDONLY), "rb") as opened:
        if os.fstat(opened.fileno()).st_size <= MAX_BYTES:
            return
        opened.seek(-_KEPT_BYTES, os.SEEK_END)
        end = opened.read()
    begins = end.find(_ENTRY)
    replace_file(file.resolve(), end[begins:] if begins >= 0 else b"")
