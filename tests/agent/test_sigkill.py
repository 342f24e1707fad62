"""A worker that is killed at any step to the disk: what it did is known, done once, and the conversation goes on."""

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.assembly import StartupError
from tests.agent.dying import NEW, Life, Stable, Story, prompt, stable
from tests.agent.inprocess import worker
from wire.entries import CallEntry, CallRecord, CompactionEntry, MessageEntry, ToolResultBlock
from wire.transcript import read_entries
from wire.transcript_repair import TranscriptError

pytestmark = pytest.mark.process

HOWS = ("torn", "after")
TODO = 'TOOL:todo {"todos":[{"id":"1","text":"x"}]}'
ASKED = ("--require-approval", "exec")


def run(letter: str, **more: Any) -> str:
    """A call whose effect can be counted."""
    return f"TOOL:exec {msgspec.json.encode({'command': f'echo {letter} >> log', **more}).decode()}"


POLL = 'TOOL:process {"action":"poll","session_id":"$SESSION","timeout":9}'
STORIES = {
    "tools": Story([NEW, prompt(f"PARALLEL {run('a')} {run('b')} {TODO} TOOL:nothing {{}}")]),
    "approvals": Story([NEW, prompt(f"PARALLEL {run('a')} {run('b')} {run('c')}")], ASKED, steps=16),
    "compaction": Story([NEW, prompt(run("a")), prompt("two"), prompt(run("b")), ("compact", {})]),
    "session switches": Story(
        [
            *(NEW, prompt(run("a")), NEW, prompt(run("b"))),
            lambda files: ("switch_session", {"session_file": files[0]}),
            prompt(run("c")),
        ]
    ),
    "background": Story([NEW, prompt(f"{run('a', background=True)} {POLL} {run('b')}")]),
    "client tools": Story([NEW, prompt(f"PARALLEL {run('a')} TOOL:ask {{}}", client_tools=[{"name": "ask"}])], steps=8),
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
    for how in HOWS:
        for step in itertools.count(1):
            log.write_text("")
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
    for path in files_in(sessions):
        await check_is_one_or_refused(path)


async def test_killed_at_any_step_of_a_repair_and_a_sealing_the_next_worker_finishes_it(
    alive: Stable, sessions: str, workspace: Path
) -> None:
    log = workspace / "log"
    log.write_text("")
    path, left = torn_in_the_middle(alive, sessions)
    ran = Counter(log.read_text().split())
    for how in HOWS:
        for step in itertools.count(1):
            put_back(path, left)
            life = alive.live(Story([prompt("RECALL")]), "--session", path, die_at=step, how=how)
            if not life.code:
                assert step > 10
                break
            await check_goes_on(path)
            check_file(path, ran)
            assert are_kept_aside(path)
            assert Counter(log.read_text().split()) == ran


def torn_in_the_middle(alive: Stable, sessions: str) -> tuple[str, bytes]:
    """A transcript with a torn end: of its calls one was allowed, one denied, one is still asked about."""
    story = STORIES["approvals"]
    steps = itertools.cycle(range(1, story.steps + 1))  # which step it is varies with how soon the person decides
    lives = (alive.live(story, "--session-dir", sessions, die_at=step) for step in steps)
    life = next(life for life in lives if len(moves(life)) == 6)
    (path,) = life.sessions
    return path, Path(path).read_bytes() + b'{"type":"call","seq":99,"rec'


def put_back(path: str, content: bytes) -> None:
    Path(path).write_bytes(content)
    for torn in Path(path).parent.glob("*.torn-*"):
        torn.unlink()


def are_kept_aside(path: str) -> bool:
    return Path(f"{path}.torn-1").exists()


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
    elif "had not begun" in words or "awaiting approval" in words or "denied" in words:
        assert ran == 0
    else:
        assert "was running" in words
        assert result["_autoSealed"]


def check_acknowledged(story: Story, life: Life) -> None:
    """What was answered is there."""
    entries = [entry for path in life.sessions for entry in read_entries(path)]
    said = {entry.message.text for entry in entries if isinstance(entry, MessageEntry)}
    for number, request in enumerate(story.requests):
        if life.answered(number) and not callable(request):
            method, params = request
            assert method != "prompt" or params["text"] in said
            assert method != "compact" or any(isinstance(entry, CompactionEntry) for entry in entries)


async def check_is_one_or_refused(path: str) -> None:
    """Of a session that nobody was told of there may be a file that is none: it is refused in words."""
    try:
        assert all(entry.seq for entry in read_entries(path))
    except TranscriptError:
        with pytest.raises(StartupError, match=r"is empty|does not begin with"):
            async with worker("--session", path):
                raise AssertionError from None


def files_in(sessions: str) -> list[str]:
    return [str(path) for path in Path(sessions).glob("*.jsonl")]
