"""The agent's questions before tool calls: answered by rule, by a person, or ``cancelled`` where the turn ends."""

from typing import Annotated, Any, Literal

import msgspec

from rpc.acp.bounds import bounded_id, value_of, word_of
from rpc.acp.calls import CallBook
from rpc.acp.conversation import AcpConversation
from rpc.acp.link import AcpLink
from rpc.acp.messages import INVALID_PARAMS, object_of, objects_of, text_of
from rpc.acp.options import PermissionMode
from rpc.acp.run import AcpRun
from rpc.acp.updates import READING_KINDS, AcpCall, merge_call
from rpc.run_events import StampedEvent
from wire.call_page import SHOWN_CHARS, SHOWN_LINES, CallPage, CallPart, page_of
from wire.messages import PermissionOption, ToolCallView

_MAX_OPEN = 256
_MAX_OPTIONS = 32
_MAX_KEPT = 16 * 1024 * 1024
"""Bytes of all open questions."""
_MAX_ASKED = 4_096
"""Questions to persons in one turn."""
_CANCELLED = {"outcome": {"outcome": "cancelled"}}
_KIND_OF_DECISION = {"allow": "allow_once", "deny": "reject_once"}


class AcpPermissionRequired(StampedEvent, frozen=True):
    """``permission_required``: a person is to decide with ``decide``, where ``option_id`` may be any of the options."""

    call: ToolCallView
    reason: str
    options: list[PermissionOption]
    shown: CallPage


class AcpPermissionDecided(StampedEvent, frozen=True):
    """``permission_decided``: the question is closed; ``by`` is a person, ``abort`` or ``agent``."""

    call_id: str
    decision: Literal["allow", "deny"]
    by: str | None = None
    note: str | None = None


class AcpDecideParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``decide``: as in the native protocol; ``option_id`` is chosen in place of what ``decision`` would choose."""

    call_id: str
    decision: Literal["allow", "deny"]
    note: Annotated[str, msgspec.Meta(max_length=10_000)] | None = None
    by: Annotated[str, msgspec.Meta(max_length=1_000)] | None = None
    seen: Annotated[str, msgspec.Meta(max_length=100)] | None = None
    option_id: str | None = None


class _Question(msgspec.Struct, frozen=True):
    name: str
    request: Any
    call: AcpCall
    options: list[PermissionOption]
    run: AcpRun | None
    conversation: AcpConversation

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return self.call.size + sum(len(option.id) + len(option.name) for option in self.options)


class PermissionDesk:
    """One per dialect. What persons say beside a decision becomes a note of the conversation it is about."""

    def __init__(self, link: AcpLink, calls: CallBook, mode: PermissionMode) -> None:
        self._link = link
        self._calls = calls
        self._mode = mode
        self._open: dict[str, _Question] = {}
        self._kept = 0
        self._closed: set[str] = set()
        self._asked: dict[str, int] = {}

    def ask(self, request: object, params: object, run: AcpRun | None, conversation: AcpConversation | None) -> None:
        """A question of the agent; ``conversation`` None: of a turn that is being ended, or of none of ours."""
        if not isinstance(params, dict):
            self._link.refuse(request, INVALID_PARAMS, "params: an object is expected")
            return
        asked = object_of(params.get("toolCall"))
        call_id = bounded_id(text_of(asked.get("toolCallId")) or f"call-{len(self._asked) + 1}")
        # neither is the call over nor is what describes it its output
        said = {name: value for name, value in asked.items() if name not in ("status", "content")}
        call = None if conversation is None else self._calls.update(call_id, said, run, begins=True)
        options = _read_options(params.get("options"))
        if conversation is None or call is None:
            self._link.respond(request, _CANCELLED)
        elif self._mode == "approval":
            described = merge_call(call, call_id, {**asked, "status": call.status})
            self._put(_Question(self._name(call_id), request, described, options, run, conversation))
        else:
            self._decide_by_rule(request, call, options, run)

    def decide(self, request_id: str, params: AcpDecideParams) -> None:
        """What a person says; answered with what came of it."""
        question = self._open.get(params.call_id)
        if question is None:
            code = "already_decided" if params.call_id in self._closed else "nothing_pending"
            self._link.reject(request_id, code, f"no call {params.call_id[:100]!r} waits for a decision")
            return
        if params.option_id is None:
            chosen = _option_of_kind(question.options, _KIND_OF_DECISION[params.decision])
        else:
            chosen = next((option for option in question.options if option.id == params.option_id), None)
            if chosen is None:
                offered = ", ".join(option.id for option in question.options)
                self._link.reject(request_id, "invalid_params", f"no such option is offered; offered: {offered}")
                return
        if params.note:
            decided = "Allowed" if _allows(chosen) else "Denied"
            question.conversation.notes.append(f"{decided} {question.call.preview!r}: {params.note}")
        decision = self._close(question, chosen, by=params.by, note=params.note)
        if decision == "deny":
            _mark_denied(question.run)
        self._link.answer(request_id, {"call_id": params.call_id, "decision": decision})

    def describe(self, request_id: str, call_id: str, offset: int) -> None:
        """A page of what a call that waits would do."""
        question = self._open.get(call_id)
        if question is None:
            self._link.reject(request_id, "nothing_pending", f"no call {call_id[:100]!r} waits for a decision")
        else:
            self._link.answer(request_id, page_of(_parts(question.call), offset))

    def withdraw(self, request: object) -> None:
        """The agent no longer wants an answer to its question, which gets one all the same."""
        for question in list(self._open.values()):
            if question.request == request:
                self._close(question, None, by="agent")

    def cancel_all(self) -> None:
        """The turn ends or is being ended."""
        for question in list(self._open.values()):
            self._close(question, None, by="abort")

    def end_turn(self) -> None:
        """The turn is over; ids may be asked about as if for the first time."""
        self.cancel_all()
        self._asked.clear()
        self._closed.clear()

    # --- inside ---

    def _name(self, call_id: str) -> str:
        times = self._asked.get(call_id, 0) + 1
        return call_id if times == 1 else f"{call_id}#{times}"

    def _can_ask(self, question: _Question) -> bool:
        """Whether there is room for it, and no open one has its name: an agent's own id may look like ours."""
        is_within = self._kept + question.size <= _MAX_KEPT and question.name not in self._open
        return is_within and len(self._open) < _MAX_OPEN and len(self._open) + len(self._closed) < _MAX_ASKED

    def _put(self, question: _Question) -> None:
        if not self._can_ask(question):
            self._link.respond(question.request, _CANCELLED)
            return
        call, run = question.call, question.run
        self._asked[call.id] = self._asked.get(call.id, 0) + 1
        self._open[question.name] = question
        self._kept += question.size
        view = msgspec.structs.replace(call.view(state="AWAITING_APPROVAL"), id=question.name, approval="required")
        run_id, seq = self._link.stamp(run.id if run else None)
        event = AcpPermissionRequired(
            call=view,
            reason="the agent asks before it runs this call",
            options=question.options,
            shown=page_of(_parts(call), chars=SHOWN_CHARS, lines=SHOWN_LINES),
            run_id=run_id,
            seq=seq,
        )
        self._link.emit("permission_required", event)

    def _decide_by_rule(
        self, request: object, call: AcpCall, options: list[PermissionOption], run: AcpRun | None
    ) -> None:
        may_run = self._mode == "auto" or call.kind in READING_KINDS
        chosen = _option_of_kind(options, "allow_once" if may_run else "reject_once")
        self._respond(request, chosen, call, run)
        if not _allows(chosen):
            _mark_denied(run)

    def _close(
        self, question: _Question, chosen: PermissionOption | None, *, by: str | None, note: str | None = None
    ) -> Literal["allow", "deny"]:
        del self._open[question.name]
        self._kept -= question.size
        self._closed.add(question.name)
        decision: Literal["allow", "deny"] = "allow" if _allows(chosen) else "deny"
        run_id, seq = self._link.stamp(question.run.id if question.run else None)
        event = AcpPermissionDecided(call_id=question.name, decision=decision, by=by, note=note, run_id=run_id, seq=seq)
        self._link.emit("permission_decided", event)
        self._respond(question.request, chosen, question.call, question.run)
        return decision

    def _respond(self, request: object, chosen: PermissionOption | None, call: AcpCall, run: AcpRun | None) -> None:
        if chosen is None:
            self._link.respond(request, _CANCELLED)
        else:
            self._link.respond(request, {"outcome": {"outcome": "selected", "optionId": chosen.id}})
        if _allows(chosen):
            self._calls.mark_running(call.id, run)


def _mark_denied(run: AcpRun | None) -> None:
    if run is not None:
        run.denied = True


def _allows(option: PermissionOption | None) -> bool:
    return option is not None and option.kind.startswith("allow")


def _option_of_kind(options: list[PermissionOption], kind: str) -> PermissionOption | None:
    return next((option for option in options if option.kind == kind), None)


def _read_options(value: object) -> list[PermissionOption]:
    """The options in the protocol's words, or in those of agents that call them ``id`` and ``label``."""
    options = []
    for entry in objects_of(value)[:_MAX_OPTIONS]:
        option_id = value_of(entry.get("optionId")) or value_of(entry.get("id"))
        if option_id is not None:
            name = word_of(entry.get("name")) or word_of(entry.get("label")) or option_id
            options.append(PermissionOption(option_id, name, word_of(entry.get("kind")) or ""))
    return options


def _parts(call: AcpCall) -> list[CallPart]:
    parts = [CallPart("title", call.title)] if call.title else []
    if call.input:
        parts.append(CallPart("input", call.input))
    if call.output:
        parts.append(CallPart("content", call.output))
    return parts
