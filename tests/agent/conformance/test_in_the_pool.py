"""The bundled agent behind a whole supervisor: what front ends see of it, and a model server that fails."""

import base64
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from fixtures.fake_openai import FakeOpenAI
from tests.acceptance.line_client import Envelope, LineClient, connected
from tests.acceptance.supervisor import Supervisor, running_supervisor
from tests.agent.inprocess import tool
from tests.agent.models.conftest import until_told

pytestmark = pytest.mark.process

KEY = "sk-very-secret"
PNG = b"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SETTINGS = """
pool = {{ min = 0, max = 3 }}
[agents.model]
provider = "openai"
model = "fake-1"
base_url = "{url}"
workspace = "{place}"
env = {{ OPENAI_API_KEY = "{key}", NO_PROXY = "*" }}
"""


def step(name: str, **arguments: Any) -> dict[str, Any]:
    return {"call": name, "arguments": arguments}


TEN_STEPS = json.dumps(
    [
        step("write", path="a.txt", content="one\ntwo\n"),
        step("read", path="a.txt"),
        step("edit", path="a.txt", edits=[{"old_text": "two", "new_text": "three"}]),
        [step("ls"), step("grep", pattern="three"), step("find", pattern="*.txt")],
        step("exec", command="printf '\\377\\303'; cat a.txt"),
        step("todo", todos=[{"id": "1", "text": "ten steps"}]),
        step("exec", command="sleep 600", background=True),
        step("process", action="list"),
        step("read", path="shot.png"),
        step("nothing"),
        "that was all",
    ]
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the agents work."""
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def supervisor(place: Path, tmp_path_factory: pytest.TempPathFactory, server: FakeOpenAI) -> Iterator[Supervisor]:
    folder = tmp_path_factory.mktemp("pool")
    settings = folder / "pool.toml"
    settings.write_text(SETTINGS.format(place=place, url=server.url, key=KEY))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        with running_supervisor(folder / "data", "--config", str(settings)) as running:
            yield running


class Front:
    """A front end that receives every event of one session; ``told`` is what it has received."""

    def __init__(self, session: str, agent: str) -> None:
        self.session = session
        self.agent = agent
        self.told: list[Envelope] = []
        self.client: LineClient
        self._news = trio.Event()

    def hear(self, envelope: Envelope) -> None:
        self.told.append(envelope)
        self._news.set()

    async def until(self, is_so: Callable[[], object]) -> None:
        while not is_so():
            self._news = trio.Event()
            await self._news.wait()

    async def heard_more(self, count: int, kind: str) -> None:
        """Wait for more events of this type than that, or for the end of a run."""
        await self.until(lambda: len(self.kinds(kind)) > count or (kind != "done" and self.kinds("done")))

    async def send(self, text: str, **more: Any) -> str:
        """Have a message accepted; its run's id."""
        accepted = await self.client.call("agent", text=text, session=self.session, agent=self.agent, **more)
        return str(accepted["run_id"])

    async def outcome(self, run_id: str) -> dict[str, Any]:
        outcome: dict[str, Any] = await self.client.call("agent.wait", run_id=run_id, session=self.session)
        return outcome

    async def ask(self, text: str) -> dict[str, Any]:
        return await self.outcome(await self.send(text))

    def kinds(self, *wanted: str) -> list[str]:
        return [envelope["type"] for envelope in self.told if envelope["type"] in wanted]


@asynccontextmanager
async def front(
    supervisor: Supervisor, session: str, agent: str = "main", since: int | None = None
) -> AsyncIterator[Front]:
    one = Front(session, agent)
    async with connected(supervisor.socket, one.hear, seconds=25) as client:
        one.client = client
        await client.call("subscribe", session=session, **({} if since is None else {"since": since}))
        yield one


async def test_replay_and_live_events_are_one_stream_without_gap_or_duplicate(supervisor: Supervisor) -> None:
    async with front(supervisor, "stream") as live:
        run = await live.send(f"{tool('exec', command='echo one; echo two')} PIECES=300 DELAY=2")
        await live.heard_more(0, "tool:end")
        bookmark = live.told[len(live.told) // 2]["seq"]
        async with front(supervisor, "stream", since=0) as late, front(supervisor, "stream", since=bookmark) as back:
            assert (await live.outcome(run))["status"] == "ok"
            for each in (live, late, back):
                await each.heard_more(0, "done")
        seqs = [envelope["seq"] for envelope in live.told]
        assert seqs == sorted(set(seqs))
        assert late.told == live.told
        assert back.told == [envelope for envelope in live.told if envelope["seq"] > bookmark]
        said = "".join(envelope["data"]["delta"] for envelope in live.told if envelope["type"] == "text_chunk")
        assert said == "".join(f"piece {number} " for number in range(300))


async def test_whatever_is_sent_while_others_are_on_their_way_is_delivered_once(supervisor: Supervisor) -> None:
    """Messages of every mode, from the first word of a turn to its last, and into the flush of what waits by then."""
    modes = ("steer", "followup", "collect")
    async with front(supervisor, "flush") as alice:
        runs = [await alice.send(f"{tool('exec', command='true')} PIECES=60 DELAY=5 first")]
        for number in range(24):
            early = number < 12
            await alice.heard_more(6 * number if early else min(number - 12, 3), "text_chunk" if early else "done")
            runs.append(await alice.send(f"<{number}>", queue=modes[number % 3]))
        assert {(await alice.outcome(run))["status"] for run in runs} == {"ok"}
        recalled = (await alice.ask("RECALL"))["text"]
        assert {number: recalled.count(f"<{number}>") for number in range(24)} == dict.fromkeys(range(24), 1)
        over = Counter(envelope["run_id"] for envelope in alice.told if envelope["type"] == "done")
        assert {over[run] for run in runs} == {1}


def check_pairs(messages: Iterable[dict[str, Any]]) -> None:
    """As servers insist on it: after each message with calls their results, and results nowhere else."""
    waiting: Counter[str] = Counter()
    for message in messages:
        if message["role"] == "tool":
            waiting.subtract([message["tool_call_id"]])
            assert min(waiting.values()) >= 0
        else:
            assert not +waiting
            waiting = Counter(call["id"] for call in message.get("tool_calls", ()))
    assert not +waiting


async def test_ten_steps_of_a_served_model_run_through_the_pool(
    supervisor: Supervisor, server: FakeOpenAI, place: Path
) -> None:
    (place / "shot.png").write_bytes(base64.b64decode(PNG))
    async with front(supervisor, "ten", "model") as one:
        outcome = await one.ask(f"ODD_ARGS DRIP=97 CRLF SCRIPT:{TEN_STEPS}")
        assert (outcome["status"], outcome["text"]) == ("ok", "that was all")
        await one.heard_more(0, "done")
        assert len(one.kinds("tool:start")) == len(one.kinds("tool:end")) == 12
        assert one.kinds("tool:error") == ["tool:error"]
        check_pairs(server.seen[-1].body["messages"])
        assert server.seen[-1].headers["authorization"] == f"Bearer {KEY}"
        assert KEY not in json.dumps(one.told) + "".join(supervisor.log)


async def test_a_model_server_that_breaks_off_or_falls_silent_costs_one_run(
    supervisor: Supervisor, server: FakeOpenAI
) -> None:
    async with front(supervisor, "broken", "model") as one:
        outcome = await one.ask("CUT")
        assert (outcome["status"], "in the middle" in outcome["error"]["message"]) == ("error", True)
        run = await one.send("HANG in the pool")
        await one.until(lambda: any(envelope["data"].get("delta") == "before hang " for envelope in one.told))
        await one.client.call("abort", session="broken")
        outcome = await one.outcome(run)
        assert (outcome["reason"], outcome["text"]) == ("interrupted", "before hang ")
        await until_told(server.hung_up, "HANG in the pool")
        assert (await one.ask("and now"))["text"] == "echo: and now"
