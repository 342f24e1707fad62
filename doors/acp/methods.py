"""The requests of an editor about sessions, each a procedure. Pure."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from doors.acp.answers import config_options, option_name, option_value, prompt_result, session_page
from doors.acp.attaching import SessionFollower, read_answer
from doors.acp.jsonrpc import FAILED, INVALID_PARAMS, NOT_FOUND, EditorError, EditorRequest, read_params
from doors.acp.procedures import AskPool, AwaitRun, OwnRun, PoolRefused, Procedure
from doors.acp.prompts import read_prompt
from doors.acp.replay import replay_lines
from doors.acp.requests import (
    EditorPrompt,
    HistoryAnswer,
    KnownSessionParams,
    ListedSession,
    ListParams,
    OpenSessionParams,
    SessionOpened,
    SessionParams,
    SessionSettings,
    SetOptionParams,
)
from doors.acp.session import EditorSession
from doors.acp.state import DoorState
from wire.messages import ErrorBody, omit_none

MAX_SESSIONS = 240
"""Sessions that one editor may have open: each is a subscription, of which a connection to the supervisor may have 256,
and those that are just ending count, too."""
_REPLAYED = 1_000
_NOT_ACCEPTED = PoolRefused(ErrorBody("aborted", "the prompt was not accepted"))
"""The end of a run that never began, for what waits for it."""


class EditorMethods:
    """By their names in ``table``."""

    def __init__(self, state: DoorState, follower: SessionFollower) -> None:
        self._state = state
        self._follower = follower
        self._opening = 0
        self.table: Mapping[str, Callable[[EditorRequest], Procedure]] = {
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/list": self._list,
            "session/prompt": self._prompt,
            "_session/steering": self._steer,
            "session/close": self._close,
            "session/set_config_option": self._set_option,
        }

    def attached(self, key: str) -> EditorSession:
        """A session that the editor has open. Raises EditorError."""
        session = self._state.sessions.get(key)
        if session is None or not session.is_open:
            raise EditorError(NOT_FOUND, f"session {key[:100]!r} is not open here; load or resume it first")
        return session

    # --- opening ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _place(self, key: str | None = None) -> Iterator[None]:
        """The place of a session that is being opened. Raises EditorError where there is none, before anything is made.

        ``key``: a session that exists; one that is open here has its place.
        """
        known = None if key is None else self._state.sessions.get(key)
        if known is not None and known.is_open:
            yield
            return
        if len(self._state.sessions) + self._opening >= MAX_SESSIONS:
            raise EditorError(FAILED, f"{MAX_SESSIONS} sessions are open here, which is the limit; close one first")
        self._opening += 1
        try:
            yield
        finally:
            self._opening -= 1

    def _new(self, request: EditorRequest) -> Procedure:
        params = read_params(OpenSessionParams, request.params)
        with self._place():
            return (yield from self._open_new(params))

    def _open_new(self, params: OpenSessionParams) -> Procedure:
        options = self._state.options
        name, self._state.first_session = self._state.first_session, None
        try:
            asked = omit_none(cwd=params.cwd, session=name, agent=options.agent, role=options.role)
            asked["mcp_servers"] = params.servers
            opened = read_answer(SessionOpened, (yield AskPool("sessions.open", asked)))
            yield from self._follower.attach(opened, params)
        except PoolRefused:
            self._state.first_session = name
            raise
        return {"sessionId": opened.session, **_opened_result(opened, params)}

    def _load(self, request: EditorRequest) -> Procedure:
        params = read_params(KnownSessionParams, request.params)
        with self._place(params.session_id):
            opened = yield from self._open(params)
            asked = {"session": opened.session, "limit": _REPLAYED}
            history = read_answer(HistoryAnswer, (yield AskPool("sessions.history", asked)))
            self._state.to_editor.extend(replay_lines(opened.session, history.messages))
            yield from self._follower.attach(opened, params)
        return _opened_result(opened, params)

    def _resume(self, request: EditorRequest) -> Procedure:
        params = read_params(KnownSessionParams, request.params)
        with self._place(params.session_id):
            opened = yield from self._open(params)
            yield from self._follower.attach(opened, params)
        return _opened_result(opened, params)

    def _open(self, params: KnownSessionParams) -> Procedure:
        try:
            asked = {"cwd": params.cwd, "session": params.session_id, "exists": True, "mcp_servers": params.servers}
            return read_answer(SessionOpened, (yield AskPool("sessions.open", asked)))
        except PoolRefused as refused:
            facts = refused.error.data
            if refused.error.code == "usage" and "session" in facts and "cwd" not in facts:
                raise EditorError(NOT_FOUND, refused.error.message) from refused
            raise

    def _list(self, request: EditorRequest) -> Procedure:
        params = read_params(ListParams, request.params)
        answer = yield AskPool("sessions.list", omit_none(cwd=params.cwd))
        return session_page(read_answer(list[ListedSession], answer), params.cwd, params.cursor)

    def _close(self, request: EditorRequest) -> Procedure:
        session = self.attached(read_params(SessionParams, request.params).session_id)
        yield from self._follower.close(session)
        return {}

    # --- prompts ------------------------------------------------------------------------------------------------------

    def _prompt(self, request: EditorRequest) -> Procedure:
        params = read_params(EditorPrompt, request.params)
        session = self.attached(params.session_id)
        content = read_prompt(params.prompt)
        run = OwnRun(self._state.new_run_key(request.id), session.key, request.id)
        session.runs[run.id] = run
        images = {"images": content.images} if content.images else {}
        message = {"session": session.key, "text": content.text, "run": run.id, "queue": "followup", **images}
        try:
            yield AskPool("agent", message)
        except (PoolRefused, EditorError):
            session.runs.pop(run.id, None)
            self._state.runner.on_run_ended(run, _NOT_ACCEPTED)
            raise
        run.is_accepted = True
        if run.is_cancelled:
            self._state.cancel(run)
        try:
            end = yield AwaitRun(run)
        finally:
            session.runs.pop(run.id, None)
        return prompt_result(run, end)

    def _steer(self, request: EditorRequest) -> Procedure:
        """A text for the running turn. Where no turn takes it, the editor is to send it as a prompt."""
        params = read_params(EditorPrompt, request.params)
        session = self.attached(params.session_id)
        content = read_prompt(params.prompt)
        if content.images:
            return {"outcome": "promptRequired"}
        message = {"session": session.key, "text": content.text, "run": self._state.new_run_key(request.id)}
        try:
            yield AskPool("steer", message)
        except PoolRefused as refused:
            if refused.error.code != "conflict":  # no turn takes it now
                raise
            return {"outcome": "promptRequired"}
        return {"outcome": "injected"}

    # --- options ------------------------------------------------------------------------------------------------------

    def _set_option(self, request: EditorRequest) -> Procedure:
        params = read_params(SetOptionParams, request.params)
        session = self.attached(params.session_id)
        name = option_name(params.config_id)
        session.settings = read_answer(SessionSettings, (yield AskPool("sessions.options", {"session": session.key})))
        patch = {name: option_value(name, params.value, session.settings)}
        try:
            answer = yield AskPool("sessions.patch", {"session": session.key, **patch})
        except PoolRefused as refused:
            if refused.error.code != "usage":
                raise
            raise EditorError(INVALID_PARAMS, f"params.value: {refused.error.message}") from refused
        held = read_answer(SessionSettings, answer)
        session.settings = msgspec.structs.replace(session.settings, model=held.model, thinking=held.thinking)
        return {"configOptions": config_options(session.settings)}


def _opened_result(opened: SessionOpened, params: OpenSessionParams) -> dict[str, Any]:
    """``_meta.pool.ignored``: members that were given and have no effect."""
    ignored = params.ignored(opened.ignored)
    meta = {"_meta": {"pool": {"ignored": ignored}}} if ignored else {}
    return {"configOptions": config_options(opened.options), **meta}
