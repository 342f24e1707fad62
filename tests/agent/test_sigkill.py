"""A worker that is killed at any step to the disk: what it did is known, done once, and the conversation goes on."""

import itertools
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

import msgspec
import pytest

from tests.agent.dying_agent import Order
from tests.agent.inprocess import Line, worker
from tests.house import ROOT
from wire.entries import CallEntry, CallRecord, CompactionEntry, MessageEntry, ToolResultBlock
from wire.transcript import read_entries

pytestmark = pytest.mark.process

_NEVER = 1_000_000
_DECISIONS = ("allow", "deny", "allow")

Request: TypeAlias = tuple[str, dict[str, Any]]

NEW: Request = ("new_session", {})


def prompt(text: str, **more: Any) -> Request:
    return "prompt", {"text": text, **more}


class Story(NamedTuple):
    """What a worker is asked, in this order; a person allows the first question and the third, denies the second."""

    requests: list[Request]
    flags: tuple[str, ...] = ()
    steps: int = 10  # at least as many to the disk


class Life(NamedTuple):
    """One worker's: what it said, and its exit code."""

    said: list[Line]
    code: int

    @property
    def sessions(self) -> list[str]:
        """The files of the sessions that it has acknowledged and written to, oldest first."""
        return [path for path in _sessions(self.said) if Path(path).exists()]

    def answered(self, number: int) -> bool:
        """Whether that request of the story got its answer."""
        return any(line.get("id") == number for line in self.said)


class Stable:
    """Where such workers come from. Everything here blocks: nothing else runs meanwhile."""

    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders

    def live(self, story: Story, *arguments: str, die_at: int = _NEVER, how: str = "after") -> Life:
        """Let a worker go through a story, or as far as it comes; its commands have ended too."""
        arguments = ("--mode", "rpc", "--no-hooks", *story.flags, *arguments)
        with ExitStack() as closing:
            stdin, to_worker = os.pipe()
            from_worker, stdout = os.pipe()
            writer = closing.enter_context(os.fdopen(to_worker, "wb", buffering=0))
            reader = closing.enter_context(os.fdopen(from_worker, "rb"))
            order = msgspec.json.encode(Order(list(arguments), die_at, how))
            socket.send_fds(self._orders, [order], [stdin, stdout])
            os.close(stdin)
            os.close(stdout)
            said: list[Line] = []
            for line in _tell(story, reader, writer, said):
                said.append(line)  # noqa: PERF402 - whoever tells looks at what was said so far
        life = Life(said, int(self._orders.recv(100)))
        assert life.code in {0, -signal.SIGKILL}
        return life


@contextmanager
def stable() -> Iterator[Stable]:
    """A place to live in the current directory."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.agent.dying_agent", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        theirs.close()
        try:
            yield Stable(ours)
        finally:
            ours.close()
            process.wait(10)


def _tell(story: Story, reader: IO[bytes], writer: IO[bytes], said: list[Line]) -> Iterator[Line]:
    for number, request in enumerate(story.requests):
        method, params = request
        if method == "switch_session":
            params = {"session_file": _sessions(said)[0]}
        _send(writer, number, method, params)
        for line in _lines(reader):
            yield line
            if line.get("event") == "permission_required":
                asked = sum(each.get("event") == "permission_required" for each in said)
                call_id = line["data"]["call"]["id"]
                _send(writer, None, "decide", {"call_id": call_id, "decision": _DECISIONS[asked - 1]})
            if line.get("id") == number:
                assert "error" not in line, line
                break
        else:
            return
    writer.close()
    yield from _lines(reader)


def _send(writer: IO[bytes], number: int | None, method: str, params: dict[str, Any]) -> None:
    with suppress(BrokenPipeError):  # it is dead; what it said is still to be read
        writer.write(msgspec.json.encode({"id": number, "method": method, "params": params}) + b"\n")


def _lines(reader: IO[bytes]) -> Iterator[Line]:
    return (msgspec.json.decode(raw) for raw in reader if raw.endswith(b"\n"))


def _sessions(said: list[Line]) -> list[str]:
    files = [line["result"].get("session_file") for line in said if "result" in line]
    return list(dict.fromkeys(file for file in files if file))


ASKED = ("--require-approval", "exec")
TODO = 'TOOL:todo {"todos":[{"id":"1","text":"x"}]}'
POLL = 'TOOL:process {"action":"poll","session_id":"$SESSION","timeout":9}'


def run(letter: str, **more: Any) -> str:
    """A call whose effect can be counted."""
    return f"TOOL:exec {msgspec.json.encode({'command': f'echo {letter} >> log', **more}).decode()}"


ASKING = Story([NEW, prompt(f"PARALLEL {run('a')} {run('b')} {run('c')}")], ASKED, steps=16)
STORIES = {
    "approvals": ASKING,
    "tools": Story(
        [
            *(
                NEW,
                prompt(f"PARALLEL {run('a')} {TODO} TOOL:nothing {{}} TOOL:ask {{}}", client_tools=[{"name": "ask"}]),
            ),
            prompt(f"{run('b', background=True)} {POLL} {run('c')}"),
        ]
    ),
    "sessions": Story([NEW, prompt(run("a")), NEW, prompt("b"), ("switch_session", {}), prompt("c"), ("compact", {})]),
}


@pytest.fixture
def alive(workspace: Path) -> Iterator[Stable]:
    with stable() as place:
        yield place


@pytest.mark.parametrize("name", STORIES)
async def test_killed_at_any_step_to_the_disk_nothing_runs_twice_and_every_call_has_one_result(
    name: str, alive: Stable, sessions: str, workspace: Path
) -> None:
    story, log = STORIES[name], workspace / "log"
    for step in itertools.count(1):
        log.write_text("")
        # A step that is torn leaves what "after" the step before leaves, but for an entry torn in two.
        how = "after" if step % 4 == 0 else "torn"
        life = alive.live(story, "--session-dir", sessions, die_at=step, how=how)
        ran = log.read_text().split()
        if not life.code:
            assert step > story.steps
            break
        for path in life.sessions:
            await check_goes_on(path)
            check_file(path, Counter(ran))
        check_acknowledged(story, life)
        assert log.read_text().split() == ran
        assert len(set(ran)) == len(ran)
    for path in map(str, Path(sessions).glob("*.jsonl")):  # noqa: ASYNC240
        assert all(entry.seq for entry in read_entries(path))  # no file is there without its header


async def test_killed_at_any_step_of_a_repair_and_a_sealing_the_next_worker_finishes_it(
    alive: Stable, sessions: str, workspace: Path
) -> None:
    log = workspace / "log"
    path, left = torn_in_the_middle(alive, sessions, log)
    ran = Counter(log.read_text().split())
    for how in ("torn", "after"):
        for step in itertools.count(1):
            Path(path).write_bytes(left)  # noqa: ASYNC240
            for torn in Path(path).parent.glob("*.torn-*"):
                torn.unlink()
            life = alive.live(Story([prompt("RECALL")]), "--session", path, die_at=step, how=how)
            if not life.code:
                assert step > 10
                break
            await check_goes_on(path)
            check_file(path, ran)
            assert Path(f"{path}.torn-1").exists()  # noqa: ASYNC240
            assert Counter(log.read_text().split()) == ran


def torn_in_the_middle(alive: Stable, sessions: str, log: Path) -> tuple[str, bytes]:
    """A transcript with a torn end: of its calls one was allowed, one denied, one is still asked about."""

    def lives() -> Iterator[Life]:
        for step in itertools.cycle(range(1, ASKING.steps + 1)):  # which one varies with how soon the person decides
            log.write_text("")  # of the lives before
            yield alive.live(ASKING, "--session-dir", sessions, die_at=step)

    life = next(life for life in lives() if len(moves(life)) == 6)
    (path,) = life.sessions
    return path, Path(path).read_bytes() + b'{"type":"call","seq":99,"rec'


def moves(life: Life) -> list[CallRecord]:
    """What the only conversation of a life holds of its calls' ways."""
    entries = [entry for path in life.sessions for entry in read_entries(path)]
    return [entry.record for entry in entries if isinstance(entry, CallEntry)]


async def check_goes_on(path: str) -> None:
    """Another worker takes it up, and a third one finds nothing left to be sealed."""
    async with worker("--session", path) as client:
        assert (await client.prompt("RECALL")).stop_reason == "stop"
    async with worker("--session", path) as client:
        assert (await client.prompt("ECHO:on")).text == "on"
        assert client.events("agent_resumed") == []


def check_file(path: str, ran: "Counter[str]") -> None:
    """The chain is whole, every call has one result, and what the model is told is true."""
    entries = list(read_entries(path))
    seqs = [entry.seq for entry in entries]
    assert seqs == sorted(set(seqs))
    messages = [entry.message for entry in entries if isinstance(entry, MessageEntry)]
    results = [block for each in messages for block in each.content if isinstance(block, ToolResultBlock)]
    calls = {call.id: call for message in messages for call in message.calls}
    assert sorted(result.tool_use_id for result in results) == sorted(calls)
    ends = Counter(
        entry.record.id for entry in entries if isinstance(entry, CallEntry) and entry.record.completed_at is not None
    )
    assert max(ends.values(), default=1) == 1
    for result in results:
        if isinstance(result.content, dict) and "echo" in (
            command := calls[result.tool_use_id].input.get("command", "")
        ):
            check_truth(result.content, ran[command.split()[1]])


def check_truth(result: dict[str, Any], ran: int) -> None:
    words = result.get("error", "")
    if result["ok"]:
        assert ran == 1
    elif "had not begun" in words or "waiting for approval" in words or "denied" in words:
        assert ran == 0
    else:
        assert "was running" in words
        assert result["_autoSealed"]


def check_acknowledged(story: Story, life: Life) -> None:
    """What was answered is there."""
    entries = [entry for path in life.sessions for entry in read_entries(path)]
    said = {entry.message.text for entry in entries if isinstance(entry, MessageEntry)}
    for number, request in enumerate(story.requests):
        if life.answered(number):
            method, params = request
            assert method != "prompt" or params["text"] in said
            assert method != "compact" or any(isinstance(entry, CompactionEntry) for entry in entries)
