"""Tool calls that wait for a person, as the chat asks about them: one after the other. Pure."""

from collections.abc import Iterable
from typing import Any

import msgspec

from commands.chat.effects import CallText, Effect, GiveBack, Line, Request
from commands.event_text import call_text, question_text, reason_text, shown_page
from wire.call_page import CallPage, describe_hidden
from wire.messages import PermissionOption, omit_none
from wire.terminal import clean

_ALWAYS = "allow_always"
_WORDS = {"y": "y", "yes": "y", "a": "a", "always": "a", "n": "n", "no": "n", "v": "v"}
"""Lines that answer. A single key never does: it may be the first letter of a text."""
_CONSENT = frozenset({"y", "yes", "always"})


class OpenQuestion:
    """One call. ``seen``: what the last page of a long call says; ``always``: the agent's own answer for ever."""

    def __init__(self, call_id: str, page: CallPage, options: list[PermissionOption]) -> None:
        self.call_id = call_id
        self.page = page
        self.seen = page.seen
        self.always = next((option for option in options if option.kind == _ALWAYS), None)
        self.is_sent = False

    @property
    def is_hidden(self) -> bool:
        """Whether the end of the call was not shown yet, so that it cannot be allowed."""
        return bool(self.page.hidden)


class ChatQuestions:
    """The open calls of the session, the oldest first."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._open: dict[str, OpenQuestion] = {}
        self._found: set[str] = set()
        """Calls that waited when the chat began, until it is known what each would do."""

    @property
    def current(self) -> OpenQuestion | None:
        """The one to be answered now."""
        return next((question for question in self._open.values() if not question.is_sent), None)

    @property
    def keys(self) -> str:
        """Which keys answer it."""
        question = self.current
        if question is None:
            return ""
        if question.is_hidden:
            return "v shows the rest · n Deny · n and a text says why · then Enter"
        always = f" · a {clean(question.always.name)}" if question.always else ""
        return f"y Allow{always} · n Deny · n and a text says why · then Enter"

    def asked(self, data: dict[str, Any]) -> list[Effect]:
        """The data of the event ``permission_required``."""
        return self._ask(data, shown_page(data))

    def found(self, pending: Iterable[dict[str, Any]]) -> list[Effect]:
        """All calls that wait now; what each that is new would do is asked for. Any other one is over."""
        pending = list(pending)
        waiting = {call["id"] for call in pending}
        for call_id in [*self._open, *self._found]:
            if call_id not in waiting:
                self.decided(call_id)
        unknown = [call["id"] for call in pending if call["id"] not in self._open]
        self._found.update(unknown)
        return [self._look(call_id) for call_id in unknown]

    def page_came(self, call_id: str, answer: Any) -> list[Effect]:
        """A page of a call, from ``approvals.show``; nothing of one that was closed meanwhile."""
        page = msgspec.convert(answer["page"], CallPage)
        question = self._open.get(call_id)
        if question is None:
            return self._ask({"call": answer["call"]}, page) if self.waits(call_id) else []
        question.page, question.seen = page, page.seen
        return [CallText(page), *_hidden(page)]

    def waits(self, call_id: str) -> bool:
        """Whether the call is not closed yet."""
        return call_id in self._open or call_id in self._found

    def decided(self, call_id: str) -> None:
        """It is closed, by any front end, or by the end of its turn."""
        self._open.pop(call_id, None)
        self._found.discard(call_id)

    def close_all(self) -> None:
        """The turn has ended, and its questions with it."""
        self._open.clear()
        self._found.clear()

    def answer(self, text: str, shown: str) -> list[Effect]:
        """A line was entered while a question is open: ``y``, ``n``, ``a``, ``v``, or ``n`` and a note.

        Any other text denies the call and is the note, unless it begins as a consent does: that decides nothing, and is
        given back. ``shown``: as it was typed.
        """
        question = self.current
        if question is None:
            return []
        first, _, rest = text.strip().partition(" ")
        if rest.strip() and first.strip(",.;:!").lower() in _CONSENT:
            return [Line(self.keys, "warn", is_whole=True), GiveBack(shown)]
        if rest.strip() and _WORDS.get(first.lower()) == "n":
            return self._decide(question, "deny", shown, note=rest.strip())
        if (word := _WORDS.get(text.strip().lower())) is None:
            return self._decide(question, "deny", shown, note=text)
        return self._answer(question, word) or [Line(self.keys, "warn", is_whole=True)]

    def _answer(self, question: OpenQuestion, word: str) -> list[Effect]:
        match word:
            case "y" if not question.is_hidden:
                return self._decide(question, "allow")
            case "a" if question.always and not question.is_hidden:
                return self._decide(question, "allow", option_id=question.always.id)
            case "n":
                return self._decide(question, "deny")
            case "v" if question.is_hidden:
                return [self._look(question.call_id, question.page.end)]
        return []

    def refused(self, call_id: str) -> None:
        """The decision was not taken: the question is open again, unless it is over."""
        question = self._open.get(call_id)
        if question is not None:
            question.is_sent = False

    def _ask(self, data: dict[str, Any], page: CallPage) -> list[Effect]:
        call_id = str(data["call"]["id"])
        self._found.discard(call_id)
        self._open[call_id] = OpenQuestion(call_id, page, _options(data))
        words = question_text(data) if data.get("shown") else call_text(data) + reason_text(data)
        return [Line(f"? may it call {words}", "warn", is_whole=True), CallText(page), *_hidden(page)]

    def _look(self, call_id: str, offset: int = 0) -> Request:
        params = omit_none(call_id=call_id, session=self._session, offset=offset or None)
        return Request("page", "approvals.show", params, subject=call_id)

    def _decide(self, question: OpenQuestion, decision: str, typed: str = "", **more: str | None) -> list[Effect]:
        question.is_sent = True
        seen = question.seen if decision == "allow" else None
        params = omit_none(call_id=question.call_id, session=self._session, decision=decision, seen=seen, **more)
        return [Request("decide", "decide", params, subject=question.call_id, typed=typed)]


def _hidden(page: CallPage) -> list[Effect]:
    words = describe_hidden(page)
    return [Line(f"… {words}", "warn")] if words else []


def _options(data: dict[str, Any]) -> list[PermissionOption]:
    """The agent's own answers: an event has them beside the call, a listed call has them in it."""
    options = data.get("options") or data["call"].get("options")
    try:
        return msgspec.convert(options or [], list[PermissionOption])
    except msgspec.ValidationError:
        return []
