"""What the pool says and does as an ACP agent: lines of an editor and of the supervisor in, lines to both out. Pure.

An editor's session is a session of the pool, and its id is the key. All that happens there is sent, whatever began it.
A prompt of the editor is a run; it goes on when the editor leaves.
"""

from typing import Any

import msgspec

from doors.acp.answers import initialize_result
from doors.acp.attaching import SessionFollower
from doors.acp.jsonrpc import (
    INVALID_REQUEST,
    UNKNOWN_METHOD,
    BadLine,
    EditorAnswer,
    EditorError,
    EditorNotification,
    EditorRequest,
    decode_id,
    encode_answer,
    encode_refusal,
    read_line,
    read_params,
)
from doors.acp.methods import EditorMethods
from doors.acp.procedures import NO_SUPERVISOR
from doors.acp.requests import CancelRequestParams, InitializeParams, SessionParams
from doors.acp.state import DoorState, LaunchOptions
from wire.messages import ErrorBody, Message


class AcpMachine:
    """One agent process. What is to be written is taken with ``take_editor_lines`` and ``take_pool_lines``."""

    def __init__(self, options: LaunchOptions) -> None:
        self._state = DoorState(options)
        self._follower = SessionFollower(self._state)
        self._methods = EditorMethods(self._state, self._follower)
        self._is_initialized = False

    def take_editor_lines(self) -> list[bytes]:
        """Lines for the editor, oldest first; each is returned once."""
        lines = self._state.to_editor.copy()
        self._state.to_editor.clear()
        return lines

    def take_pool_lines(self) -> list[bytes]:
        """Requests for the supervisor, oldest first. They need a connection."""
        lines = self._state.to_pool.copy()
        self._state.to_pool.clear()
        return lines

    @property
    def needs_pool(self) -> bool:
        """Whether requests for the supervisor wait."""
        return bool(self._state.to_pool)

    # --- from the supervisor ------------------------------------------------------------------------------------------

    def on_connected(self) -> None:
        """There is a connection, the first one or another."""
        self._follower.on_connected()

    def on_lost(self, message: str) -> None:
        """There is no connection, or no more; ``message`` says to people what to do."""
        self._state.to_pool.clear()
        self._follower.on_lost(ErrorBody(NO_SUPERVISOR, f"{NO_SUPERVISOR}: {message}"))

    def on_message(self, message: Message) -> None:
        """An answer or a push."""
        if message.event is not None:
            self._follower.on_push(message.event, message.data)
        else:
            self._state.runner.on_answer(message)

    # --- from the editor ----------------------------------------------------------------------------------------------

    def on_line(self, line: bytes | None) -> None:
        """A line of the editor, without its end; None: one that was too long."""
        if line is not None and not line.strip():
            return
        match read_line(line):
            case EditorRequest() as request:
                self._serve(request)
            case EditorNotification() as notification:
                self._notify(notification)
            case EditorAnswer(identity, result):
                self._follower.on_editor_answer(decode_id(identity), result)
            case BadLine(identity, error):
                self._state.to_editor.append(encode_refusal(identity, error))

    def _serve(self, request: EditorRequest) -> None:
        method = self._methods.table.get(request.method)
        try:
            if request.method == "initialize":
                self._finish(request, self._initialize(request), None)
            elif not self._is_initialized:
                raise EditorError(INVALID_REQUEST, f"{request.method[:100]}: send initialize first")  # noqa: TRY301
            elif method is None:
                raise EditorError(UNKNOWN_METHOD, f"there is no method {request.method[:100]!r}")  # noqa: TRY301
            else:
                self._state.runner.start(method(request), lambda result, error: self._finish(request, result, error))
        except EditorError as error:
            self._finish(request, None, error)

    def _initialize(self, request: EditorRequest) -> dict[str, Any]:
        self._state.wishes = read_params(InitializeParams, request.params).wishes
        self._is_initialized = True
        return initialize_result(self._state.options.version)

    def _finish(self, request: EditorRequest, result: Any, error: EditorError | None) -> None:
        line = encode_answer(request.id, result) if error is None else encode_refusal(request.id, error)
        self._state.to_editor.append(line)
        for session in list(self._state.sessions.values()):
            self._follower.ask_pending(session)

    def _notify(self, notification: EditorNotification) -> None:
        """One that is not known, or makes no sense, has no effect."""
        try:
            match notification.method:
                case "session/cancel":
                    self._cancel(read_params(SessionParams, notification.params).session_id)
                case "$/cancel_request":
                    self._cancel_request(read_params(CancelRequestParams, notification.params).request_id)
        except EditorError:
            return

    def _cancel(self, key: str) -> None:
        session = self._state.sessions.get(key)
        if session is None:
            return
        for run in session.runs.values():
            self._state.cancel(run)
        for asked in session.questions.values():
            asked.is_void = True

    def _cancel_request(self, request: msgspec.Raw) -> None:
        wanted = decode_id(request)
        for session in self._state.sessions.values():
            for run in session.runs.values():
                if decode_id(run.request) == wanted:
                    self._state.cancel(run)
