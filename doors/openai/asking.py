"""One request for an answer on its way through the pool: its run begun, followed, and what becomes of it afterwards.

What its peer leaves behind depends on ``http.abort_on_disconnect``. A request never has its words put into a turn that
runs already: it waits for it, and has one of its own. After an answer that does not fit what was asked for, the agent
is asked again in a second run.
"""

import uuid
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
import trio
from starlette.types import Receive

from doors.http.access import Identity
from doors.http.caller import HttpCaller
from doors.http.services import Services
from doors.http.watching import until_gone
from doors.openai.conversation import Prompt, news_prompt, whole_prompt
from doors.openai.fitting import correction, misfit, shown, together
from doors.openai.forgetting import Forgetting
from doors.openai.model_input import ModelInput
from doors.openai.places import Place, is_stored, second_run_of
from doors.openai.refusals import PreviousLost, UnfitAnswer
from doors.openai.schemas import Schemas
from doors.openai.unanswered import Unanswered
from errors import Conflict, PoolClosed, PoolError, UsageError, error_from_wire, ungrouped
from gateway.run import DoneReason, RunOutcome
from wire.messages import AnswerOptions

__all__ = ["Asking", "Question"]

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
