"""``agent -p TEXT``: one prompt in the terminal, its answer streamed to stdout, errors and tool calls to stderr."""

import signal
import sys
from collections.abc import Sequence
from typing import Any

import trio

from agent.approvals import Approvals
from agent.assembly import assemble
from agent.models.scripted import Faults
from agent.options import Options
from agent.output import Output
from agent.runs import Run
from agent.turn import Turn
from agent.worker import Worker
from wire.messages import PromptResult

__all__ = ["run_once"]

_CODES = {"stop": 0, "length": 0, "max_steps": 4, "timeout": 124}
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NOBODY = "nobody can be asked here: go another way"


class _Terminal(Output):
    """Shows pieces of text as they are, and of the events only what a person wants to see. Approvals are denied."""

    approvals: Approvals | None = None

    def pieces(self, name: str, parts: Sequence[str], run_id: str) -> None:  # noqa: ARG002 - the interface's
        if name == "assistant_message":
            sys.stdout.write("".join(parts))
            sys.stdout.flush()

    def event(self, name: str, data: dict[str, Any]) -> dict[str, Any]:
        match name, data.get("phase"):
            case "tool", "start":
                _tell(f"{data['call'].name} {data['call'].input_preview}")
            case "tool", "error":
                _tell(f"{data['call'].name} failed: {data['error']}")
            case "error", _ if data.get("severity") == "warn":
                _tell(f"warning: {data['message']}")
            case "permission_required", _ if self.approvals is not None:
                self.approvals.decide(data["call"].id, "deny", _NOBODY, "agent -p")
            case _:
                pass  # for programs
        return {"event": name, "data": {**data, "seq": self.next_seq()}}


def _tell(line: str) -> None:
    sys.stderr.write(f"[{line}]\n")


def run_once(options: Options) -> int:
    """Run the prompt of the options; the exit code, see ``agent --help``. Raises BadStart."""
    output = _Terminal()
    worker = assemble(options, output, Faults(lambda data: print(data.decode(errors="replace"), end="")))  # noqa: T201 - stdout is the product
    output.approvals = worker.brain.approvals
    return trio.run(_run, worker, options.prompt or "")


async def _run(worker: Worker, prompt: str) -> int:
    run = Run(run_id=f"r{worker.output.next_seq()}", text=worker.knowledge.expand(prompt))
    caught: list[int] = []
    with trio.open_signal_receiver(*_SIGNALS) as signals:
        async with trio.open_nursery() as nursery:

            async def stop_at_signal() -> None:
                async for number in signals:
                    caught.append(number)
                    run.abort()

            nursery.start_soon(stop_at_signal)
            result = await _answered(worker, run)
            nursery.cancel_scope.cancel()
    sys.stdout.write("\n")
    if result.error is not None:
        sys.stderr.write(f"agent: {result.error}\n")
    return 128 + caught[0] if caught else _CODES.get(result.stop_reason, 1)


async def _answered(worker: Worker, run: Run) -> PromptResult:
    """What still runs in the background when the answer is there ends with it: nobody could follow it up."""
    processes = worker.brain.processes
    async with trio.open_nursery() as nursery:
        await nursery.start(processes.run)
        await worker.begin()
        turn = Turn(
            run,
            conversation=worker.conversation,
            brain=worker.brain,
            compactor=worker.compactor,
            inbox=worker.inbox,
            output=worker.output,
            limits=worker.limits,
        )
        result = await turn.execute()
        if processes.in_background:
            _tell(f"commands that still ran in the background were stopped: {processes.in_background}")
        await processes.aclose()
        await worker.end()
        nursery.cancel_scope.cancel()
    return result
