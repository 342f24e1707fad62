"""Attaches sessions of the pool, and follows them: events, questions, the way back after a lost connection. Pure."""

from typing import TypeVar

import msgspec

from doors.acp.answers import config_options
from doors.acp.procedures import NO_SUPERVISOR, AskPool, AwaitRun, OwnRun, PoolRefused, Procedure
from doors.acp.questions import MAX_PAGES, Question, UnusableAnswer
from doors.acp.requests import (
    CallPageAnswer,
    OpenSessionParams,
    PushedEvents,
    QuestionAsked,
    QuestionDecided,
    RunEnded,
    SessionOpened,
    SessionSettings,
    SettingsPatched,
    SubscribeAnswer,
)
from doors.acp.session import SUBSCRIBED_KINDS, AskedQuestion, EditorSession, SessionPhase
from doors.acp.state import DoorState
from doors.acp.updates import context_line, undecided_line, update_line
from wire.call_page import CallPart
from wire.events import EventType
from wire.framing import DECODE_ERRORS
from wire.messages import ErrorBody, EventEnvelope

_WAIT_MS = 86_400_000
_MAX_EARLY = 256
"""Pushes of subscriptions whose answer has not come yet."""
_MAX_ASKED = 3
"""How often the editor is asked about a call, as long as what it answers is refused."""
T = TypeVar("T")
_envelopes = msgspec.json.Decoder(list[EventEnvelope])
_pushes = msgspec.json.Decoder(PushedEvents)


def read_answer(kind: type[T], raw: msgspec.Raw) -> T:
    """What the pool has answered. Raises PoolRefused for what no supervisor of this version answers."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except DECODE_ERRORS as exc:
        text = f"what answers on the socket is no supervisor of this version: {exc}"
        raise PoolRefused(ErrorBody("protocol_violation", text)) from exc


class SessionFollower:
    """Keeps the sessions of a ``DoorState`` attached."""

    def __init__(self, state: DoorState) -> None:
        self._state = state
        self._early: list[PushedEvents] = []
        self._subscribing = 0

    # --- attaching ----------------------------------------------------------------------------------------------------

    def attach(self, opened: SessionOpened, params: OpenSessionParams) -> Procedure:
        """Follow a session from ``opened.head`` on; does nothing where it is followed already."""
        known = self._state.sessions.get(opened.session)
        if known is not None and known.is_open:
            known.settings = opened.options
            known.servers = params.servers
            return
        session = EditorSession(opened, params, self._state.wishes, self._state.is_own)
        followed = yield from self._subscribe(session, since=opened.head)
        other = self._state.sessions.get(session.key)
        if other is not None and other.is_open:  # two requests have opened it at the same time
            yield AskPool("unsubscribe", {"subscription": followed.subscription})
            return
        self._state.sessions[session.key] = session
        if opened.context is not None:
            self._state.to_editor.append(context_line(session.key, opened.context))
        self._claim(session, followed)

    def _subscribe(self, session: EditorSession, since: int | None) -> Procedure:
        begin = {} if since is None else {"since": since}
        self._subscribing += 1
        try:
            answer = yield AskPool("subscribe", {"session": session.key, "kinds": SUBSCRIBED_KINDS, **begin})
        finally:
            self._subscribing -= 1
        return read_answer(SubscribeAnswer, answer)

    def _claim(self, session: EditorSession, followed: SubscribeAnswer) -> None:
        session.subscription = followed.subscription
        early, self._early = self._early, []
        if self._subscribing:
            self._early = [pushed for pushed in early if pushed.subscription != followed.subscription]
        for pushed in early:
            if pushed.subscription == followed.subscription:
                self._take(session, pushed)

    def on_connected(self) -> None:
        """There is a connection again: what was attached comes back, with what has happened since."""
        for session in list(self._state.sessions.values()):
            if session.phase is SessionPhase.LOST:
                session.move(SessionPhase.RETURNING)
                self._state.run_in_background(self._or_forget(session, self._return(session)))

    def on_lost(self, error: ErrorBody) -> None:
        """The connection has ended: what was asked is not answered, and the runs go on unseen."""
        self._early.clear()
        sessions = list(self._state.sessions.values())
        for session in sessions:
            session.subscription = None
        self._state.runner.fail_requests(error)
        for session in sessions:
            if session.phase in (SessionPhase.LIVE, SessionPhase.RETURNING):
                session.move(SessionPhase.LOST)
            self._drop_questions(session)
            self._end_runs(session, error)

    def _or_forget(self, session: EditorSession, procedure: Procedure) -> Procedure:
        """A session that cannot be followed any more is open no longer: it was deleted, say, or has moved."""
        try:
            yield from procedure
        except PoolRefused as refused:
            if refused.error.code != NO_SUPERVISOR:
                self.forget(session, refused.error)
            raise

    def _return(self, session: EditorSession) -> Procedure:
        asked = {"session": session.key, "cwd": session.cwd, "exists": True, "mcp_servers": session.servers}
        answer = yield AskPool("sessions.open", asked)
        session.unasked = list(read_answer(SessionOpened, answer).pending)
        yield from self._resubscribe(session, since=session.bookmark)
        self.ask_pending(session)

    def _resubscribe(self, session: EditorSession, since: int | None) -> Procedure:
        followed = yield from self._subscribe(session, since)
        if session.phase is SessionPhase.CLOSED:  # meanwhile
            yield AskPool("unsubscribe", {"subscription": followed.subscription})
            return
        if session.phase is SessionPhase.RETURNING:
            session.move(SessionPhase.LIVE)
        if not followed.complete:
            self._await_runs(session)
        self._claim(session, followed)

    def _await_runs(self, session: EditorSession) -> None:
        """Events are gone for good: ask for the ends of the runs."""
        for run in list(session.runs.values()):
            self._state.run_in_background(self._await_outcome(run))

    def _await_outcome(self, run: OwnRun) -> Procedure:
        """The end of a run, however long it takes; one that the pool does not know has ended with that error."""
        asked = {"session": run.session, "run_id": run.id, "timeout_ms": _WAIT_MS}
        while run.end is None:
            try:
                end = read_answer(RunEnded, (yield AskPool("agent.wait", asked)))
            except PoolRefused as refused:
                if run.is_accepted:
                    self._state.runner.on_run_ended(run, RunEnded("error", error=refused.error))
                return
            if end.status != "timeout":
                self._state.runner.on_run_ended(run, end)

    def close(self, session: EditorSession) -> Procedure:
        """End its runs, as far as the editor has begun them, and follow it no longer."""
        session.move(SessionPhase.CLOSING)
        runs = list(session.runs.values())
        for run in runs:
            self._state.cancel(run)
        for run in runs:
            try:
                yield AwaitRun(run)
            except PoolRefused:
                continue  # it has ended all the same
        subscription, session.subscription = session.subscription, None
        self.forget(session, ErrorBody("usage", "the session was closed"))
        if subscription is not None:
            yield AskPool("unsubscribe", {"subscription": subscription})

    def forget(self, session: EditorSession, error: ErrorBody) -> None:
        """It is not attached any more; runs of the editor that have no end yet end with the error."""
        if session.phase is SessionPhase.LOST:
            session.move(SessionPhase.CLOSING)
        if session.phase is not SessionPhase.CLOSED:
            session.move(SessionPhase.CLOSED)
        self._drop_questions(session)
        self._end_runs(session, error)
        if self._state.sessions.get(session.key) is session:
            del self._state.sessions[session.key]

    def _drop_questions(self, session: EditorSession) -> None:
        for asked in list(session.questions.values()):
            self._state.withdraw(session, asked)

    def _end_runs(self, session: EditorSession, error: ErrorBody) -> None:
        for run in list(session.runs.values()):
            self._state.runner.on_run_ended(run, PoolRefused(error))

    # --- events -------------------------------------------------------------------------------------------------------

    def on_push(self, name: str, data: msgspec.Raw) -> None:
        """``events`` or ``subscription_ended`` of the pool; anything else is passed over."""
        if name not in ("events", "subscription_ended"):
            return
        try:
            pushed = _pushes.decode(data)
        except DECODE_ERRORS:
            return
        for session in self._state.sessions.values():
            if session.subscription == pushed.subscription:
                self._take(session, pushed)
                return
        if self._subscribing and len(self._early) < _MAX_EARLY:
            self._early.append(pushed)

    def _take(self, session: EditorSession, pushed: PushedEvents) -> None:
        if pushed.reason is not None:
            session.subscription = None
            if pushed.reason in ("behind", "unreadable"):
                since = session.bookmark if pushed.reason == "behind" else None
                self._state.run_in_background(self._or_forget(session, self._resubscribe(session, since)))
            return
        for event in _envelopes.decode(pushed.events):
            session.bookmark = event.seq
            try:
                self._state.to_editor.extend(session.updates.of_event(event))
                self._note(session, event)
            except DECODE_ERRORS:
                continue  # another version's; the events after it count all the same

    def _note(self, session: EditorSession, event: EventEnvelope) -> None:
        """What an event means beside what is sent of it."""
        match event.type:
            case EventType.RUN_START if not session.knows_offers:
                session.knows_offers = True  # its worker is ready, and has said what there is
                self._state.run_in_background(self._tell_settings(session))
            case EventType.DONE:
                self._run_ended(session, event.run_id or "", msgspec.json.decode(event.data, type=RunEnded))
            case EventType.PERMISSION_REQUIRED:
                self._ask(session, event.run_id, msgspec.json.decode(event.data, type=QuestionAsked))
            case EventType.PERMISSION_DECIDED:
                decided = msgspec.json.decode(event.data, type=QuestionDecided)
                asked = session.questions.get(decided.call_id)
                if asked is not None:
                    self._state.withdraw(session, asked)
            case EventType.SESSION_PATCHED:
                changed = msgspec.json.decode(event.data, type=SettingsPatched).changed
                if "model" in changed or "thinking" in changed:
                    self._state.run_in_background(self._tell_settings(session))
            case EventType.SESSION_DELETED:
                self.forget(session, ErrorBody("usage", f"session {session.key} was deleted"))

    def _run_ended(self, session: EditorSession, run: str, end: RunEnded) -> None:
        for asked in list(session.questions.values()):
            if asked.run == run or (asked.run is None and end.worker is not None):
                self._state.withdraw(session, asked)
        if run in session.runs:
            self._state.runner.on_run_ended(session.runs[run], end)

    def _tell_settings(self, session: EditorSession) -> Procedure:
        settings = read_answer(SessionSettings, (yield AskPool("sessions.options", {"session": session.key})))
        if settings != session.settings:
            session.settings = settings
            options = config_options(settings)
            self._state.to_editor.append(update_line(session.key, "config_option_update", configOptions=options))

    # --- questions ----------------------------------------------------------------------------------------------------

    def ask_pending(self, session: EditorSession) -> None:
        """Ask what waited for a decision when the session was attached."""
        unasked, session.unasked = session.unasked, []
        for call in unasked:
            self._ask(session, None, QuestionAsked(call=call, reason=call.reason))

    def _ask(self, session: EditorSession, run: str | None, data: QuestionAsked, times: int = 1) -> None:
        if data.call.id in session.questions or self._state.sessions.get(session.key) is not session:
            return
        call = data.call
        asked = session.questions[call.id] = AskedQuestion(call, run, times)
        announced = session.updates.announce_call(run or "", call.id, call.name, call.input_preview)
        self._state.to_editor.extend(announced)
        self._state.runner.start(
            self._show_and_ask(session, asked, data), lambda _result, error: self._give_up(session, asked, error)
        )

    def _give_up(self, session: EditorSession, asked: AskedQuestion, error: Exception | None) -> None:
        if error is not None and session.questions.get(asked.call.id) is asked:
            del session.questions[asked.call.id]  # it cannot be shown, and is left to others

    def _show_and_ask(self, session: EditorSession, asked: AskedQuestion, data: QuestionAsked) -> Procedure:
        """All of the call is put before the editor, however long: what was not shown cannot be allowed."""
        parts: list[CallPart] = []
        page, pages = data.shown, 1
        while page is None or page.hidden:
            if page is not None and pages == MAX_PAGES:
                break
            offset = 0 if page is None else page.end
            _append(parts, [] if page is None else page.parts)
            asking = {"session": session.key, "call_id": asked.call.id, "offset": offset}
            page, pages = read_answer(CallPageAnswer, (yield AskPool("approvals.show", asking))).page, pages + 1
        _append(parts, page.parts)
        if session.questions.get(asked.call.id) is not asked:
            return  # it was decided meanwhile
        question = Question(data.call, data.reason, parts, data.options, page.seen, is_whole=not page.hidden)
        asked.question = question
        asked.number = self._state.ask_editor("session/request_permission", question.request_params(session.key))

    def on_editor_answer(self, number: object, result: msgspec.Raw | None) -> None:
        """The editor has answered one of our requests.

        One that decides nothing denies the call where the editor's own prompt has led to it, whose turn would wait for
        ever; calls of others are left to them. After the prompt was cancelled it only says so.
        """
        found = self._state.take_question(number)
        if found is None or (question := found[1].question) is None:
            return
        session, asked = found
        try:
            decision = question.read_decision(result, void=asked.is_void)
        except UnusableAnswer as exc:
            is_own = asked.run in session.runs and not asked.is_void
            decision = question.denial(str(exc)) if is_own else None
        if decision is not None:
            self._state.run_in_background(self._decide(session, asked, question, decision))

    def _decide(
        self, session: EditorSession, asked: AskedQuestion, question: Question, decision: dict[str, object]
    ) -> Procedure:
        """Pass a decision on; one that is refused leaves the call waiting, or comes too late: that shows when asked."""
        try:
            yield AskPool("decide", {"session": session.key, **decision})
        except PoolRefused as refused:
            if refused.error.code == NO_SUPERVISOR:
                return  # what waits is asked about when the session comes back
            words = f"The decision was refused: {refused.error.message}."
            if asked.times < _MAX_ASKED:
                again = QuestionAsked(call=question.call, reason=words, options=list(question.options))
                self._ask(session, asked.run, again, times=asked.times + 1)
            else:
                self._state.to_editor.append(undecided_line(session.key, asked.call.id, words))


def _append(parts: list[CallPart], more: list[CallPart]) -> None:
    """A part that a page has cut goes on in the next one."""
    for part in more:
        if parts and part.offset and parts[-1].name == part.name:
            parts[-1] = msgspec.structs.replace(parts[-1], text=parts[-1].text + part.text)
        else:
            parts.append(part)
