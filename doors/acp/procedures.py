"""Runs procedures: what a request of the editor needs of the pool, one step after the other. Pure.

A procedure is a generator. It yields ``AskPool`` and gets what the pool answers, or ``AwaitRun`` and gets how the run
ended; either may raise PoolRefused within it.
"""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeAlias

import msgspec

from doors.acp.jsonrpc import FAILED, INVALID_PARAMS, EditorError
from doors.acp.requests import RunEnded
from wire.messages import ErrorBody, Message, RequestMessage

NO_SUPERVISOR = "no_supervisor"
"""The code of the error where there is no connection."""
_MAX_REQUEST_BYTES = 8 * 1024 * 1024 - 4096
"""What the control socket takes as one request, less a margin."""
_encode = msgspec.json.Encoder().encode


class PoolRefused(Exception):
    """The pool has answered with an error, or is gone."""

    def __init__(self, error: ErrorBody) -> None:
        super().__init__(error.message)
        self.error = error


class AskPool(NamedTuple):
    """A request to the pool."""

    method: str
    params: dict[str, Any]


class OwnRun:
    """A run whose message the editor has sent; ``id`` is its key at the pool."""

    def __init__(self, identity: str, session: str, request: msgspec.Raw) -> None:
        self.id = identity
        self.session = session
        self.request = request
        self.is_accepted = False
        self.is_cancelled = False
        self.end: RunEnded | PoolRefused | None = None


class AwaitRun(NamedTuple):
    """The end of a run."""

    run: OwnRun


Procedure: TypeAlias = Generator[AskPool | AwaitRun, Any, Any]
OnEnd: TypeAlias = Callable[[Any, EditorError | None], None]


def as_editor_error(error: ErrorBody, **more: Any) -> EditorError:
    """The pool's error in the editor's terms: what its user got wrong, or what has failed."""
    retry_after = error.data.get("retry_after")
    facts = {"code": error.code, **({} if retry_after is None else {"retry_after": retry_after}), **more}
    return EditorError(INVALID_PARAMS if error.code == "usage" else FAILED, error.message, facts)


class _Running(NamedTuple):
    procedure: Procedure
    on_end: OnEnd


class StepRunner:
    """All procedures under way. ``send`` takes requests as lines for the pool."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._last_id = 0
        self._asked: dict[str, _Running] = {}
        self._awaiting: dict[str, list[_Running]] = {}

    def start(self, procedure: Procedure, on_end: OnEnd) -> None:
        """Begin one; ``on_end`` gets its result or its error."""
        self._step(_Running(procedure, on_end), lambda: next(procedure))

    def on_answer(self, answer: Message) -> None:
        """The pool has answered a request."""
        running = self._asked.pop(str(answer.id), None)
        if running is None:
            return
        if answer.error is not None:
            self._throw(running, PoolRefused(answer.error))
        else:
            self._step(running, lambda: running.procedure.send(answer.result))

    def on_run_ended(self, run: OwnRun, end: RunEnded | PoolRefused) -> None:
        """A run has ended; the first end counts."""
        if run.end is None:
            run.end = end
            for running in self._awaiting.pop(run.id, ()):
                self._resume(running, end)

    def fail_requests(self, error: ErrorBody) -> None:
        """None of the requests so far will be answered."""
        asked, self._asked = self._asked, {}
        for running in asked.values():
            self._throw(running, PoolRefused(error))

    def _resume(self, running: _Running, end: RunEnded | PoolRefused) -> None:
        if isinstance(end, PoolRefused):
            self._throw(running, end)
        else:
            self._step(running, lambda: running.procedure.send(end))

    def _throw(self, running: _Running, error: Exception) -> None:
        self._step(running, lambda: running.procedure.throw(error))

    def _step(self, running: _Running, advance: Callable[[], AskPool | AwaitRun]) -> None:
        try:
            step = advance()
        except StopIteration as ended:
            running.on_end(ended.value, None)
        except EditorError as error:
            running.on_end(None, error)
        except PoolRefused as refused:
            running.on_end(None, as_editor_error(refused.error))
        else:
            self._begin(running, step)

    def _begin(self, running: _Running, step: AskPool | AwaitRun) -> None:
        if isinstance(step, AwaitRun):
            if step.run.end is None:
                self._awaiting.setdefault(step.run.id, []).append(running)
            else:
                self._resume(running, step.run.end)
            return
        self._last_id += 1
        line = _encode(RequestMessage(str(self._last_id), step.method, step.params)) + b"\n"
        if len(line) > _MAX_REQUEST_BYTES:
            text = f"params: the message has {len(line):,} bytes, and {_MAX_REQUEST_BYTES:,} are taken"
            self._throw(running, EditorError(INVALID_PARAMS, text))
            return
        self._asked[str(self._last_id)] = running
        self._send(line)
