"""How fast the bundled worker is: spawn to first ping, a prompt's round trip, resuming a long transcript.

``python -m benchmarks.bench_agent [rounds]``
"""

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from agent.history.hygiene import Rules, clean
from wire.entries import (
    MessageEntry,
    SessionHeader,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    TranscriptMessage,
)
from wire.transcript import TranscriptWriter, read_entries

MESSAGES = 10_000


@contextlib.contextmanager
def worker(*arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-P", "-m", "agent", "--mode", "rpc", *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    ) as process:
        yield process
        assert process.stdin
        process.stdin.close()
        process.wait(10)


def ask(process: "subprocess.Popen[bytes]", method: str, **params: object) -> None:
    assert process.stdin
    assert process.stdout
    process.stdin.write(msgspec.json.encode({"id": "1", "method": method, "params": params}) + b"\n")
    process.stdin.flush()
    for line in process.stdout:
        if line.startswith(b'{"id":"1"'):
            assert b'"error":{' not in line, line
            return
    raise AssertionError("the worker ended")


def first_ping(*arguments: str) -> float:
    begun = time.perf_counter()
    with worker(*arguments) as process:
        ask(process, "ping")
        return time.perf_counter() - begun


def prompts(count: int, *arguments: str) -> float:
    with worker(*arguments) as process:
        ask(process, "prompt", text="warm")
        begun = time.perf_counter()
        for _ in range(count):
            ask(process, "prompt", text='TOOL:read {"path":"none"}')
        return (time.perf_counter() - begun) / count


def long_transcript(path: Path) -> None:
    writer = TranscriptWriter.create(path, SessionHeader(1, "long", "2026-01-31T10:00:00Z", str(path.parent)))
    for number in range(MESSAGES // 4):
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


def measure(label: str, rounds: int, once: Callable[[], float]) -> None:
    times = sorted(once() * 1000 for _ in range(rounds))
    print(f"{label:<46} {statistics.median(times):8.1f} ms median  {times[0]:8.1f} best  {times[-1]:8.1f} worst")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        path = Path(place, "long.jsonl")
        long_transcript(path)
        messages = [entry.message for entry in read_entries(path) if isinstance(entry, MessageEntry)]

        def switch() -> float:
            with worker("--session-dir", place) as process:
                ask(process, "ping")
                begun = time.perf_counter()
                ask(process, "switch_session", session_file=str(path))
                return time.perf_counter() - begun

        def hygiene() -> float:
            begun = time.perf_counter()
            clean(messages, Rules())
            return time.perf_counter() - begun

        first_ping("--no-session")
        measure("spawn to first ping", rounds, lambda: first_ping("--no-session"))
        measure(f"switch_session to {MESSAGES:,} messages", rounds, switch)
        measure(f"spawn with --session of {MESSAGES:,} to ping", rounds, lambda: first_ping("--session", str(path)))
        measure(f"hygiene of {MESSAGES:,} messages", rounds, hygiene)
        measure("prompt with one tool call, no transcript", 3, lambda: prompts(100, "--no-session"))
        measure("prompt with one tool call, on disk", 3, lambda: prompts(100, "--session-dir", place))


if __name__ == "__main__":
    main()
