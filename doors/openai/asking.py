"""One request for a completion on its way through the pool: its run begun, followed, and what becomes of it afterwards.

What its peer leaves behind depends on ``http.abort_on_disconnect``. A request never has its words put into a turn that
runs already: it waits for it, and has one of its own.
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
from doors.openai.forgetting import Forgetting
from doors.openai.places import Place
from doors.openai.requests import ChatRequest
from errors import Conflict, PoolClosed, PoolError, UsageError, error_from_wire, ungrouped
from gateway.run import DoneReason, RunOutcome

__all__ = ["Asking", "Question"]

Take = Callable[[str, bytes], Awaitable[None]]
_LONGEST_WAIT_MS = 86_400_000


class Question(NamedTuple):
    """What is asked, by whom, and where."""

    request: ChatRequest
    place: Place
    identity: Identity


class Asking:
    """Used once."""

    def __init__(self, services: Services, forgetting: Forgetting, question: Question) -> None:
        self._services = services
        self._forgetting = forgetting
        self._request, self._place, self._identity = question

    async def answer(self, receive: Receive, take: Take | None = None) -> RunOutcome | None:
        """The outcome of a run that has ended well; None where the peer has left. ``take`` gets its events.

        Raises PoolError, whatever it is that went wrong.
        """
        knows = await self._look()
        self._forgetting.take(self._place.session)
        try:
            outcome = await self._follow(receive, take, knows=knows)
        except PoolError as exc:
            self._settle_refused(exc, knows=knows)
            raise
        except BaseException:  # the connection is cut, whatever goes on on it
            self._settle_left()
            raise
        if outcome is None:
            self._settle_left()
            return None
        self._settle(outcome)
        return _checked(outcome)

    async def _look(self) -> bool:
        """Whether the session knows the conversation so far. Raises UsageError where it is another agent's."""
        session = self._place.session
        try:
            view: Any = await self._call("sessions.get", {"session": session})
        except UsageError:
            return False  # there is none: the key itself was looked at before
        if view.transcript is None:
            return False
        if view.agent != self._request.model:
            text = f"session {session} is a conversation with {view.agent!r}; name another session to ask another agent"
            raise UsageError(text, param="model")
        return True

    # --- the run ----------------------------------------------------------------------------------------------------

    async def _follow(self, receive: Receive, take: Take | None, *, knows: bool) -> RunOutcome | None:
        outcome = None
        caller = HttpCaller(self._identity, uuid.uuid4().hex, take=take)
        with ungrouped(), self._services.closing.scope() as closing:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_when_gone, receive, nursery.cancel_scope)
                outcome = await self._prompt(caller, knows=knows)
                nursery.cancel_scope.cancel()
        if closing.cancelled_caught and outcome is None:
            raise PoolClosed("the supervisor closed before the run had ended", cut_short=True)
        return outcome

    async def _prompt(self, caller: HttpCaller, *, knows: bool) -> RunOutcome:
        """A request that is sent again means the same run, although its session may know more, or less, by now."""
        try:
            return await self._run(caller, knows=knows)
        except Conflict:
            if not self._place.is_keyed:
                raise
        return await self._run(caller, knows=not knows)

    async def _run(self, caller: HttpCaller, *, knows: bool) -> RunOutcome:
        prompt = news_prompt(self._request) if knows else whole_prompt(self._request)
        outcome: RunOutcome = await self._services.call("prompt", self._params(prompt), caller)
        return outcome

    def _params(self, prompt: Prompt) -> dict[str, Any]:
        place = self._place
        results = [{"tool_use_id": place.call_in(call), "content": content} for call, content in prompt.results]
        return {
            "session": place.session,
            "run": place.run,
            "agent": self._request.model,
            "text": prompt.text,
            "images": prompt.images,
            "client_tools": self._tools(),
            "tool_results": results,
            "queue": "followup",
        }

    def _tools(self) -> list[dict[str, Any]]:
        if self._request.tool_choice == "none":
            return []
        return [
            {
                "name": tool.function.name,
                "description": tool.function.description or "",
                "parameters": tool.function.parameters or {"type": "object", "properties": {}},
            }
            for tool in self._request.tools or ()
        ]

    async def _call(self, method: str, params: dict[str, Any]) -> Any:
        return await self._services.call(method, params, HttpCaller(self._identity, uuid.uuid4().hex))

    # --- afterwards -------------------------------------------------------------------------------------------------

    def _settle(self, outcome: RunOutcome) -> None:
        if not self._place.is_ours:
            return
        if outcome.reason is DoneReason.TOOL_CALLS:
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

    def _settle_left(self) -> None:
        self._forgetting.after(self._end_alone, self._place.session if self._place.is_ours else None)

    async def _end_alone(self) -> None:
        """Until the run has ended of which nobody hears any more; it need not have been begun."""
        place = self._place
        if self._services.settings.abort_on_disconnect:
            await self._call("abort", {"session": place.session, "run": place.run})
        if place.is_ours:
            params = {"session": place.session, "run_id": place.run, "timeout_ms": _LONGEST_WAIT_MS}
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
