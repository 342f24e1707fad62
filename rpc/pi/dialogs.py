"""Dialogs of extensions: shown while a front end attends, else cancelled; cancelled at their deadline and on abort.

Nothing is confirmed here, except a change of the session that the pool itself makes.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from errors import UsageError
from rpc.pi.events import UiResolved, ui_request
from rpc.pi.link import PiLink
from rpc.pi.messages import PiLine, PiUiResponse
from rpc.pi.procedures import Consent
from rpc.pi.runs import PiRunController

INTERACTIVE_METHODS = frozenset({"select", "confirm", "input", "editor"})
"""Methods that wait for an answer; all others only show something."""
MAX_OPEN_DIALOGS = 64
"""A worker with more open dialogs than this has its next one cancelled at once."""


class UiAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``ui_respond``: exactly one of the three; ``confirmed`` for ``confirm``, ``value`` for the others."""

    id: str
    value: str | None = None
    confirmed: bool | None = None
    cancelled: bool | None = None

    def response(self, method: str) -> PiUiResponse:
        """What pi receives. Raises UsageError when the answer does not fit the dialog's method."""
        if self.cancelled is True and self.value is None and self.confirmed is None:
            return PiUiResponse(id=self.id, cancelled=True)
        wanted, other = (self.confirmed, self.value) if method == "confirm" else (self.value, self.confirmed)
        if wanted is None or other is not None or self.cancelled is not None:
            field = "confirmed" if method == "confirm" else "value"
            raise UsageError(
                f"a {method} dialog is answered with either {field} or cancelled: true", worker_code="invalid_params"
            )
        return PiUiResponse(id=self.id, value=self.value, confirmed=self.confirmed)


class _OpenDialog(NamedTuple):
    method: str
    deadline: float


class DialogHandler:
    """``attended`` is asked whether a front end is there; ``ui_timeout`` in seconds."""

    def __init__(
        self, link: PiLink, runs: PiRunController, consent: Consent, ui_timeout: float, attended: Callable[[], bool]
    ) -> None:
        self._attended = attended
        self._link = link
        self._runs = runs
        self._consent = consent
        self._ui_timeout = ui_timeout
        self._open: dict[str, _OpenDialog] = {}

    def request(self, line: PiLine) -> None:
        """An extension shows or asks something."""
        request = ui_request(line)
        if request.method in INTERACTIVE_METHODS:
            answer = self._consent.answer(request)
            if answer is None and (
                not self._attended() or self._runs.is_aborting or len(self._open) >= MAX_OPEN_DIALOGS
            ):
                answer = PiUiResponse(id=request.id, cancelled=True)
            if answer is not None:
                self._link.respond(answer)
                return
            self._open[request.id] = _OpenDialog(request.method, self._link.now + self._ui_timeout)
        self._link.emit("ui_request", request)

    def answer(self, answer: UiAnswer) -> bool:
        """Close a dialog with a person's answer; False when it is not open: the first answer has won.

        Raises UsageError when the answer does not fit; the dialog stays open.
        """
        dialog = self._open.get(answer.id)
        if dialog is None:
            return False
        self._link.respond(answer.response(dialog.method))
        del self._open[answer.id]
        self._emit_resolved(answer.id, "answered")
        return True

    def cancel_all(self) -> None:
        """The run is being aborted, which does not dismiss its dialogs."""
        for dialog_id in list(self._open):
            self._cancel(dialog_id, "aborted")

    def next_deadline(self) -> float | None:
        """When the next dialog is cancelled."""
        return min((dialog.deadline for dialog in self._open.values()), default=None)

    def expire(self, now: float) -> None:
        """Cancel the dialogs whose deadline has passed."""
        for dialog_id in [dialog_id for dialog_id, dialog in self._open.items() if dialog.deadline <= now]:
            self._cancel(dialog_id, "timeout")

    def _cancel(self, dialog_id: str, reason: Literal["timeout", "aborted"]) -> None:
        del self._open[dialog_id]
        self._link.respond(PiUiResponse(id=dialog_id, cancelled=True))
        self._emit_resolved(dialog_id, reason)

    def _emit_resolved(self, dialog_id: str, reason: Literal["answered", "timeout", "aborted"]) -> None:
        self._link.emit("ui_resolved", UiResolved(id=dialog_id, reason=reason, seq=self._link.stamp().seq))
