"""What the bundled worker costs: to the first ping, to resume a long session, a prompt, fifty commands that wait."""

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import psutil

from agent.sanitize import SanitizeRules, sanitize
from benchmarks.harness import Result, median, result, timed
from benchmarks.programs import AGENT, Program, program
from benchmarks.promises import Promise
from wire.entries import MessageEntry, SessionHeader, TextBlock, ToolResultBlock, ToolUseBlock, TranscriptMessage
from wire.transcript import TranscriptWriter, read_entries

_MESSAGES = 10_000
_ROUNDS = 7
_PROMPTS = 100
_COMMANDS = 50
_IDLE_SECONDS = 3.0
_ON_DISK = (*AGENT[:-1], "--session-dir")


def run() -> list[Result]:
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        path = Path(place, "long.jsonl")
        _write_long_transcript(path)
        _first_ping()  # bytecode, and the disk's cache
        return [*_starting(path), *_answering(place), _idling()]


# --- what is measured -------------------------------------------------------------------------------------------------


def _starting(path: Path) -> list[Result]:
    bare = (_median_ms(_bare_imports), "ms python importing trio and msgspec")
    read = (_median_ms(lambda: timed(lambda: list(read_entries(path)))), "ms reading the transcript")
    switch = _median_ms(lambda: _switch(path))
    messages = [entry.message for entry in read_entries(path) if isinstance(entry, MessageEntry)]
    clean = _median_ms(lambda: timed(lambda: sanitize(messages, SanitizeRules())))
    return [
        result("p50", _median_ms(_first_ping), "ms", promise=Promise.FIRST_PING, beside=bare, at_most=150.0),
        result(f"agent: switch to a session of {_MESSAGES:,} messages", switch, "ms", beside=read, at_most=300.0),
        result(f"agent: cleaning {_MESSAGES:,} messages for a model", clean, "ms"),
    ]


def _answering(place: str) -> list[Result]:
    memory, disk = (median([_prompt(command) * 1000 for _ in range(3)]) for command in (AGENT, (*_ON_DISK, place)))
    name = "agent: a prompt with one tool call, on disk"
    return [result(name, disk, "ms", beside=(memory, "ms without a transcript"))]


def _idling() -> Result:
    """Of a worker with many commands in the background that say nothing: nothing may be asked again and again."""
    call = 'TOOL:exec {"command":"exec sleep 600","background":true} '
    with program(AGENT) as process:
        _ask(process, "prompt", text=f"{call * _COMMANDS} PARALLEL ECHO:begun")
        assert len(psutil.Process(process.pid).children()) == _COMMANDS
        before = _processor_seconds(process.pid)
        time.sleep(_IDLE_SECONDS)
        used = _processor_seconds(process.pid) - before
    name = f"agent: idle with {_COMMANDS} commands in the background"
    return result(name, used / _IDLE_SECONDS * 1000, "ms CPU a second", at_most=1.0)


def _processor_seconds(pid: int) -> float:
    """All that the process has used, to the nanosecond; elsewhere than on Linux to the tick."""
    threads = [int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    if threads:
        return sum(threads) / 1e9
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def _switch(path: Path) -> float:
    with program((*_ON_DISK, str(path.parent))) as process:
        _ask(process, "ping")
        return timed(lambda: _ask(process, "switch_session", session_file=str(path)))


def _bare_imports() -> float:
    return timed(lambda: subprocess.run([sys.executable, "-P", "-c", "import trio, msgspec"], check=True))


def _median_ms(once: Callable[[], float]) -> float:
    return median([once() * 1000 for _ in range(_ROUNDS)])


# --- talking to one ---------------------------------------------------------------------------------------------------


def _ask(process: Program, method: str, **params: object) -> None:
    process.say(msgspec.json.encode({"id": "1", "method": method, "params": params}) + b"\n")
    answer = process.wait_for(b'{"id":"1"')
    assert b'"error":{' not in answer, answer


def _first_ping() -> float:
    begun = time.perf_counter()
    with program(AGENT) as process:
        _ask(process, "ping")
        return time.perf_counter() - begun


def _prompt(command: Sequence[str]) -> float:
    """Seconds that one prompt takes."""
    with program(command) as process:
        _ask(process, "prompt", text="warm")
        begun = time.perf_counter()
        for _ in range(_PROMPTS):
            _ask(process, "prompt", text='TOOL:read {"path":"none"}')
        return (time.perf_counter() - begun) / _PROMPTS


def _write_long_transcript(path: Path) -> None:
    writer = TranscriptWriter.create(path, SessionHeader(1, "long", "2026-01-31T10:00:00Z", str(path.parent)))
    for number in range(_MESSAGES // 4):
        call = f"c{number}"
        turn = [
            TranscriptMessage("user", [TextBlock(f"do the thing number {number} " + "word " * 40)]),
            TranscriptMessage("assistant", [ToolUseBlock(call, "read", {"path": f"src/file{number}.py"})]),
            TranscriptMessage("user", [ToolResultBlock(call, {"ok": True, "data": "line\n" * 100})], origin="tool"),
            TranscriptMessage("assistant", [TextBlock("Done. " * 40)]),
        ]
        for offset, message in enumerate(turn):
            writer.append(MessageEntry(4 * number + offset + 1, 1.0, message))
    writer.sync()
    writer.close()
