"""Tool calls of one answer.

A bounded number of places, handed out strictly in the order in which they were asked for.

The tool calls of one model answer, from the rules to the results: exactly one result each, in call order.

Calls are judged one after the other, then run a few at a time; places are handed out in the order in which calls may
run, and those that wait for a person hold nobody up. What must be on the disk, and when: that a tool with effects runs,
before it begins; a decision, before it acts (both are one wait, shared by calls that begin together); the results,
before the next model call, which is the caller's part.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, NoReturn, TypeAlias

import msgspec
import trio

from agent.approvals import Approvals, ApprovalVerdict, CallDescription, PendingApproval
from agent.hook_types import Ask, Change, Deny, HookFailed, ToolVerdict, UseResult
from agent.hooks import Hooks
from agent.policy import HARMLESS_EFFECTS, Allowed, ApprovalNeeded, CallRejected, Policy, evaluate
from agent.results import CallResult, aborted, denied, failure, is_json, of_error, of_exception, success, timed_out
from agent.tool_call import CallLog, Emit, EndState, ToolCallTracker
from agent.tools.base import Report, Tool, ToolContext, ToolError, ToolOutput
from wire.entries import CallRecord, CallState, ImageBlock, ToolResultBlock, ToolUseBlock
from wire.messages import Breakpoint
from wire.transcript_repair import TranscriptError


class FifoLimiter:
    """Unlike a semaphore's, the order is that of ``ticket``, which does not wait, and not that of the tasks' waits."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: deque[trio.Event] = deque()

    def acquire(self) -> trio.Event:
        """Stand in line; the event is set once the place is yours, to be given back with ``give_back``."""
        turn = trio.Event()
        self._waiting.append(turn)
        self._grant()
        return turn

    def release(self) -> None:
        """Let the next one have the place."""
        self._free += 1
        self._grant()

    def _grant(self) -> None:
        while self._free and self._waiting:
            self._free -= 1
            self._waiting.popleft().set()


ContextFor: TypeAlias = Callable[[ToolUseBlock, Report], ToolContext]
"""What a call may use; the second argument is its ``report``."""


class _CallOutcome(NamedTuple):
    state: EndState
    result: CallResult
    images: list[ImageBlock] = []  # noqa: RUF012 - a named tuple's default, which nobody changes


class CallRunner:
    """The calls of one answer; used once. ``results`` fills while ``run`` runs; ``close`` fails what is left."""

    def __init__(
        self,
        calls: Sequence[ToolUseBlock],
        *,
        tools: Mapping[str, Tool],
        policy: Policy,
        approvals: Approvals,
        hooks: Hooks,
        journal: CallLog,
        context_for: ContextFor,
        say: Emit,
    ) -> None:
        self._tools = tools
        self._policy = policy
        self._approvals = approvals
        self._hooks = hooks
        self._log = journal
        self._context_for = context_for
        self._emit = say
        self._calls = [ToolCallTracker(call, journal, say) for call in calls]

    def results(self) -> list[ToolResultBlock]:
        """What there is so far, in call order."""
        return [live.result for live in self._calls if live.result is not None]

    async def run(self, parallel: int) -> None:
        """Run all calls, at most ``parallel`` at a time. Raises TranscriptError; ``close`` is to be called even so."""
        slots = FifoLimiter(parallel)
        try:
            async with trio.open_nursery() as nursery:
                for live in self._distinct():
                    await self._prepare(live, slots, nursery)
        except BaseExceptionGroup as group:
            _raise_transcript_error(group)
            raise

    def breakpoint(self) -> Breakpoint:
        """Where the step stands: the first state in the order of ``_BREAKPOINTS`` that one of its calls has."""
        records = [live.record for live in self._calls]
        for state, name in _BREAKPOINTS.items():
            if any(record.state is state and not _is_approved(record) for record in records):
                return name
        return "PRE_TOOL" if any(_is_approved(record) for record in records) else "POST_TOOL"

    def close(self, reason: str = "aborted") -> None:
        """Give every call without a result the result that it was ended. Raises TranscriptError."""
        for live in self._calls:
            self._approvals.withdraw(live.call.id)
            if live.result is None:
                live.end(*_abort_outcome(live, reason))

    # --- before it runs -----------------------------------------------------------------------------------------------

    def _distinct(self) -> list[ToolCallTracker]:
        """The calls, but those with the id of an earlier one: these fail, since no decision could tell them apart."""
        first: dict[str, ToolCallTracker] = {}
        for live in self._calls:
            if first.setdefault(live.call.id, live) is not live:
                live.end(CallState.FAILED, failure("another call of this answer has the same id", "validation"))
        return list(first.values())

    async def _prepare(self, live: ToolCallTracker, slots: FifoLimiter, nursery: trio.Nursery) -> None:
        live.start()
        match await self._check_rules_and_hooks(live):
            case _CallOutcome() as outcome:
                await self._finish(live, outcome)
            case ApprovalNeeded() as needed:
                context = self._context_for(live.call, live.progress)
                description = CallDescription(await needed.tool.describe(needed.arguments, context))
                question = self._request_approval(live, needed.reason, description)
                nursery.start_soon(self._await_approval, live, needed, question, slots)
            case Allowed() as allowed:
                nursery.start_soon(self._run_one, live, allowed, slots, slots.acquire())

    async def _check_rules_and_hooks(self, live: ToolCallTracker) -> Allowed | ApprovalNeeded | _CallOutcome:
        verdict = evaluate(live.call, self._tools, self._policy)
        if isinstance(verdict, CallRejected):
            return _CallOutcome(verdict.state, verdict.result)
        try:
            said = await self._hooks.before_tool_call(live.call)
        except HookFailed as exc:
            return _CallOutcome(CallState.FAILED, _hook_failure(exc))
        if isinstance(said, Change):
            live.change_input(said.input)
            again = evaluate(live.call, self._tools, self._policy)
            if isinstance(again, CallRejected):
                return _CallOutcome(again.state, again.result)
            verdict, said = _stricter(verdict, again), said.then
        return _combine_with_hooks(verdict, said)

    def _request_approval(self, live: ToolCallTracker, reason: str, description: CallDescription) -> PendingApproval:
        def tell(decided: ApprovalVerdict) -> None:
            facts = {"call_id": live.call.id, **msgspec.to_builtins(decided)}
            self._emit("permission_decided", {name: fact for name, fact in facts.items() if fact is not None})

        live.await_approval(reason)
        question = PendingApproval(live.view(), live.decide, tell, description)
        self._approvals.open(question)
        self._emit("permission_required", {"call": live.view(), "reason": reason, "shown": description.shown})
        return question

    async def _await_approval(
        self, live: ToolCallTracker, needed: ApprovalNeeded, question: PendingApproval, slots: FifoLimiter
    ) -> None:
        decided = await question.wait()
        if decided.decision == "deny":
            await self._finish(live, _CallOutcome(CallState.DENIED, _user_denial(live, decided.note)))
        else:
            await self._run_one(live, Allowed(needed.tool, needed.arguments), slots, slots.acquire())

    # --- running it ---------------------------------------------------------------------------------------------------

    async def _run_one(self, live: ToolCallTracker, allowed: Allowed, slots: FifoLimiter, turn: trio.Event) -> None:
        await turn.wait()
        try:
            live.begin()
            if allowed.tool.effects not in HARMLESS_EFFECTS:
                await self._log.sync()
            await self._finish(live, await self._run_with_hooks(live, allowed))
        finally:
            slots.release()

    async def _run_with_hooks(self, live: ToolCallTracker, allowed: Allowed) -> _CallOutcome:
        outcome = await self._run_tool(live, allowed)
        try:
            await self._hooks.after_tool_call(live.call, outcome.result)
        except HookFailed as exc:
            return _CallOutcome(CallState.FAILED, _hook_failure(exc))
        return outcome

    async def _run_tool(self, live: ToolCallTracker, allowed: Allowed) -> _CallOutcome:
        tool = allowed.tool
        try:
            context = self._context_for(live.call, live.progress)
            with trio.move_on_after(float("inf") if tool.timeout is None else tool.timeout):
                output = await tool.run(allowed.arguments, context)
                images = output.images if isinstance(output, ToolOutput) else []
                return _CallOutcome(CallState.COMPLETED, success(output), images)
        except Exception as exc:  # noqa: BLE001 - a tool's bug is the call's failure, never the end of the run
            return _CallOutcome(CallState.FAILED, _tool_failure(exc))
        except BaseExceptionGroup as group:
            _raise_cancelled(group)
        return _CallOutcome(CallState.FAILED, timed_out(tool.name, tool.timeout or 0.0))

    async def _finish(self, live: ToolCallTracker, outcome: _CallOutcome) -> None:
        outcome = _encodable(outcome)
        try:
            result = await self._hooks.tool_result_persist(live.call, outcome.result)
        except HookFailed as exc:
            outcome = _CallOutcome(CallState.FAILED, _hook_failure(exc))
        else:
            outcome = _encodable(outcome._replace(result=result))
        live.end(*outcome)


_BREAKPOINTS: Mapping[CallState, Breakpoint] = {
    CallState.RUNNING: "TOOL_EXECUTING",
    CallState.AWAITING_APPROVAL: "AWAITING_APPROVAL",
    CallState.PENDING: "TOOL_PENDING",
}
"""In order of precedence."""


def _is_approved(record: CallRecord) -> bool:
    """Whether a person has decided about it, and it is only queued to run."""
    return (
        record.state is CallState.AWAITING_APPROVAL and record.approval is not None and bool(record.approval.decision)
    )


# --- pure parts -------------------------------------------------------------------------------------------------------


def _stricter(before: Allowed | ApprovalNeeded, after: Allowed | ApprovalNeeded) -> Allowed | ApprovalNeeded:
    """The verdict on the changed call; approval that the original call needed is still needed."""
    if isinstance(before, ApprovalNeeded) and isinstance(after, Allowed):
        return ApprovalNeeded(after.tool, after.arguments, before.reason)
    return after


def _combine_with_hooks(
    verdict: Allowed | ApprovalNeeded, said: ToolVerdict
) -> Allowed | ApprovalNeeded | _CallOutcome:
    """The rules and the hooks together: hooks may be stricter, never laxer."""
    match said:
        case Deny(note):
            return _CallOutcome(CallState.DENIED, denied(verdict.tool.name, "a hook does not allow it", note))
        case Ask(reason) if isinstance(verdict, Allowed):
            return ApprovalNeeded(verdict.tool, verdict.arguments, reason or "a hook asks for approval")
        case UseResult(data) if isinstance(verdict, Allowed):
            return _CallOutcome(CallState.COMPLETED, {"ok": True, "data": data})
        case _:
            return verdict


def _abort_outcome(live: ToolCallTracker, reason: str) -> tuple[EndState, CallResult]:
    approval = live.record.approval
    if live.record.state is CallState.AWAITING_APPROVAL and approval is not None and approval.decision == "deny":
        return CallState.DENIED, _user_denial(live, approval.note)
    had_begun = live.record.state is CallState.RUNNING
    return CallState.FAILED, aborted(reason, had_begun=had_begun)


def _user_denial(live: ToolCallTracker, note: str | None) -> CallResult:
    return denied(live.call.name, "the user does not allow it", note)


def _hook_failure(failed: HookFailed) -> CallResult:
    return failure(str(failed), "runtime", recommendations=["Tell the user: a hook of theirs fails."])


def _tool_failure(exc: Exception) -> CallResult:
    while isinstance(exc, ExceptionGroup):
        exc = exc.exceptions[0]
    return of_error(exc) if isinstance(exc, ToolError) else of_exception(exc)


def _encodable(outcome: _CallOutcome) -> _CallOutcome:
    """The outcome, or a failure in its place when it is no JSON: it could be neither kept nor told."""
    if is_json(outcome.result):
        return outcome
    return _CallOutcome(CallState.FAILED, failure("the result is no JSON", "runtime", _thrownError=True))


def _raise_cancelled(group: BaseExceptionGroup[BaseException]) -> NoReturn:
    """Of a tool that failed while it was being cancelled only the cancellation counts: its result is that it was."""
    _, rest = group.split(Exception)
    assert rest is not None  # noqa: S101 - else it were an ExceptionGroup, which is an Exception
    raise rest from None


def _raise_transcript_error(group: BaseExceptionGroup[BaseException]) -> None:
    """Raise the first TranscriptError when there is nothing else but the cancellation of the other calls."""
    if group.split((TranscriptError, trio.Cancelled))[1] is None:
        exc: BaseException | None = group.subgroup(TranscriptError)
        while isinstance(exc, BaseExceptionGroup):
            exc = exc.exceptions[0]
        if exc is not None:
            raise exc from None
