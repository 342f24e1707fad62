"""What happens in the session of a chat, as what is to be printed of it. Pure."""

from collections.abc import Iterable
from typing import Any

from commands.chat.blocks import MarkdownBlocks, cut_long_line
from commands.chat.calls import ChatCalls
from commands.chat.effects import Effect, Line, Markdown
from commands.chat.questions import ChatQuestions
from commands.event_text import describe_event, event_data, event_text, notice_mark, tool_data
from commands.run_ends import describe_run_end
from wire.events import TEXT_KINDS
from wire.messages import EventEnvelope


class ChatTranscript:
    """The session since the chat began.

    Attributes:
        questions: tool calls that wait for a decision.
        calls: tool calls that run or have run.
        mine: the runs of messages that were sent from here and have not ended, the oldest first.
        running: the run whose turn runs now, of any front end.
        tokens, cost: sums; ``cost`` in US dollars, None where the agent gives none.
    """

    def __init__(self, session: str, *, thinking: bool = False) -> None:
        """``thinking``: show the reasoning too."""
        self.questions = ChatQuestions(session)
        self.calls = ChatCalls()
        self.mine: dict[str, None] = {}
        self.running: str | None = None
        self.tokens = 0
        self.cost: float | None = None
        self._shows_thinking = thinking
        self._blocks = MarkdownBlocks()
        self._thinking = ""
        self._has_answer = False
        self._last_error: str | None = None

    @property
    def partial_answer(self) -> str:
        """What has come of the block that is not printed yet; else of the reasoning."""
        return self._blocks.rest or self._thinking

    def end_text(self) -> list[Effect]:
        """Print what was not complete, before something else is printed."""
        return [*self._end_thinking(), *map(Markdown, self._blocks.end())]

    def event(self, event: EventEnvelope) -> list[Effect]:
        """The next event of the session."""
        match TEXT_KINDS.get(event.type):
            case "text":
                return self._answer(event_text(event))
            case "think":
                return self._reason(event_text(event)) if self._shows_thinking else []
        shown = self._lines(event)
        return [*self.end_text(), *shown] if shown else []

    def _lines(self, event: EventEnvelope) -> list[Effect]:
        data = event_data(event)
        lines: list[Effect] = []
        match event.type:
            case "run:accepted":
                text = "" if event.run_id in self.mine else str(data.get("text") or "")
                lines = [Line(f"≫ {text}", "bold", is_whole=True)] if text else []
            case "run:start":
                self._start(str(data.get("leader") or event.run_id))
            case "done":
                lines = self._done(event.run_id or "", data)
            case "permission_required":
                lines = self.questions.asked(data)
            case "permission_decided":
                self.questions.decided(str(data.get("call_id")))
                lines = _notice(event, data)
            case "token_usage":
                self._count(data)
            case "state_changed" if data.get("to") == "READY":
                self.running = None
            case "tool:start" | "tool:running" | "tool:update" | "tool:error" | "tool:end":
                tool = tool_data(event)
                lines = self.calls.event(event.type, tool) if tool else []
            case _:
                lines = _notice(event, data)
        return lines

    def _answer(self, text: str) -> list[Effect]:
        ended = self._end_thinking()
        self._has_answer = True
        return [*ended, *map(Markdown, self._blocks.feed(text))]

    def _reason(self, text: str) -> list[Effect]:
        *full, partial = (self._thinking + text).split("\n")
        *long, self._thinking = cut_long_line(partial)
        return [Line(f"  {line}", "dim", is_whole=True) for line in [*full, *long]]

    def _end_thinking(self) -> list[Effect]:
        text, self._thinking = self._thinking, ""
        return [Line(f"  {text}", "dim", is_whole=True)] if text else []

    def _start(self, leader: str) -> None:
        """A turn begins, unless the run only joins the one that goes on."""
        if leader != self.running:
            self.running = leader
            self._has_answer, self._last_error = False, None

    def _done(self, run: str, data: dict[str, Any]) -> list[Effect]:
        """A run has ended. All runs of a turn have its answer: the first of them shows what did not come in pieces."""
        shown = self.end_text()
        self.mine.pop(run, None)
        if self.running in (run, None):  # None: it ran under a supervisor that has ended
            self.running = None
            self.questions.close_all()
            shown += self.calls.end_all()
        is_of_turn = bool(data.get("worker"))
        text = str(data.get("text") or "")
        if text and not is_of_turn:  # a slash command's
            shown.append(Line(text, "plain", is_whole=True))
        elif text and not self._has_answer:
            shown.append(Markdown(text))
            self._has_answer = True
        words = describe_run_end(data)
        if not words or words == self._last_error:  # of messages that were steered into the turn, once
            return shown
        self._last_error = words
        return [*shown, Line(f"✗ {words}", "bad", is_whole=True)]

    def _count(self, data: dict[str, Any]) -> None:
        counts = (data.get(name) for name in ("input_tokens", "output_tokens"))
        self.tokens += sum(count for count in counts if isinstance(count, int))
        cost = data.get("cost")
        if isinstance(cost, int | float):
            self.cost = (self.cost or 0.0) + cost


def _notice(event: EventEnvelope, data: dict[str, Any]) -> list[Effect]:
    """A line for an event that front ends show beside an answer."""
    mark = notice_mark(event.type, data)
    return [Line(f"{mark} {describe_event(event)[0]}", "dim" if mark == "·" else "warn")] if mark else []


def history_lines(messages: list[dict[str, Any]]) -> Iterable[Effect]:
    """What people and the agent have said before; tool calls are left out."""
    for message in messages:
        text = "\n".join(_texts(message.get("content"))).strip()
        if text and message.get("role") == "user":
            yield Line(f"> {text}", "bold", is_whole=True)
        elif text and message.get("role") == "assistant":
            yield Markdown(text)


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    blocks = content if isinstance(content, list) else []
    return [str(block.get("text", "")) for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
