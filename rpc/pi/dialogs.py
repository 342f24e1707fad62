"""Dialogs that extensions have opened and nobody has answered yet, each with the time at which it is cancelled."""

from typing import NamedTuple

import msgspec

from errors import UsageError
from rpc.pi.commands import UiResponse

__all__ = ["ASKING", "MAX_OPEN_DIALOGS", "Dialogs", "UiAnswer"]

ASKING = frozenset({"select", "confirm", "input", "editor"})
"""Methods that wait for an answer; all others only show something."""
MAX_OPEN_DIALOGS = 64
"""A worker with more open dialogs than this has its next one cancelled at once."""


class UiAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``ui_respond``: exactly one of the three; ``confirmed`` for ``confirm``, ``value`` for the others."""

    id: str
    value: str | None = None
    confirmed: bool | None = None
    cancelled: bool | None = None

    def response(self, method: str) -> UiResponse:
        """What pi is told. Raises UsageError when the answer does not fit the dialog's method."""
        if self.cancelled is True and self.value is None and self.confirmed is None:
            return UiResponse(id=self.id, cancelled=True)
        wanted, other = (self.confirmed, self.value) if method == "confirm" else (self.value, self.confirmed)
        if wanted is None or other is not None or self.cancelled is not None:
            field = "confirmed" if method == "confirm" else "value"
            raise UsageError(
                f"a {method} dialog is answered with either {field} or cancelled: true", worker_code="invalid_params"
            )
        return UiResponse(id=self.id, value=self.value, confirmed=self.confirmed)


class _Open(NamedTuple):
    method: str
    deadline: float


class Dialogs:
    """The open dialogs by id, in the order in which they were opened."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_full(self) -> bool:
        """Whether one more would be too many."""
        return len(self._open) >= MAX_OPEN_DIALOGS

    def open(self, dialog_id: str, method: str, deadline: float) -> None:
        """An extension waits for a person, until ``deadline`` (monotonic seconds)."""
        self._open[dialog_id] = _Open(method, deadline)

    def answer(self, answer: UiAnswer) -> UiResponse | None:
        """Close a dialog with a person's answer; None when it is not open: the first answer has won.

        Raises UsageError when the answer does not fit; the dialog stays open.
        """
        dialog = self._open.get(answer.id)
        if dialog is None:
            return None
        response = answer.response(dialog.method)
        del self._open[answer.id]
        return response

    def next_deadline(self) -> float | None:
        """The earliest deadline."""
        return min((dialog.deadline for dialog in self._open.values()), default=None)

    def take_due(self, now: float) -> list[str]:
        """Close those whose time is over; their ids."""
        due = [dialog_id for dialog_id, dialog in self._open.items() if dialog.deadline <= now]
        for dialog_id in due:
            del self._open[dialog_id]
        return due

    def take_all(self) -> list[str]:
        """Close all; their ids."""
        ids = list(self._open)
        self._open.clear()
        return ids
