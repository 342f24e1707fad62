"""Dialogs of extensions: shown when somebody is there, cancelled when not, when time is over and when a run is aborted.

Nothing here says yes by itself, but to a change of the session that the pool makes.
"""

from collections.abc import Callable
from typing import Literal

from rpc.pi.commands import UiResponse
from rpc.pi.consent import Consent
from rpc.pi.dialogs import ASKING, Dialogs, UiAnswer
from rpc.pi.link import Link
from rpc.pi.messages import PiLine
from rpc.pi.runs import Runs
from rpc.pi.translate import UiResolved, ui_request

__all__ = ["Desk"]


class Desk:
    """``attended`` is asked whether somebody is there; ``ui_timeout`` in seconds."""

    def __init__(
        self, link: Link, runs: Runs, consent: Consent, ui_timeout: float, attended: Callable[[], bool]
    ) -> None:
        self._attended = attended
        self._link = link
        self._runs = runs
        self._consent = consent
        self._ui_timeout = ui_timeout
        self._dialogs = Dialogs()

    def request(self, line: PiLine) -> None:
        """An extension shows or asks something."""
        request = ui_request(line)
        if request.method in ASKING:
            answer = self._consent.answer(request)
            if answer is None and (not self._attended() or self._runs.is_aborting or self._dialogs.is_full):
                answer = UiResponse(id=request.id, cancelled=True)
            if answer is not None:
                self._link.respond(answer)
                return
            self._dialogs.open(request.id, request.method, self._link.now + self._ui_timeout)
        self._link.event("ui_request", request)

    def answer(self, answer: UiAnswer) -> bool:
        """Somebody has answered; False when the dialog is not open (any more)."""
        response = self._dialogs.answer(answer)
        if response is None:
            return False
        self._link.respond(response)
        self._tell_closed(answer.id, "answered")
        return True

    def cancel_all(self) -> None:
        """The run is being aborted, which does not dismiss its dialogs."""
        for dialog_id in self._dialogs.take_all():
            self._cancel(dialog_id, "aborted")

    def next_deadline(self) -> float | None:
        """When the next dialog is cancelled."""
        return self._dialogs.next_deadline()

    def expire(self, now: float) -> None:
        """Cancel what nobody has answered in time."""
        for dialog_id in self._dialogs.take_due(now):
            self._cancel(dialog_id, "timeout")

    def _cancel(self, dialog_id: str, reason: Literal["timeout", "aborted"]) -> None:
        self._link.respond(UiResponse(id=dialog_id, cancelled=True))
        self._tell_closed(dialog_id, reason)

    def _tell_closed(self, dialog_id: str, reason: Literal["answered", "timeout", "aborted"]) -> None:
        self._link.event("ui_resolved", UiResolved(id=dialog_id, reason=reason, seq=self._link.stamp().seq))
