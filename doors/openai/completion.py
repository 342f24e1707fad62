"""One completion, streamed or not.

Which conversations stand where they stood before their last run: it failed, or its client left without the answer.

Then ``previous_response_id`` may name the same response once more, as a client that tries again does. Pure; in memory
for one life of the supervisor.

One request for an answer on its way through the pool: its run begun, followed, and what becomes of it afterwards.

What its peer leaves behind depends on ``http.abort_on_disconnect``. A request never has its words put into a turn that
runs already: it waits for it, and has one of its own. After an answer that does not fit what was asked for, the agent
is asked again in a second run.

An answer as a stream of server-sent events, each as soon as the agent says it.

The stream begins with the first word, or when the agent has been silent for some time: what goes wrong before has a
status of its own, what goes wrong later is the stream's last message.
"""

import uuid
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

import msgspec
import trio
from starlette.types import Receive, Scope, Send

from doors.http.access import Identity
from doors.http.errors import told
from doors.http.services import HttpCaller, Services, until_gone
from doors.openai.answer_checks import Schemas, StopCutter, correction, misfit, shown, together
from doors.openai.cleanup import Forgetting
from doors.openai.completion_bodies import WAITING, Words
from doors.openai.errors import PreviousLost, UnfitAnswer, render
from doors.openai.prompts import Prompt, news_prompt, whole_prompt
from doors.openai.requests import ModelInput
from doors.openai.session_ref import Place, is_stored, second_run_of
from errors import Conflict, PoolClosed, PoolError, UsageError, error_from_wire, ungrouped
from gateway.runs.run import DoneReason, RunOutcome
from wire.messages import AnswerOptions
from wire.sse import STREAM_HEADERS

_MOST = 2000


class _Attempt(NamedTuple):
    """A run that no client has an answer of, and the run whose response it was to continue."""

    run: str
    continues: str


class Unanswered:
    """The latest attempt of each session, for the 2,000 sessions noted last."""

    def __init__(self) -> None:
        self._attempts: dict[str, _Attempt] = {}

    def note(self, session: str, run: str, continues: str) -> None:
        """The ``run`` was to continue the response of ``continues``, and its client has no answer."""
        self._attempts.pop(session, None)
        self._attempts[session] = _Attempt(run, continues)
        if len(self._attempts) > _MOST:
            del self._attempts[next(iter(self._attempts))]

    def stands_at(self, session: str, last_run: str | None, continues: str | None) -> bool:
        """Whether all that the session has begun since ``continues``, up to ``last_run``, was unanswered."""
        return self._attempts.get(session) == (last_run, continues)


Take = Callable[[str, bytes], Awaitable[None]]
_LONGEST_WAIT_MS = 86_400_000


class Question(NamedTuple):
    """What is asked, by whom, and where."""

    request: ModelInput
    place: Place
    identity: Identity


class Asking:
    """Used once."""

    def __init__(
        self,
        services: Services,
        forgetting: Forgetting,
        schemas: Schemas,
        unanswered: Unanswered,
        question: Question,
    ) -> None:
        self._services = services
        self._forgetting = forgetting
        self._schemas = schemas
        self._unanswered = unanswered
        self._request, self._place, self._identity = question
        self._run_id = self._place.run

    @property
    def wanted(self) -> AnswerOptions:
        """The options of the answer."""
        return self._request.answer

    async def answer(self, receive: Receive, take: Take | None = None) -> RunOutcome | None:
        """The outcome of a run that has ended well; None where the peer has left. ``take`` gets its events.

        Raises PoolError, whatever it is that went wrong.
        """
        knows = await self._look()
        self._forgetting.take(self._place.session)
        try:
            outcome = await self._follow(receive, take, knows=knows)
        except PoolError as exc:
            self._note_unanswered()
            self._settle_refused(exc, knows=knows)
            raise
        except BaseException:  # the connection is cut, whatever goes on on it
            self._settle_left()
            raise
        if outcome is None:
            self._settle_left()
            return None
        self._settle(outcome)
        if outcome.error is not None:
            self._note_unanswered()
        return _checked(outcome)

    async def _look(self) -> bool:
        """Whether the session knows the conversation so far. Raises UsageError where it is another agent's."""
        session = self._place.session
        try:
            view: Any = await self._call("sessions.get", {"session": session})
        except UsageError:
            view = None  # there is none: the key itself was looked at before
        if self._place.continues is not None:
            self._check_previous(view)
        if view is None or view.transcript is None:
            return False
        if view.agent != self._request.model:
            text = f"session {session} is a conversation with {view.agent!r}; name another session to ask another agent"
            raise UsageError(text, param="model")
        return True

    def _check_previous(self, view: Any) -> None:
        """Raise PreviousLost where the session is gone, or one of this door's own has been continued since."""
        place = self._place
        if view is None or view.transcript is None:
            raise PreviousLost("its conversation is not kept any more; send all of it")
        runs = {run for first in (place.run, place.continues) if first for run in (first, second_run_of(first))}
        is_latest = view.last_run in runs or self._unanswered.stands_at(place.session, view.last_run, place.continues)
        if place.is_ours and not is_latest:
            raise PreviousLost("it has been continued already; only the latest response of a conversation can be")

    # --- the run ----------------------------------------------------------------------------------------------------

    async def _follow(self, receive: Receive, take: Take | None, *, knows: bool) -> RunOutcome | None:
        outcome = None
        caller = HttpCaller(self._identity, uuid.uuid4().hex, take=take)
        with ungrouped(), self._services.closing.scope() as closing:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_when_gone, receive, nursery.cancel_scope)
                outcome = await self._fitting(await self._prompt(caller, knows=knows))
                nursery.cancel_scope.cancel()
        if closing.cancelled_caught and outcome is None:
            raise PoolClosed("the supervisor closed before the run had ended", cut_short=True)
        return outcome

    async def _prompt(self, caller: HttpCaller, *, knows: bool) -> RunOutcome:
        """A request that is sent again means the same run, although its session may know more, or less, by now."""
        try:
            return await self._run(caller, knows=knows)
        except Conflict:
            if not self._place.is_keyed or self._place.continues is not None:
                raise
        return await self._run(caller, knows=not knows)

    async def _run(self, caller: HttpCaller, *, knows: bool) -> RunOutcome:
        prompt = news_prompt(self._request) if knows else whole_prompt(self._request)
        outcome: RunOutcome = await self._services.call("prompt", self._params(prompt), caller)
        return outcome

    async def _fitting(self, outcome: RunOutcome) -> RunOutcome:
        """The outcome as the client is shown it; of a second run where the first does not fit. Raises UnfitAnswer."""
        first = shown(outcome, self.wanted)
        problem = await misfit(first, self.wanted, self._schemas)
        if problem is None:
            return first
        self._run_id = second_run_of(self._place.run)
        params = self._params(Prompt(correction(self.wanted, problem), [], []))
        second = shown(await self._call("prompt", params), self.wanted)
        problem = await misfit(second, self.wanted, self._schemas)
        if problem is not None:
            raise UnfitAnswer(self._request.model, problem)
        return together(first, second)

    def _params(self, prompt: Prompt) -> dict[str, Any]:
        place = self._place
        results = [{"tool_use_id": place.call_in(call), "content": content} for call, content in prompt.results]
        return {
            "session": place.session,
            "run": self._run_id,
            "agent": self._request.model,
            "text": prompt.text,
            "images": prompt.images,
            "client_tools": self._request.tools,
            "tool_results": results,
            "answer": None if self.wanted == AnswerOptions() else self.wanted,
            "queue": "followup",
        }

    async def _call(self, method: str, params: dict[str, Any]) -> Any:
        return await self._services.call(method, params, HttpCaller(self._identity, uuid.uuid4().hex))

    # --- afterwards -------------------------------------------------------------------------------------------------

    def _settle(self, outcome: RunOutcome) -> None:
        if not self._place.is_ours:
            return
        if is_stored(self._place.session) or outcome.reason is DoneReason.TOOL_CALLS:
            self._forgetting.keep(self._place.session)
        else:
            self._forgetting.at_once(self._place.session)

    def _settle_refused(self, error: PoolError, *, knows: bool) -> None:
        """Nothing was begun. Of a key that stands for another request, the session is that one's."""
        if not self._place.is_ours or isinstance(error, Conflict):
            return
        if knows:
            self._forgetting.keep(self._place.session)
        else:
            self._forgetting.at_once(self._place.session)

    def _note_unanswered(self) -> None:
        if self._place.continues is not None:
            self._unanswered.note(self._place.session, self._run_id, self._place.continues)

    def _settle_left(self) -> None:
        self._note_unanswered()
        is_over = self._place.is_ours and not is_stored(self._place.session)
        self._forgetting.after(self._end_alone, self._place.session if is_over else None)
        if self._place.is_ours and not is_over:
            self._forgetting.keep(self._place.session)

    async def _end_alone(self) -> None:
        """Until the run has ended of which nobody hears any more; it need not have been begun."""
        place = self._place
        if self._services.settings.abort_on_disconnect:
            await self._call("abort", {"session": place.session, "run": self._run_id})
        if place.is_ours and not is_stored(place.session):
            params = {"session": place.session, "run_id": self._run_id, "timeout_ms": _LONGEST_WAIT_MS}
            while not isinstance(await self._call("agent.wait", params), RunOutcome):
                pass


async def _cancel_when_gone(receive: Receive, scope: trio.CancelScope) -> None:
    await until_gone(receive)
    scope.cancel()


def _checked(outcome: RunOutcome) -> RunOutcome:
    """Raises what the run failed with."""
    if outcome.error is not None:
        raise error_from_wire(outcome.error.code, outcome.error.message, msgspec.to_builtins(outcome.error.data))
    return outcome


_QUIET_SECONDS = 15.0
"""After so long without a word a comment is sent: proxies keep the connection, a peer that has gone is noticed."""

Headers = dict[str, str]


class Messages(Protocol):
    """Makes the messages of one stream."""

    def text(self, text: str) -> bytes:
        """More of the answer."""
        ...

    def end(self, outcome: RunOutcome) -> bytes:
        """The last messages."""
        ...

    def failed(self, error: PoolError) -> bytes:
        """The last message of a stream that fails."""
        ...


class AnswerStream:
    """One answer, held one piece at a time: a slow reader delays its stream, not the run.

    An answer of a given form comes in one piece, once it is known to fit.
    """

    def __init__(self, asking: Asking, chunks: Messages, headers: Headers) -> None:
        self._asking = asking
        self._chunks = chunks
        self._headers = [*STREAM_HEADERS, *((name.encode(), value.encode()) for name, value in headers.items())]
        self._words = Words()
        self._stops = StopCutter(asking.wanted.stop)
        self._comes_whole = asking.wanted.json is not None or bool(asking.wanted.must_call)
        self._error: PoolError | None = None
        self._has_begun = False
        self._has_left = False
        self._pieces, self._taken = trio.open_memory_channel[bytes](0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, unless the peer leaves."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ask, receive)
            await self._write(send)
        if self._has_left:
            return
        if self._error is not None and not self._has_begun:
            await render(self._error)(scope, receive, send)
            return
        last = b"" if self._error is None else self._chunks.failed(self._error)
        await send({"type": "http.response.body", "body": last, "more_body": False})

    # --- what is asked ------------------------------------------------------------------------------------------------

    async def _ask(self, receive: Receive) -> None:
        async with self._pieces:
            try:
                outcome = await self._asking.answer(receive, self._take)
            except Exception as exc:  # noqa: BLE001  # whatever goes wrong is answered
                self._error = told(exc, "a completion")
                return
            self._has_left = outcome is None
            if outcome is not None:
                rest = self._stops.end() if self._words.has_spoken else outcome.text
                said = self._chunks.text(rest) if rest else b""
                await self._pieces.send(said + self._chunks.end(outcome))

    async def _take(self, _event: str, data: bytes) -> None:
        text = "" if self._comes_whole else self._stops.push(self._words.take(data))
        if text:
            await self._pieces.send(self._chunks.text(text))
        else:
            await trio.lowlevel.checkpoint()

    # --- what is answered ---------------------------------------------------------------------------------------------

    async def _write(self, send: Send) -> None:
        """Until there is no more. Nobody else writes, so that a piece is whole or the peer is gone."""
        while True:
            piece = WAITING
            with trio.move_on_after(_QUIET_SECONDS):
                try:
                    piece = await self._taken.receive()
                except trio.EndOfChannel:
                    return
            if not self._has_begun:
                self._has_begun = True
                await send({"type": "http.response.start", "status": 200, "headers": self._headers})
            await send({"type": "http.response.body", "body": piece, "more_body": True})
