"""What a person sees of one run in a terminal: the answer on stdout, on stderr what happens beside it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from agent.approvals import Approvals
from agent.asking import Asker
from agent.output import Output, OutputLost
from wire.call_lines import CallLines
from wire.call_texts import call_words
from wire.messages import ToolCallView
from wire.stage import Stage

__all__ = ["Terminal"]

_NOBODY = "nobody can be asked here: go another way"


class Terminal(Output):
    """The worker's voice, for a person. A call that waits for approval is denied where there is no ``asker``."""

    approvals: Approvals | None = None
    asker: Asker | None = None

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._stage = stage
        self._calls = CallLines(stage)
        self._telling: Mapping[str, Callable[[dict[str, Any]], None]] = {
            "tool": self._tool,
            "error": self._trouble,
            "permission_required": self._permission,
            "agent_resumed": self._resumed,
            "compaction": self._compaction,
            "exec_exit": self._exec_exit,
        }

    def pieces(self, name: str, parts: Sequence[str], run_id: str) -> None:  # noqa: ARG002 - the interface's
        """Show what belongs to the answer."""
        if name == "assistant_message":
            with _losses_told():
                self._stage.answer("".join(parts))
                self._stage.flush()

    def event(self, name: str, data: dict[str, Any]) -> dict[str, Any]:
        """Show what a person wants to see; the rest is for programs."""
        tell = self._telling.get(name)
        if tell is not None:
            with _losses_told():
                tell(data)
        return {"event": name, "data": {**data, "seq": self.next_seq()}}

    def _tool(self, data: dict[str, Any]) -> None:
        call: ToolCallView = data["call"]
        match data["phase"]:
            case "start":
                self._calls.start(call)
            case "update":
                self._calls.update(data["tail"])
            case "error":
                self._calls.error(call, data["error"], data.get("details"))
            case "end":
                self._calls.end(call, data.get("details"))

    def _trouble(self, data: dict[str, Any]) -> None:
        if data.get("severity") == "warn":  # a graver one ends the run, and is told then
            self._stage.note(f"! {data['message']}", style="")

    def _permission(self, data: dict[str, Any]) -> None:
        if self.asker is not None:
            self.asker.ask(data)
            return
        call: ToolCallView = data["call"]
        words = call_words(call.name, call.input_preview)
        self._stage.note(f"? needs approval, and nobody can be asked here: {words}", about=call.id)
        if self.approvals is not None:
            self.approvals.decide(call.id, "deny", _NOBODY, "agent -p")

    def _resumed(self, data: dict[str, Any]) -> None:
        count = len(data["sealed"])
        calls = "1 tool call" if count == 1 else f"{count} tool calls"
        self._stage.note(
            f"! the session was interrupted: {calls} of it sealed; the model is told to check what they did"
        )

    def _compaction(self, data: dict[str, Any]) -> None:
        match data:
            case {"phase": "start"}:
                self._stage.note(f"· the conversation is being compacted ({data['reason']})")
            case {"error": error}:
                self._stage.note(f"! it could not be compacted: {error}")
            case {"aborted": True}:
                self._stage.note("! it was not compacted: the run was ended")
            case _:
                self._stage.note("✓ the conversation is compacted")

    def _exec_exit(self, data: dict[str, Any]) -> None:
        self._stage.note(f"· {data['summary']}")


@contextmanager
def _losses_told() -> Iterator[None]:
    """A stream that takes no more is no defect of the run that has something to say."""
    try:
        yield
    except OSError as exc:
        raise OutputLost(str(exc)) from exc
