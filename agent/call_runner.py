"""Runs the tool calls of one model answer: exactly one result each, in call order.

Calls are checked one after the other, then run a few at a time in the order in which they may run; a call that waits
for approval holds up no other. On disk before a tool with effects begins: that it runs, and the decision about it (one
wait, shared by calls that begin together). The caller syncs the results before the next model call.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, NoReturn, TypeAlias

import msgspec
import trio

from agent.approvals import Allowance, Approvals, ApprovalVerdict, CallDescription, PendingApproval
from agent.hook_runner import Hooks
from agent.hooks import Ask, Change, Deny, HookFailed, ToolVerdict, UseResult
from agent.policy import HARMLESS_EFFECTS, Allowed, ApprovalNeeded, CallRejected, Policy, evaluate
from agent.results import CallResult, aborted, denied, failure, is_json, of_error, of_exception, success, timed_out
from agent.tool_call import CallLog, Emit, EndState, ToolCallTracker
from agent.tools.base import Report, Tool, ToolContext, ToolError, ToolOutput
from wire.entries import CallRecord, CallState, ImageBlock, ToolResultBlock, ToolUseBlock
from wire.messages import Breakpoint
from wire.transcript_repair import TranscriptError

ContextFor: TypeAlias = Callable[[ToolUseBlock, Report], ToolContext]
"""What a call may use; the second argument is its ``report``."""


_Job: TypeAlias = tuple[ToolCallTracker, Allowed]
_Jobs: TypeAlias = trio.MemorySendChannel[_Job]


class _CallOutcome(NamedTuple):
    state: EndState
    result: CallResult
    images: list[ImageBlock] = []  # noqa: RUF012 - a named tuple's default, never changed


class CallRunner:
    """The calls of one answer; used once. ``close`` ends the calls that ``run`` left without a result."""

    def __init__(
        self,
        calls: Sequence[ToolUseBlock],
        *,
        tools: Mapping[str, Tool],
        policy: Policy,
        approvals: Approvals,
        hooks: Hooks,
        log: CallLog,
        context_for: ContextFor,
        emit: Emit,
    ) -> None:
        self._tools = tools
        self._policy = policy
        self._approvals = approvals
        self._hooks = hooks
        self._log = log
        self._context_for = context_for
        self._emit = emit
        self._calls = [ToolCallTracker(call, log, emit) for call in calls]

    def results(self) -> list[ToolResultBlock]:
        """What there is so far, in call order."""
        return [tracker.result for tracker in self._calls if tracker.result is not None]

    async def run(self, parallel: int) -> None:
        """Run all calls, at most ``parallel`` at a time. Raises TranscriptError; ``close`` is to be called even so."""
        sender, jobs = trio.open_memory_channel[_Job](math.inf)
        try:
            async with trio.open_nursery() as nursery:
                for _ in range(min(parallel, len(self._calls))):
                    nursery.start_soon(self._run_jobs, jobs)
                with sender:
                    for tracker in self._distinct():
                        await self._prepare(tracker, sender, nursery)
        except BaseExceptionGroup as group:
            _raise_transcript_error(group)
            raise

    def breakpoint(self) -> Breakpoint:
        """Where the step stands: the first state in the order of ``_BREAKPOINTS`` that one of its calls has."""
        records = [tracker.record for tracker in self._calls]
        for state, name in _BREAKPOINTS.items():
            if any(record.state is state and not _is_approved(record) for record in records):
                return name
        return "PRE_TOOL" if any(_is_approved(record) for record in records) else "POST_TOOL"

    def close(self, reason: str = "aborted") -> None:
        """End every call that has no result yet. Raises TranscriptError."""
        for tracker in self._calls:
            self._approvals.withdraw(tracker.call.id)
            if tracker.result is None:
                tracker.end(*_abort_outcome(tracker, reason))

    def _distinct(self) -> list[ToolCallTracker]:
        """The calls, but those with the id of an earlier one: these fail, since a decision names an id."""
        first: dict[str, ToolCallTracker] = {}
        for tracker in self._calls:
            if first.setdefault(tracker.call.id, tracker) is not tracker:
                tracker.end(CallState.FAILED, failure("another call of this answer has the same id", "validation"))
        return list(first.values())

    async def _prepare(self, tracker: ToolCallTracker, jobs: _Jobs, nursery: trio.Nursery) -> None:
        tracker.start()
        match await self._check_rules_and_hooks(tracker):
            case _CallOutcome() as outcome:
                await self._finish(tracker, outcome)
            case ApprovalNeeded() as needed:
                context = self._context_for(tracker.call, tracker.progress)
                description = CallDescription(await needed.tool.describe(needed.arguments, context))
                question = self._request_approval(tracker, needed, description)
                nursery.start_soon(self._await_approval, tracker, needed, question, jobs.clone())
            case Allowed() as allowed:
                jobs.send_nowait((tracker, allowed))

    async def _check_rules_and_hooks(self, tracker: ToolCallTracker) -> Allowed | ApprovalNeeded | _CallOutcome:
        verdict = evaluate(tracker.call, self._tools, self._policy)
        if isinstance(verdict, CallRejected):
            return _CallOutcome(verdict.state, verdict.result)
        if isinstance(verdict, ApprovalNeeded):
            allowance = Allowance.of(tracker.call, verdict.tool.effects)
            if self._log.is_allowed(allowance.key):
                verdict = Allowed(verdict.tool, verdict.arguments)
        try:
            answer = await self._hooks.before_tool_call(tracker.call)
        except HookFailed as exc:
            return _CallOutcome(CallState.FAILED, _hook_failure(exc))
        if isinstance(answer, Change):
            tracker.change_input(answer.input)
            again = evaluate(tracker.call, self._tools, self._policy)
            if isinstance(again, CallRejected):
                return _CallOutcome(again.state, again.result)
            verdict, answer = _stricter(verdict, again), answer.then
        return _combine_with_hooks(verdict, answer)

    def _request_approval(
        self, tracker: ToolCallTracker, needed: ApprovalNeeded, description: CallDescription
    ) -> PendingApproval:
        def publish(decided: ApprovalVerdict) -> None:
            facts = {"call_id": tracker.call.id, **msgspec.to_builtins(decided)}
            self._emit("permission_decided", {name: fact for name, fact in facts.items() if fact is not None})

        reason, allowance = needed.reason, Allowance.of(tracker.call, needed.tool.effects)
        tracker.await_approval(reason)
        question = PendingApproval(tracker.view(), tracker.decide, publish, description, allowance)
        self._approvals.open(question)
        asked = {"call": tracker.view(), "reason": reason, "shown": description.shown, "options": allowance.options}
        self._emit("permission_required", asked)
        return question

    async def _await_approval(
        self, tracker: ToolCallTracker, needed: ApprovalNeeded, question: PendingApproval, jobs: _Jobs
    ) -> None:
        with jobs:
            decided = await question.wait()
            if decided.decision == "deny":
                await self._finish(tracker, _CallOutcome(CallState.DENIED, _user_denial(tracker, decided.note)))
            else:
                jobs.send_nowait((tracker, Allowed(needed.tool, needed.arguments)))

    async def _run_jobs(self, jobs: trio.MemoryReceiveChannel[_Job]) -> None:
        """Run calls one after the other, in the order in which they were allowed, until no more can come."""
        async for tracker, allowed in jobs:
            await self._run_one(tracker, allowed)

    async def _run_one(self, tracker: ToolCallTracker, allowed: Allowed) -> None:
        tracker.begin()
        if allowed.tool.effects not in HARMLESS_EFFECTS:
            await self._log.sync()
        await self._finish(tracker, await self._run_with_hooks(tracker, allowed))

    async def _run_with_hooks(self, tracker: ToolCallTracker, allowed: Allowed) -> _CallOutcome:
        outcome = await self._run_tool(tracker, allowed)
        try:
            await self._hooks.after_tool_call(tracker.call, outcome.result)
        except HookFailed as exc:
            return _CallOutcome(CallState.FAILED, _hook_failure(exc))
        return outcome

    async def _run_tool(self, tracker: ToolCallTracker, allowed: Allowed) -> _CallOutcome:
        tool = allowed.tool
        try:
            context = self._context_for(tracker.call, tracker.progress)
            with trio.move_on_after(float("inf") if tool.timeout is None else tool.timeout):
                output = await tool.run(allowed.arguments, context)
                images = output.images if isinstance(output, ToolOutput) else []
                return _CallOutcome(CallState.COMPLETED, success(output), images)
        except Exception as exc:  # noqa: BLE001 - a tool's bug is the call's failure, never the end of the run
            return _CallOutcome(CallState.FAILED, _tool_failure(exc))
        except BaseExceptionGroup as group:
            _raise_cancelled(group)
        return _CallOutcome(CallState.FAILED, timed_out(tool.name, tool.timeout or 0.0))

    async def _finish(self, tracker: ToolCallTracker, outcome: _CallOutcome) -> None:
        outcome = _encodable(outcome)
        try:
            result = await self._hooks.tool_result_persist(tracker.call, outcome.result)
        except HookFailed as exc:
            outcome = _CallOutcome(CallState.FAILED, _hook_failure(exc))
        else:
            outcome = _encodable(outcome._replace(result=result))
        tracker.end(*outcome)


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


def _stricter(before: Allowed | ApprovalNeeded, after: Allowed | ApprovalNeeded) -> Allowed | ApprovalNeeded:
    """The verdict on the changed call; approval that the original call needed is still needed."""
    if isinstance(before, ApprovalNeeded) and isinstance(after, Allowed):
        return ApprovalNeeded(after.tool, after.arguments, before.reason)
    return after


def _combine_with_hooks(
    verdict: Allowed | ApprovalNeeded, answer: ToolVerdict
) -> Allowed | ApprovalNeeded | _CallOutcome:
    """The rules and the hooks together: hooks may be stricter, never laxer."""
    match answer:
        case Deny(note):
            return _CallOutcome(CallState.DENIED, denied(verdict.tool.name, "a hook does not allow it", note))
        case Ask(reason) if isinstance(verdict, Allowed):
            return ApprovalNeeded(verdict.tool, verdict.arguments, reason or "a hook asks for approval")
        case UseResult(data) if isinstance(verdict, Allowed):
            return _CallOutcome(CallState.COMPLETED, {"ok": True, "data": data})
        case _:
            return verdict


def _abort_outcome(tracker: ToolCallTracker, reason: str) -> tuple[EndState, CallResult]:
    approval = tracker.record.approval
    if tracker.record.state is CallState.AWAITING_APPROVAL and approval is not None and approval.decision == "deny":
        return CallState.DENIED, _user_denial(tracker, approval.note)
    had_begun = tracker.record.state is CallState.RUNNING
    return CallState.FAILED, aborted(reason, had_begun=had_begun)


def _user_denial(tracker: ToolCallTracker, note: str | None) -> CallResult:
    return denied(tracker.call.name, "the user does not allow it", note)


def _hook_failure(failed: HookFailed) -> CallResult:
    return failure(str(failed), "runtime", recommendations=["Tell the user: a hook of theirs fails."])


def _tool_failure(exc: Exception) -> CallResult:
    while isinstance(exc, ExceptionGroup):
        exc = exc.exceptions[0]
    return of_error(exc) if isinstance(exc, ToolError) else of_exception(exc)


def _encodable(outcome: _CallOutcome) -> _CallOutcome:
    """The outcome, or a failure when it cannot be encoded as JSON."""
    if is_json(outcome.result):
        return outcome
    return _CallOutcome(CallState.FAILED, failure("the result is no JSON", "runtime", _thrownError=True))


def _raise_cancelled(group: BaseExceptionGroup[BaseException]) -> NoReturn:
    """Keep only the cancellation of a tool that failed while it was being cancelled."""
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
