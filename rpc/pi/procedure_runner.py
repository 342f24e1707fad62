"""Runs procedures: sends what they yield, hands them the answers, answers their requests when they return."""

from collections.abc import Callable
from typing import Any

from errors import WorkerRefused
from rpc.pi.events import error_text
from rpc.pi.link import PiLink
from rpc.pi.messages import PiAbort, PiBash, PiCommand, PiLine
from rpc.pi.procedures import Procedure, Until, changed_session
from rpc.pi.run_state import PiRunPhase
from rpc.pi.runs import PiRunController
from rpc.procedure import run_procedure

NO_LINE = PiLine(type="")
"""What a procedure gets that has waited for the end of a run."""


class ProcedureRunner:
    """Any number of procedures at once, but one exclusive one: those that change or shorten the session."""

    def __init__(self, link: PiLink, abort_grace: float) -> None:
        self._link = link
        self._abort_grace = abort_grace
        self.exclusive_method: str | None = None
        """The method of the exclusive procedure that is under way."""
        self.running_shells = 0
        """Shell commands that run for a user."""

    def attach_runs(self, runs: PiRunController) -> None:
        """The runs that procedures wait for."""
        self._runs = runs

    def run_for_request(self, request_id: str, procedure: Procedure[Any], *, exclusive: str | None = None) -> None:
        """Run a procedure for a request and answer it with what it returns or raises."""

        def finish(result: object) -> None:
            self._release_exclusive(exclusive)
            self._link.answer(request_id, result)

        def fail(error: WorkerRefused) -> None:
            self._release_exclusive(exclusive)
            self._link.reject_for(request_id, error)

        self.exclusive_method = exclusive or self.exclusive_method
        self.run(procedure, finish, fail)

    def run(
        self, procedure: Procedure[Any], finish: Callable[[Any], None], fail: Callable[[WorkerRefused], None]
    ) -> None:
        """Run a procedure; one of the two is called at its end."""
        run_procedure(procedure, self._perform, finish, fail)

    def _perform(self, wanted: PiCommand | Until, resume: Callable[[PiLine | WorkerRefused], None]) -> None:
        if isinstance(wanted, PiCommand):
            self._send(wanted, resume)
        else:
            self._until_idle(lambda: resume(NO_LINE))

    def _send(self, command: PiCommand, resume: Callable[[PiLine | WorkerRefused], None]) -> None:
        self.running_shells += isinstance(command, PiBash)

        def answered(line: PiLine) -> None:
            self.running_shells -= isinstance(command, PiBash)
            if line.success and changed_session(command.type, line):
                self._runs.session_replaced()
            resume(line if line.success else WorkerRefused(error_text(line), worker_code="refused"))

        self._link.send(command, answered)

    def _until_idle(self, resume: Callable[[], None]) -> None:
        if self.exclusive_method is None or not self._runs.is_running:
            self._runs.when_idle(resume)
            return
        self._runs.begin_abort(keep_queue=False)
        self._link.send(PiAbort(), lambda _line: None)
        self._runs.when_idle(resume, give_up_at=self._link.now + self._abort_grace)
        if self._runs.phase is PiRunPhase.COMPACTING:  # which no command can end, but the one that follows does
            self._runs.give_up()

    def _release_exclusive(self, exclusive: str | None) -> None:
        if exclusive is not None:
            self.exclusive_method = None
