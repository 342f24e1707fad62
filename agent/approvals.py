"""Tool calls that wait for a person, and the one decision that each of them takes.

A question is open before its event is emitted, so that a client may decide from inside its event handler. Deciding
never waits. A call that was decided, ended or sealed stays so: later decisions are errors.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec
import trio

from agent.tools.base import Effects
from wire.call_page import SHOWN_CHARS, SHOWN_LINES, CallPage, CallPart, page_of
from wire.entries import ApprovalDecision, ToolUseBlock
from wire.messages import PermissionOption, ToolCallView


class CallDescription:
    """A call as parts. ``seen``: a token on its last page only; None where ``shown`` is the whole call."""

    def __init__(self, parts: Sequence[CallPart]) -> None:
        self._parts = parts
        self.shown = page_of(parts, chars=SHOWN_CHARS, lines=SHOWN_LINES)
        self.seen: str | None = None
        if self.shown.hidden:
            digest = hashlib.sha256(msgspec.json.encode(parts))
            self.seen = digest.hexdigest()[:8]

    def page(self, offset: int) -> CallPage:
        """The page that begins at ``offset``."""
        page = page_of(self._parts, offset)
        return page if page.hidden else msgspec.structs.replace(page, seen=self.seen)


_MAX_CLOSED = 1_000
"""Closed calls that are remembered; older ones are unknown."""

_CloseReason: TypeAlias = Literal["decided", "ended", "sealed"]


_ErrorCode: TypeAlias = Literal["nothing_pending", "already_decided", "sealed", "not_shown", "invalid_params"]
"""``not_shown``: the call is longer than its question, and the decision lacks ``seen`` of its last page."""


_REFUSALS: Mapping[_CloseReason | None, tuple[_ErrorCode, str]] = {
    "decided": ("already_decided", "the call {} was decided already"),
    "sealed": ("sealed", "the call {} was sealed when its session was resumed"),
    "ended": ("nothing_pending", "the call {} ended before it was decided"),
    None: ("nothing_pending", "no call {} waits for a decision"),
}


class NotDecidable(Exception):
    """The decision is refused and nothing was run; ``code`` says why."""

    def __init__(self, code: _ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


ALLOW_SESSION = "allow_session"


class Allowance(msgspec.Struct, frozen=True):
    """Calls that one decision may allow for the rest of the conversation; ``words`` name them."""

    key: str
    words: str

    @classmethod
    def of(cls, call: ToolUseBlock, effects: Effects) -> "Allowance":
        """Of a tool that runs commands the same input again, of any other tool all its calls."""
        if effects != "run":
            return cls(call.name, f"Allow {call.name} in this session")
        digest = hashlib.sha256(msgspec.json.encode(call.input, order="sorted")).hexdigest()
        return cls(f"{call.name} {digest}", "Allow this command in this session")

    @property
    def options(self) -> list[PermissionOption]:
        """The answers to a question about such a call, beside yes and no."""
        return [PermissionOption(ALLOW_SESSION, self.words, "allow_always")]


class ApprovalVerdict(msgspec.Struct, frozen=True):
    """What a person said, and who it was. ``allows``: see ``CallApproval``."""

    decision: ApprovalDecision
    note: str | None = None
    by: str | None = None
    allows: str | None = None


class PendingApproval:
    """One call that waits. ``persist`` writes the decision and may raise: then none was made."""

    def __init__(
        self,
        call: ToolCallView,
        persist: Callable[[ApprovalVerdict], None],
        emit: Callable[[ApprovalVerdict], None],
        description: CallDescription,
        allowance: Allowance,
    ) -> None:
        self.call = call
        self.description = description
        self.allowance = allowance
        self._persist = persist
        self._emit = emit
        self._decision: ApprovalVerdict | None = None
        self._is_decided = trio.Event()

    async def wait(self) -> ApprovalVerdict:
        """The decision, once it is there."""
        await self._is_decided.wait()
        assert self._decision is not None  # noqa: S101 - set before the event
        return self._decision

    def commit(self, decided: ApprovalVerdict) -> None:
        """Write the decision; raises what ``persist`` raises."""
        self._persist(decided)
        self._decision = decided

    def publish(self) -> None:
        """Emit the decision and let the call continue."""
        assert self._decision is not None  # noqa: S101 - ``commit`` came first
        self._is_decided.set()
        self._emit(self._decision)


class Approvals:
    """The open questions of a worker, and a bounded memory of closed ones."""

    def __init__(self) -> None:
        self._open: dict[str, PendingApproval] = {}
        self._closed: dict[str, _CloseReason] = {}

    def pending(self) -> list[ToolCallView]:
        """The calls that wait, oldest question first."""
        return [question.call for question in self._open.values()]

    def open(self, question: PendingApproval) -> None:
        """Open a question, before its event is emitted. Raises ValueError for a call that already has one."""
        if question.call.id in self._open:
            raise ValueError(f"call {question.call.id!r} waits for a decision already")
        self._open[question.call.id] = question

    def page(self, call_id: str, offset: int = 0) -> CallPage:
        """The description of a pending call, from ``offset`` characters on. Raises NotDecidable."""
        return self._open_or_raise(call_id).description.page(offset)

    def decide(
        self,
        call_id: str,
        decision: ApprovalDecision,
        note: str | None = None,
        by: str | None = None,
        *,
        seen: str | None = None,
        option_id: str | None = None,
    ) -> None:
        """Decide about a call, once: the decision is written, then emitted, then acts.

        ``seen``: from the last page of a call whose question shows only its beginning. ``option_id``: one of the
        question's options, whose decision it must be.

        Raises NotDecidable, or what writing it down raises: then the question is still open.
        """
        question = self._open_or_raise(call_id)
        if decision == "allow" and question.description.seen not in (None, seen):
            hidden = question.description.shown.hidden
            raise NotDecidable(
                "not_shown",
                f"the call {call_id[:100]!r} is longer than what was shown of it by {hidden:,} characters: look at all "
                "of it, and repeat what its end says",
            )
        if option_id is not None and (option_id, decision) != (ALLOW_SESSION, "allow"):
            raise NotDecidable("invalid_params", f"the question has no option {option_id[:100]!r} to {decision} it")
        allows = None if option_id is None else question.allowance.key
        question.commit(ApprovalVerdict(decision, note, by, allows))
        self._close(call_id, "decided")
        question.publish()

    def _open_or_raise(self, call_id: str) -> PendingApproval:
        question = self._open.get(call_id)
        if question is None:
            code, words = _REFUSALS[self._closed.get(call_id)]
            raise NotDecidable(code, words.format(repr(call_id[:100])))
        return question

    def withdraw(self, call_id: str) -> None:
        """The call has ended without a decision. Harmless when it waits for none."""
        if call_id in self._open:
            self._close(call_id, "ended")

    def mark_sealed(self, call_ids: Iterable[str]) -> None:
        """These calls of a resumed conversation were sealed: they can no longer be decided."""
        for call_id in call_ids:
            self._close(call_id, "sealed")

    def _close(self, call_id: str, why: _CloseReason) -> None:
        self._open.pop(call_id, None)
        self._closed.pop(call_id, None)
        self._closed[call_id] = why
        if len(self._closed) > _MAX_CLOSED:
            del self._closed[next(iter(self._closed))]
