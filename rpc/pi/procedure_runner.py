"""Runs procedures: sends what they yield, hands them the answers, answers their requests when they return."""

from collections.abc import Callable
from typing import Any

from errors import WorkerRefused
from rpc.pi.events import error_text
from rpc.pi.link import Link
from rpc.pi.messages import Abort, Bash, Cancellable, Command, Compact, NewSession, PiLine, SwitchSession
from rpc.pi.procedures import Procedure, Until, decode
from rpc.pi.run_state import Phase
from rpc.pi.runs import Runs


class Conversations:
    """Any number of procedures at once, but one exclusive one: those that change or shorten the session."""

    def __init__(self, link: Link, abort_grace: float) -> None:
        self._link = link
        self._abort_grace = abort_grace
        self._exclusive: str | None = None
        self._shells = 0

    @property
    def exclusive(self) -> str | None:
        """The method of the exclusive procedure that is under way."""
        return self._exclusive

    @property
    def shells(self) -> int:
        """Shell commands that run for a user."""
        return self._shells

    def bind(self, runs: Runs) -> None:
        """The runs that procedures wait for."""
        self._runs = runs

    def begin(self, request_id: str, procedure: Procedure[Any], *, exclusive: str | None = None) -> None:
        """Run a procedure for a request and answer it with what it returns or raises."""

        def finish(result: object) -> None:
            self._end(exclusive)
            self._link.answer(request_id, result)

        def fail(error: WorkerRefused) -> None:
            self._end(exclusive)
            self._link.refuse_with(request_id, error)

        self._exclusive = exclusive or self._exclusive
        self.run(procedure, finish, fail)

    def run(
        self, procedure: Procedure[Any], finish: Callable[[Any], None], fail: Callable[[WorkerRefused], None]
    ) -> None:
        """Run a procedure; one of the two is called at its end."""
        self._proceed(lambda: next(procedure), procedure, finish, fail)

    def _proceed(
        self,
        step: Callable[[], Command | Until],
        procedure: Procedure[Any],
        finish: Callable[[Any], None],
        fail: Callable[[WorkerRefused], None],
    ) -> None:
        try:
            wanted = step()
        except StopIteration as end:
            finish(end.value)
            return
        except WorkerRefused as error:
            fail(error)
            return

        def resume(line: PiLine | None) -> None:
            self._proceed(lambda: _hand_over(procedure, line), procedure, finish, fail)

        if isinstance(wanted, Command):
            self._send(wanted, resume)
        else:
            self._until_idle(lambda: resume(None))

    def _send(self, command: Command, resume: Callable[[PiLine], None]) -> None:
        self._shells += isinstance(command, Bash)

        def answered(line: PiLine) -> None:
            self._shells -= isinstance(command, Bash)
            if line.success and _changed_the_session(command, line):
                self._runs.session_replaced()
            resume(line)

        self._link.send(command, answered)

    def _until_idle(self, resume: Callable[[], None]) -> None:
        if self._exclusive is None or not self._runs.is_running:
            self._runs.when_idle(resume)
            return
        self._runs.begin_abort(keep_queue=False)
        self._link.send(Abort(), lambda _line: None)
        self._runs.when_idle(resume, give_up_at=self._link.now + self._abort_grace)
        if self._runs.phase is Phase.COMPACTING:  # which no command can end, but the one that follows does
            self._runs.lose()

    def _end(self, exclusive: str | None) -> None:
        if exclusive is not None:
            self._exclusive = None


def _hand_over(procedure: Procedure[Any], line: PiLine | None) -> Command | Until:
    if line is None:
        return next(procedure)
    if line.success:
        return procedure.send(line)
    return procedure.throw(WorkerRefused(error_text(line), worker_code="refused"))


def _changed_the_session(command: Command, line: PiLine) -> bool:
    if isinstance(command, Compact):
        return True
    if not isinstance(command, NewSession | SwitchSession):
        return False
    try:
        return not decode(line.data, Cancellable).cancelled
    except WorkerRefused:
        return True
