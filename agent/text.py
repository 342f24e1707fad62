"""``agent -p TEXT``: one prompt in the terminal, to its end; what is seen of it is ``agent.terminal``'s."""

import os
import signal
import sys
from collections.abc import AsyncIterator

import trio

from agent.asking import Asker
from agent.assembly import BadStart, assemble
from agent.models.scripted import Faults
from agent.options import Options
from agent.runs import Run
from agent.terminal import Terminal
from agent.turn import Turn
from agent.worker import Worker
from wire.messages import PromptResult
from wire.stage import Stage

__all__ = ["run_once"]

_CODES = {"stop": 0, "max_steps": 4, "length": 5, "timeout": 124}
_CUT_SHORT = {
    "max_steps": "the agent was not done: it has made all model calls that one run may (--max-steps)",
    "length": "the answer is cut off: it has reached the model's limit",
}
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_once(options: Options) -> int:
    """Run the prompt of the options; the exit code, see ``agent --help``. Raises BadStart."""
    stage = Stage(sys.stdout, sys.stderr, os.environ)
    output = Terminal(stage)
    worker = assemble(options, output, Faults(lambda data: stage.answer(data.decode(errors="replace"))))
    output.approvals = worker.brain.approvals
    if options.prompt != "-" and sys.stdin.isatty() and sys.stderr.isatty():
        output.asker = Asker(stage, worker.brain.approvals, sys.stdin.fileno())
    return trio.run(_run, worker, stage, _text_of(options.prompt or ""), output.asker)


def _text_of(prompt: str) -> str:
    """The prompt; for ``-`` all of stdin. Raises BadStart."""
    try:
        text = sys.stdin.buffer.read().decode() if prompt == "-" else prompt
    except UnicodeDecodeError as exc:
        raise BadStart(f"what stdin holds is not UTF-8 text: {exc}") from exc
    if not text.strip():
        raise BadStart("the prompt is empty; say something")
    return text


async def _run(worker: Worker, stage: Stage, prompt: str, asker: Asker | None) -> int:
    run = Run(run_id=f"r{worker.output.next_seq()}", text=worker.knowledge.expand(prompt))
    caught: list[int] = []
    results: list[PromptResult] = []
    with trio.open_signal_receiver(*_SIGNALS) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch_signals, signals, caught, run, stage, nursery.cancel_scope)
            if asker is not None:
                nursery.start_soon(asker.run)
            results.append(await _answered(worker, run, stage))
            nursery.cancel_scope.cancel()
    stage.close()
    for result in results:
        trouble = result.error or _CUT_SHORT.get(result.stop_reason)
        if trouble is not None:
            stage.note(f"agent: {trouble}", style="", whole=True)
        if not caught:
            return _CODES.get(result.stop_reason, 1)
    return 128 + caught[0]


async def _watch_signals(
    signals: AsyncIterator[int], caught: list[int], run: Run, stage: Stage, everything: trio.CancelScope
) -> None:
    """The first one aborts the run, which may take its commands some seconds; the second does not wait for them."""
    async for number in signals:
        if caught:
            everything.cancel()
        else:
            stage.note("! aborting; once more ends it at once")
            run.abort()
        caught.append(number)


async def _answered(worker: Worker, run: Run, stage: Stage) -> PromptResult:
    """What still runs in the background when the answer is there ends with it: nobody could follow it up."""
    processes = worker.brain.processes
    async with trio.open_nursery() as nursery:
        await nursery.start(processes.run)
        await worker.begin()
        result = await Turn(run, worker).execute()
        if processes.in_background:
            stage.note(f"! commands that still ran in the background are stopped: {processes.in_background}")
        await processes.aclose()
        await worker.end()
        nursery.cancel_scope.cancel()
    return result
