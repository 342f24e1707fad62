"""One answer from an agent: its run started, followed, checked; whole or as a stream of server-sent events.

A request never joins a running turn: it waits for a turn of its own. An answer that fails its checks is corrected in a
second run. A client that leaves ends the run where ``http.abort_on_disconnect`` says so. A stream begins with the first
text, or after some silence: errors before have a status of their own, later ones are the stream's last message.
"""

import uuid
from typing import Any

import msgspec
import trio
from starlette.types import Receive, Scope, Send

from doors.http.access import TokenIdentity
from doors.http.errors import as_pool_error
from doors.http.services import KEEPALIVE_SECONDS, HttpCaller, HttpServices, PushHandler, cancel_on_disconnect
from doors.openai.answer_checks import (
    SchemaChecker,
    StopFilter,
    correction_prompt,
    find_mismatch,
    merge_usage,
    trim_answer,
)
from doors.openai.cleanup import EphemeralSessions
from doors.openai.completion_bodies import KEEPALIVE_COMMENT, Chunks, TextExtractor
from doors.openai.errors import PreviousResponseNotFound, UnfitAnswer, render
from doors.openai.prompts import RunPrompt, full_prompt, incremental_prompt
from doors.openai.requests import ModelInput
from doors.openai.responses_bodies import ResponseEvents
from doors.openai.session_ref import SessionRef, is_stored, retry_run_id
from errors import Conflict, PoolClosed, PoolError, UsageError, error_from_wire, unwrap_exception_groups
from gateway.runs.run import DoneReason, RunOutcome
from wire.messages import AnswerOptions
from wire.sse import STREAM_HEADERS

_MAX_ATTEMPTS = 2000


class UnansweredRuns:
    """The latest attempt of each session, for the 2,000 sessions noted last."""

    def __init__(self) -> None:
        self._attempts: dict[str, tuple[str, str]] = {}
        """By session: a run that no client has an answer of, and the run whose response it was to continue."""

    def record(self, session: str, run: str, continues: str) -> None:
        """The ``run`` was to continue the response of ``continues``, and its client has no answer."""
        self._attempts.pop(session, None)
        self._attempts[session] = (run, continues)
        if len(self._attempts) > _MAX_ATTEMPTS:
            del self._attempts[next(iter(self._attempts))]

    def covers(self, session: str, last_run: str | None, continues: str | None) -> bool:
        """Whether all that the session has begun since ``continues``, up to ``last_run``, was unanswered."""
        return self._attempts.get(session) == (last_run, continues)


_LONGEST_WAIT_MS = 86_400_000


class CompletionRun:
    """One answer; used once."""

    def __init__(
        self,
        services: HttpServices,
        forgetting: EphemeralSessions,
        schemas: SchemaChecker,
        unanswered: UnansweredRuns,
        *,
        request: ModelInput,
        session_ref: SessionRef,
        identity: TokenIdentity,
        trace: dict[str, str],
    ) -> None:
        self._services = services
        self._trace = trace
        self._ephemeral_sessions = forgetting
        self._schemas = schemas
        self._unanswered = unanswered
        self._request = request
        self._session_ref = session_ref
        self._identity = identity
        self._run_id = session_ref.run
        self.answer_options: AnswerOptions = request.answer

    async def answer(self, receive: Receive, take: PushHandler | None = None) -> RunOutcome | None:
        """The outcome of a run that has ended well; None where the peer has left. ``take`` gets its events.

        Raises PoolError, whatever it is that went wrong.
        """
        knows = await self._knows_conversation()
        self._ephemeral_sessions.cancel_deletion(self._session_ref.session)
        try:
            outcome = await self._follow(receive, take, knows=knows)
        except PoolError as exc:
            self._record_unanswered()
            if not isinstance(exc, Conflict):  # a key that stands for another request: the session is that one's
                self._finish(is_kept=knows)
            raise
        except BaseException:  # the connection is cut, whatever goes on on it
            self._finish_abandoned()
            raise
        if outcome is None:
            self._finish_abandoned()
            return None
        self._finish(is_kept=is_stored(self._session_ref.session) or outcome.reason is DoneReason.TOOL_CALLS)
        if outcome.error is not None:
            self._record_unanswered()
            raise error_from_wire(outcome.error.code, outcome.error.message, msgspec.to_builtins(outcome.error.data))
        return outcome

    async def _knows_conversation(self) -> bool:
        """Whether the session knows the conversation so far. Raises UsageError where it is another agent's."""
        session = self._session_ref.session
        try:
            view: Any = await self._call("sessions.get", {"session": session})
        except UsageError:
            view = None  # there is none: the key itself was looked at before
        if self._session_ref.continues is not None:
            self._check_previous(view)
        if view is None or view.transcript is None:
            return False
        if view.agent != self._request.model:
            text = f"session {session} is a conversation with {view.agent!r}; name another session to ask another agent"
            raise UsageError(text, param="model")
        return True

    def _check_previous(self, view: Any) -> None:
        """Raise PreviousResponseNotFound where the session is gone, or a session of this door continued."""
        place = self._session_ref
        if view is None or view.transcript is None:
            raise PreviousResponseNotFound("its conversation is not kept any more; send all of it")
        runs = {run for first in (place.run, place.continues) if first for run in (first, retry_run_id(first))}
        is_latest = view.last_run in runs or self._unanswered.covers(place.session, view.last_run, place.continues)
        if place.is_ours and not is_latest:
            raise PreviousResponseNotFound(
                "it has been continued already; only the latest response of a conversation can be"
            )

    # --- the run ----------------------------------------------------------------------------------------------------

    async def _follow(self, receive: Receive, take: PushHandler | None, *, knows: bool) -> RunOutcome | None:
        outcome = None
        caller = HttpCaller(self._identity, uuid.uuid4().hex, take=take)
        with unwrap_exception_groups(), self._services.shutdown.scope() as closing:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cancel_on_disconnect, receive, nursery.cancel_scope)
                outcome = await self._checked_answer(await self._prompt(caller, knows=knows))
                nursery.cancel_scope.cancel()
        if closing.cancelled_caught and outcome is None:
            raise PoolClosed("the supervisor closed before the run had ended", cut_short=True)
        return outcome

    async def _prompt(self, caller: HttpCaller, *, knows: bool) -> RunOutcome:
        """A request that is sent again means the same run, although its session may know more, or less, by now."""
        try:
            return await self._run(caller, knows=knows)
        except Conflict:
            if not self._session_ref.is_keyed or self._session_ref.continues is not None:
                raise
        return await self._run(caller, knows=not knows)

    async def _run(self, caller: HttpCaller, *, knows: bool) -> RunOutcome:
        prompt = incremental_prompt(self._request) if knows else full_prompt(self._request)
        outcome: RunOutcome = await self._services.call("prompt", self._params(prompt), caller)
        return outcome

    async def _checked_answer(self, outcome: RunOutcome) -> RunOutcome:
        """The outcome as the client is shown it; of a second run where the first does not fit. Raises UnfitAnswer."""
        first = trim_answer(outcome, self.answer_options)
        problem = await find_mismatch(first, self.answer_options, self._schemas)
        if problem is None:
            return first
        self._run_id = retry_run_id(self._session_ref.run)
        params = self._params(RunPrompt(correction_prompt(self.answer_options, problem), [], []))
        second = trim_answer(await self._call("prompt", params), self.answer_options)
        problem = await find_mismatch(second, self.answer_options, self._schemas)
        if problem is not None:
            raise UnfitAnswer(self._request.model, problem)
        return merge_usage(first, second)

    def _params(self, prompt: RunPrompt) -> dict[str, Any]:
        place = self._session_ref
        results = [{"tool_use_id": place.from_client(call), "content": content} for call, content in prompt.results]
        return {
            "session": place.session,
            "run": self._run_id,
            "agent": self._request.model,
            "text": prompt.text,
            "images": prompt.images,
            "client_tools": self._request.tools,
            "tool_results": results,
            "answer": None if self.answer_options == AnswerOptions() else self.answer_options,
            "queue": "followup",
            **self._trace,
        }

    async def _call(self, method: str, params: dict[str, Any]) -> Any:
        return await self._services.call(method, params, HttpCaller(self._identity, uuid.uuid4().hex))

    # --- afterwards -------------------------------------------------------------------------------------------------

    def _finish(self, *, is_kept: bool) -> None:
        session = self._session_ref.session
        if self._session_ref.is_ours and is_kept:
            self._ephemeral_sessions.delete_later(session)
        elif self._session_ref.is_ours:
            self._ephemeral_sessions.delete_soon(session)

    def _record_unanswered(self) -> None:
        if self._session_ref.continues is not None:
            self._unanswered.record(self._session_ref.session, self._run_id, self._session_ref.continues)

    def _finish_abandoned(self) -> None:
        self._record_unanswered()
        is_over = self._session_ref.is_ours and not is_stored(self._session_ref.session)
        self._ephemeral_sessions.delete_after(self._await_abandoned, self._session_ref.session if is_over else None)
        if self._session_ref.is_ours and not is_over:
            self._ephemeral_sessions.delete_later(self._session_ref.session)

    async def _await_abandoned(self) -> None:
        """Wait for the end of an abandoned run, which may not have begun."""
        place = self._session_ref
        if self._services.settings.abort_on_disconnect:
            await self._call("abort", {"session": place.session, "run": self._run_id})
        if place.is_ours and not is_stored(place.session):
            params = {"session": place.session, "run_id": self._run_id, "timeout_ms": _LONGEST_WAIT_MS}
            while not isinstance(await self._call("agent.wait", params), RunOutcome):
                pass


class AnswerStreamResponse:
    """One answer, held one piece at a time: a slow reader delays its stream, not the run.

    An answer of a given form comes in one piece, once it is known to fit.
    """

    def __init__(self, asking: CompletionRun, chunks: Chunks | ResponseEvents, headers: dict[str, str]) -> None:
        self._run = asking
        self._encoder = chunks
        self._headers = [*STREAM_HEADERS, *((name.encode(), value.encode()) for name, value in headers.items())]
        self._extractor = TextExtractor()
        self._stops = StopFilter(asking.answer_options.stop)
        self._is_buffered = asking.answer_options.json is not None or bool(asking.answer_options.must_call)
        self._error: PoolError | None = None
        self._has_begun = False
        self._is_abandoned = False
        self._pieces, self._received = trio.open_memory_channel[bytes](0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, unless the peer leaves."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._produce, receive)
            await self._write(send)
        if self._is_abandoned:
            return
        if self._error is not None and not self._has_begun:
            await render(self._error)(scope, receive, send)
            return
        last = b"" if self._error is None else self._encoder.failed(self._error)
        await send({"type": "http.response.body", "body": last, "more_body": False})

    # --- what is asked ------------------------------------------------------------------------------------------------

    async def _produce(self, receive: Receive) -> None:
        async with self._pieces:
            try:
                outcome = await self._run.answer(receive, self._on_push)
            except Exception as exc:  # noqa: BLE001  # whatever goes wrong is answered
                self._error = as_pool_error(exc, "a completion")
                return
            self._is_abandoned = outcome is None
            if outcome is not None:
                rest = self._stops.end() if self._extractor.has_text else outcome.text
                said = self._encoder.text(rest) if rest else b""
                await self._pieces.send(said + self._encoder.end(outcome))

    async def _on_push(self, _event: str, data: bytes) -> None:
        text = "" if self._is_buffered else self._stops.push(self._extractor.feed(data))
        if text:
            await self._pieces.send(self._encoder.text(text))
        else:
            await trio.lowlevel.checkpoint()

    # --- what is answered ---------------------------------------------------------------------------------------------

    async def _write(self, send: Send) -> None:
        """Until there is no more. This task alone writes: a piece is sent whole, or the peer is gone."""
        while True:
            piece = KEEPALIVE_COMMENT
            with trio.move_on_after(KEEPALIVE_SECONDS):
                try:
                    piece = await self._received.receive()
                except trio.EndOfChannel:
                    return
            if not self._has_begun:
                self._has_begun = True
                await send({"type": "http.response.start", "status": 200, "headers": self._headers})
            await send({"type": "http.response.body", "body": piece, "more_body": True})
