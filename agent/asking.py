"""Asks the person at the terminal of ``agent -p`` about the calls that wait for approval, one after the other."""

import getpass
import math
import os
import termios
from typing import Any

import trio

from agent.approvals import Approvals, NotDecidable
from wire.call_lines import CallLines
from wire.call_pages import hidden_words
from wire.call_parts import CallPage
from wire.entries import Decision
from wire.messages import ToolCallView
from wire.stage import Stage

__all__ = ["Asker"]

_ALLOW, _DENY, _ALL = frozenset({"y", "yes"}), frozenset({"n", "no"}), frozenset({"a", "all"})
_LONGEST_ANSWER = 4096


class Asker:
    """A queue of questions. ``ask`` does not block; ``run`` shows each question and reads its answer, one line."""

    def __init__(self, stage: Stage, approvals: Approvals, terminal: int) -> None:
        """``terminal``: the file descriptor of a terminal, to read from."""
        self._stage = stage
        self._calls = CallLines(stage)
        self._approvals = approvals
        self._terminal = terminal
        self._sender, self._questions = trio.open_memory_channel[dict[str, Any]](math.inf)

    def ask(self, question: dict[str, Any]) -> None:
        """Take the data of a ``permission_required``; the worker bounds how many there are."""
        self._sender.send_nowait(question)

    async def run(self) -> None:
        """Ask until cancelled."""
        async for question in self._questions:
            call: ToolCallView = question["call"]
            self._stage.note(f"? needs your approval: {call.name} ({question['reason']})", style="")
            self._calls.page(question["shown"])
            termios.tcflush(self._terminal, termios.TCIFLUSH)  # typed before the question was shown
            await self._until_decided(call.id, question["shown"])

    async def _until_decided(self, call_id: str, shown: CallPage) -> None:
        """A call with hidden parts is allowed only with ``seen`` of its last page."""
        while any(call.id == call_id for call in self._approvals.pending()):
            hidden = hidden_words(shown)
            asked = f"{hidden}: a(ll of it), or n(o)" if hidden else "y(es), or n(o)"
            self._stage.note(f"  {asked}; behind no you may say why not", whole=True, style="")
            word, _, why = (await self._line()).partition(" ")
            if word.lower() in _ALL and hidden:
                shown = self._all_of(call_id, shown)
            elif word.lower() in _DENY:
                self._decide(call_id, "deny", why.strip() or None, None)
            elif word.lower() in _ALLOW:
                self._decide(call_id, "allow", None, shown.seen)

    def _all_of(self, call_id: str, shown: CallPage) -> CallPage:
        """Show the hidden rest of the call; returns its last page."""
        try:
            while shown.hidden:
                shown = self._approvals.page(call_id, shown.end)
                self._calls.page(shown)
        except NotDecidable as exc:
            self._stage.note(f"! {exc}", whole=True, style="")
        return shown

    def _decide(self, call_id: str, decision: Decision, note: str | None, seen: str | None) -> None:
        try:
            self._approvals.decide(call_id, decision, note, getpass.getuser(), seen=seen)
        except NotDecidable as exc:
            self._stage.note(f"! {exc}", whole=True, style="")

    async def _line(self) -> str:
        """One typed line; end of input counts as no."""
        await trio.lowlevel.wait_readable(self._terminal)
        typed = os.read(self._terminal, _LONGEST_ANSWER)
        return typed.decode(errors="replace").strip() if typed else "no"
