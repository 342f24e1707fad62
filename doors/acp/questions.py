"""Questions of an agent about a tool call, as an editor is asked them and answers them. Pure."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from doors.acp.requests import OfferedOption
from doors.acp.updates import text_block, tool_call_facts
from wire.call_page import CallPart
from wire.framing import DECODE_ERRORS
from wire.messages import ToolCallView, omit_none

MAX_PAGES = 64
"""Pages of one call that are put before an editor."""
_DEFAULT_OPTIONS = (OfferedOption("allow", "Allow", "allow_once"), OfferedOption("reject", "Reject", "reject_once"))
_BACKTICKS = re.compile("`+")
_TOO_LONG = "This call is too long to be shown here; `pool approvals` shows all of it, and it can be allowed there."


class UnusableAnswer(Exception):
    """An answer of the editor that decides nothing; the text says why."""


class Question(NamedTuple):
    """What is asked. ``parts``: all of the call; ``seen``: what a decision to allow must repeat.

    ``is_whole`` False: there is more than can be shown, so that it can only be rejected here.
    """

    call: ToolCallView
    reason: str | None
    parts: Sequence[CallPart]
    options: Sequence[OfferedOption] = ()
    seen: str | None = None
    is_whole: bool = True

    def request_params(self, session: str) -> dict[str, Any]:
        """The parameters of ``session/request_permission``."""
        call = self.call
        facts = tool_call_facts(call.id, call.name, call.input_preview)
        texts = [*([self.reason] if self.reason else []), *map(_part_text, self.parts)]
        if not self.is_whole:
            texts.append(_TOO_LONG)
        content = [{"type": "content", "content": text_block(text)} for text in texts]
        return {
            "sessionId": session,
            "toolCall": {**facts, "status": "pending", "content": content},
            "options": [
                {"optionId": each.id, "name": each.name or each.id, "kind": each.kind} for each in self._offered()
            ],
        }

    def read_decision(self, result: msgspec.Raw | None, *, void: bool = False) -> dict[str, Any] | None:
        """What the answer decides, as parameters of ``decide``; None: nothing. ``result`` None: it was an error.

        An answer ``cancelled`` rejects: the question was put aside, and its turn waits. ``void``: it decides nothing,
        since it only says that the prompt was cancelled. Raises UnusableAnswer.
        """
        decided = self.denial()
        if result is None:
            raise UnusableAnswer("the editor answered the question with an error")
        try:
            outcome = _answers.decode(result).outcome
        except DECODE_ERRORS as exc:
            raise UnusableAnswer("the editor's answer to the question was malformed") from exc
        if outcome.outcome == "cancelled":
            return None if void else decided
        if outcome.outcome != "selected":
            raise UnusableAnswer(f"the editor answered the question with an unknown outcome, {outcome.outcome[:80]!r}")
        chosen = next((each for each in self._offered() if each.id == outcome.option_id), None)
        if chosen is None:
            raise UnusableAnswer("the editor chose an option that was not offered")
        if chosen in self.options:
            decided["option_id"] = chosen.id
        if chosen.kind.startswith("allow"):
            decided["decision"] = "allow"
            if self.seen is not None:
                decided["seen"] = self.seen
        return decided

    def denial(self, note: str | None = None) -> dict[str, Any]:
        """Parameters of ``decide`` that reject the call; ``note`` reaches the model."""
        return omit_none(call_id=self.call.id, decision="deny", note=note)

    def _offered(self) -> Sequence[OfferedOption]:
        is_complete = any(option.kind != "allow_always" for option in self.options)
        offered = self.options if is_complete else (*_DEFAULT_OPTIONS, *self.options)
        return offered if self.is_whole else [each for each in offered if not each.kind.startswith("allow")]


class _Outcome(msgspec.Struct, rename="camel"):
    outcome: str
    option_id: str | None = None


class _QuestionAnswer(msgspec.Struct):
    outcome: _Outcome


_answers = msgspec.json.Decoder(_QuestionAnswer)


def _part_text(part: CallPart) -> str:
    if part.form == "diff":
        fence = "`" * (3 + max(map(len, _BACKTICKS.findall(part.text)), default=0))
        return f"{part.name}:\n{fence}diff\n{part.text.rstrip()}\n{fence}"
    return f"{part.name}: {part.text}"
