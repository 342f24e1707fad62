"""``agent -p TEXT``: one prompt in the terminal, its answer streamed to stdout, errors and tool calls to stderr."""

import sys
from collections.abc import Sequence
from typing import Any

import trio

from agent.assembly import assemble
from agent.inbox import Inbox
from agent.limits import Limits
from agent.models.scripted import Faults
from agent.options import Options
from agent.output import Output
from agent.turn import Run, Turn
from wire.messages import PromptResult

__all__ = ["run_once"]


class _Terminal(Output):
    """Shows pieces of text as they are, and of the events only what a person wants to see."""

    def pieces(self, name: str, parts: Sequence[str], run_id: str) -> None:  # noqa: ARG002 - the interface's
        if name == "assistant_message":
            sys.stdout.write("".join(parts))
            sys.stdout.flush()

    def event(self, name: str, data: dict[str, Any]) -> dict[str, Any]:
        if name == "tool" and data["phase"] in {"start", "error"}:
            sys.stderr.write(f"[{data['call'].name} {data.get('error') or data['call'].input_preview}]\n")
        return {"event": name, "data": {**data, "seq": self.next_seq()}}


def run_once(options: Options) -> int:
    """Run the prompt of the options; 0 when it was answered, 1 when not. Raises BadStart."""
    output = _Terminal()
    parts = assemble(options, output, Faults(lambda data: print(data.decode(errors="replace"), end="")))  # noqa: T201 - stdout is the product
    turn = Turn(
        Run(f"r{output.next_seq()}", parts.knowledge.expand(options.prompt or ""), [], trio.CancelScope()),
        conversation=parts.conversation,
        brain=parts.brain,
        inbox=Inbox(output, 0),
        output=output,
        limits=Limits(),
    )
    result: PromptResult = trio.run(turn.execute)
    sys.stdout.write("\n")
    if result.error is not None:
        sys.stderr.write(f"agent: {result.error}\n")
    return 0 if result.stop_reason in {"stop", "length"} else 1
