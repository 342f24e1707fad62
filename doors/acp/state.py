"""What the parts of the agent share: output in both directions, sessions, procedures under way. Pure."""

import re
from typing import Any, NamedTuple

import msgspec

from doors.acp.jsonrpc import encode_call, encode_notification
from doors.acp.procedures import AskPool, OwnRun, Procedure, StepRunner
from doors.acp.session import AskedQuestion, EditorSession
from doors.acp.updates import EditorWishes

_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,40}")


class LaunchOptions(NamedTuple):
    """What the command line says. ``session``: the key that the first new session gets. ``attachment`` is unique."""

    attachment: str
    version: str
    agent: str | None = None
    role: str | None = None
    session: str | None = None


class DoorState:
    """The state of one agent process. ``to_editor`` and ``to_pool``: lines to be written, oldest first."""

    def __init__(self, options: LaunchOptions) -> None:
        self.options = options
        self.first_session = options.session
        self.wishes = EditorWishes()
        self.to_editor: list[bytes] = []
        self.to_pool: list[bytes] = []
        self.sessions: dict[str, EditorSession] = {}
        self.runner = StepRunner(self.to_pool.append)
        self._runs = 0
        self._calls = 0

    def run_in_background(self, procedure: Procedure) -> None:
        """Run a procedure whose end nothing waits for; what it could not do is seen in what follows."""
        self.runner.start(procedure, lambda _result, _error: None)

    # --- runs ---------------------------------------------------------------------------------------------------------

    def new_run_key(self, request: msgspec.Raw) -> str:
        """The key of the run that a request begins; no other run has it."""
        self._runs += 1
        text = bytes(request).decode().strip('"')
        return f"{self.options.attachment}.{self._runs}.{text if _PLAIN.fullmatch(text) else 'id'}"

    def is_own(self, run: str) -> bool:
        """Whether this process has made the key."""
        return run.startswith(f"{self.options.attachment}.")

    def cancel(self, run: OwnRun) -> None:
        """Abort a run, queued or running; as soon as the pool has accepted it."""
        run.is_cancelled = True
        if run.is_accepted and run.end is None:
            self.run_in_background(_abort(run))

    # --- questions ----------------------------------------------------------------------------------------------------

    def ask_editor(self, method: str, params: Any) -> int:
        """Send the editor a request; the number of its answer."""
        self._calls += 1
        self.to_editor.append(encode_call(self._calls, method, params))
        return self._calls

    def withdraw(self, session: EditorSession, asked: AskedQuestion) -> None:
        """Nothing is to be decided about a call any more."""
        session.questions.pop(asked.call.id, None)
        if asked.number is not None:
            self.to_editor.append(encode_notification("$/cancel_request", {"requestId": asked.number}))

    def take_question(self, number: object) -> tuple[EditorSession, AskedQuestion] | None:
        """The question that was asked under that number, which is answered now."""
        for session in self.sessions.values():
            for asked in session.questions.values():
                if asked.number == number:
                    del session.questions[asked.call.id]
                    return session, asked
        return None


def _abort(run: OwnRun) -> Procedure:
    yield AskPool("abort", {"session": run.session, "run": run.id})
