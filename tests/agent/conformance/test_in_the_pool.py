"""The bundled agent behind a whole supervisor: what front ends see of it, and a model server that has its moods."""

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
from tests.acceptance.line_client import Envelope, LineClient, Refused, connected
from tests.acceptance.supervisor import Supervisor, running_supervisor
from tests.agent.conformance.processes import tool
from tests.agent.models.conftest import until_told

pytestmark = pytest.mark.process

KEY = "sk-very-secret"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

SETTINGS = """
[pool]
min = 0
max = 3

[agents.asks]
require_approval = ["exec"]
workspace = "{place}"

[agents.model]
provider = "openai"
model = "fake-1"
base_url = "{url}"
workspace = "{place}"
env = {{ OPENAI_API_KEY = "{key}", NO_PROXY = "*" }}

[agents.small]
provider = "openai"
model = "fake-window-20000"
workspace = "{place}"
env = {{ OPENAI_BASE_URL = "{url}", NO_PROXY = "*" }}
"""


def step(name: str, **arguments: Any) -> dict[str, Any]:
    return {"call": name, "arguments": arguments}


def script(*steps: Any) -> str:
    return f"SCRIPT:{json.dumps(steps)}"


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


TEN_STEPS = script(
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
)

LONG = [step("exec", command=f"echo step {number}; seq 300") for number in range(10)]


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
    """A front end that hears of everything in one session; ``told`` is what it heard."""

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
        """Wait until it is so."""
        while not is_so():
            self._news = trio.Event()
            await self._news.wait()

    async def heard_more(self, count: int, kind: str) -> None:
        """Wait for more events of this type than that, or for the end of a run."""
        await self.until(lambda: len(self.kinds(kind)) > count or (kind != "done" and self.kinds("done")))

    async def heard(self, kind: str, **data: Any) -> Envelope:
        """Wait for an event of this type with this data."""

        def found() -> list[Envelope]:
            told = (envelope for envelope in self.told if envelope["type"] == kind)
            return [envelope for envelope in told if data.items() <= envelope["data"].items()]

        await self.until(found)
        return found()[0]

    async def send(self, text: str, **more: Any) -> str:
        """Have a message accepted; its run's id."""
        accepted = await self.client.call("agent", text=text, session=self.session, agent=self.agent, **more)
        return str(accepted["run_id"])

    async def outcome(self, run_id: str) -> dict[str, Any]:
        outcome: dict[str, Any] = await self.client.call("agent.wait", run_id=run_id, session=self.session)
        return outcome

    async def ask(self, text: str, **more: Any) -> dict[str, Any]:
        return await self.outcome(await self.send(text, **more))

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


# --- events -----------------------------------------------------------------------------------------------------------


async def test_replay_and_live_events_are_one_stream_without_gap_or_duplicate(supervisor: Supervisor) -> None:
    text = f"{tool('exec', command='echo one; echo two')} PIECES=300 DELAY=2"
    async with front(supervisor, "stream") as live:
        run = await live.send(text)
        await live.heard("tool:end")
        bookmark = live.told[len(live.told) // 2]["seq"]
        async with front(supervisor, "stream", since=0) as late, front(supervisor, "stream", since=bookmark) as back:
            assert (await live.outcome(run))["status"] == "ok"
            for each in (live, late, back):
                await each.heard("done")
        seqs = [envelope["seq"] for envelope in live.told]
        assert seqs == sorted(set(seqs))
        assert late.told == live.told
        assert back.told == [envelope for envelope in live.told if envelope["seq"] > bookmark]
        said = "".join(envelope["data"]["delta"] for envelope in live.told if envelope["type"] == "text_chunk")
        assert said == "".join(f"piece {number} " for number in range(300))


MODES = ("steer", "followup", "collect")


async def test_whatever_is_sent_while_others_are_on_their_way_is_delivered_once(supervisor: Supervisor) -> None:
    """Messages of every mode, from the first word of a turn to its last, and into the flush of what waits by then."""
    async with front(supervisor, "flush") as alice:
        runs = [await alice.send(f"{tool('exec', command='true')} PIECES=60 DELAY=5 first")]
        for number in range(12):
            await alice.heard_more(6 * number, "text_chunk")
            runs.append(await alice.send(f"<{number}>", queue=MODES[number % 3]))
        for number in range(12, 24):
            await alice.heard_more(min(number - 12, 3), "done")
            runs.append(await alice.send(f"<{number}>", queue=MODES[number % 3]))
        assert {(await alice.outcome(run))["status"] for run in runs} == {"ok"}
        recalled = (await alice.ask("RECALL"))["text"]
        assert {number: recalled.count(f"<{number}>") for number in range(24)} == dict.fromkeys(range(24), 1)
        over = Counter(envelope["run_id"] for envelope in alice.told if envelope["type"] == "done")
        assert {over[run] for run in runs} == {1}


# --- people -----------------------------------------------------------------------------------------------------------


async def test_a_person_decides_once_from_inside_the_news_of_the_question(supervisor: Supervisor, place: Path) -> None:
    async with front(supervisor, "person", "asks") as ann:
        refused: list[str] = []

        async def decide(call_id: str) -> None:
            for decision in ("deny", "allow", "allow"):
                try:
                    await ann.client.call("decide", call_id=call_id, decision=decision, note="not now")
                except Refused as exc:
                    refused.append(exc.code)

        async with trio.open_nursery() as nursery:

            def hear(envelope: Envelope) -> None:
                Front.hear(ann, envelope)
                if envelope["type"] == "permission_required":
                    nursery.start_soon(decide, envelope["data"]["call"]["id"])

            ann.client._on_events = hear
            assert (await ann.ask(f"{tool('exec', command='touch ran')} TELL"))["status"] == "ok"
        await ann.heard("done")
        assert len(refused) == 2
        assert not (place / "ran").exists()
        decided = await ann.heard("permission_decided")
        assert (decided["data"]["decision"], decided["data"]["note"]) == ("deny", "not now")
        states = [envelope["data"]["to"] for envelope in ann.told if envelope["type"] == "state_changed"]
        assert states == ["WORKING", "PAUSED", "WORKING", "READY"]
        wanted = "permission_required", "permission_decided", "tool_executed", "tool:start", "tool:end", "done"
        assert ann.kinds(*wanted) == ["tool:start", *wanted[:3], "tool:end", "done"]


@pytest.mark.parametrize("moment", ["text_chunk", "tool:update", "permission_required"])
async def test_an_interrupt_is_one_done_and_the_next_message_works(moment: str, supervisor: Supervisor) -> None:
    agent = "asks" if moment == "permission_required" else "main"
    text = "PIECES=10000 DELAY=20" if moment == "text_chunk" else tool("exec", command="echo begun; sleep 600")
    async with front(supervisor, f"stop-{moment.replace('_', '-').replace(':', '-')}", agent) as one:
        run = await one.send(text)
        await one.heard(moment)
        assert (await one.client.call("abort", session=one.session))["aborted"] is True
        assert (await one.outcome(run))["reason"] == "interrupted"
        assert (await one.client.call("abort", session=one.session))["aborted"] is False
        assert (await one.ask("ECHO:on"))["text"] == "on"
        done = [envelope["data"]["reason"] for envelope in one.told if envelope["type"] == "done"]
        assert done == ["interrupted", "completed"]
        assert len(one.kinds("tool:start")) == len(one.kinds("tool:end")) == len(one.kinds("tool_executed"))


# --- a model on the other side of HTTP --------------------------------------------------------------------------------


async def test_ten_steps_of_a_served_model_run_through_the_pool(
    supervisor: Supervisor, server: FakeOpenAI, place: Path
) -> None:
    (place / "shot.png").write_bytes(PNG)
    async with front(supervisor, "ten", "model") as one:
        outcome = await one.ask(f"ODD_ARGS DRIP=97 CRLF {TEN_STEPS}")
        assert (outcome["status"], outcome["text"]) == ("ok", "that was all")
        await one.heard("done")
        assert len(one.kinds("tool:start")) == len(one.kinds("tool:end")) == 12
        assert one.kinds("tool:error") == ["tool:error"]
        check_pairs(server.seen[-1].body["messages"])
        assert server.seen[-1].headers["authorization"] == f"Bearer {KEY}"
        assert KEY not in json.dumps(one.told)
    assert KEY not in "".join(supervisor.log)


@pytest.mark.parametrize(
    ("text", "words"),
    [("CUT", "in the middle"), ("BADUTF8", "cannot be read")],
)
async def test_a_broken_answer_fails_its_run_in_clear_words_and_the_session_goes_on(
    text: str, words: str, supervisor: Supervisor
) -> None:
    async with front(supervisor, f"broken-{text.replace('=', '-').lower()}", "model") as one:
        outcome = await one.ask(text)
        assert outcome["status"] == "error"
        assert words in outcome["error"]["message"]
        assert (await one.ask("and now"))["text"] == "echo: and now"


async def test_a_server_that_asks_for_time_is_a_warning_and_the_run_goes_on(supervisor: Supervisor) -> None:
    async with front(supervisor, "limited", "model") as one:
        assert (await one.ask("STATUS=429x1 RETRY_AFTER=2.1 in the pool"))["status"] == "ok"
        warned = (await one.heard("error", severity="warn"))["data"]
        assert warned["phase"] == "model"
        assert "trying again in 2.1 s" in warned["message"]


async def test_a_model_that_falls_silent_is_interrupted_and_its_connection_closed(
    supervisor: Supervisor, server: FakeOpenAI
) -> None:
    async with front(supervisor, "silent", "model") as one:
        run = await one.send("HANG in the pool")
        await one.heard("text_chunk")
        await one.client.call("abort", session="silent")
        outcome = await one.outcome(run)
        assert (outcome["reason"], outcome["text"]) == ("interrupted", "before hang ")
        await until_told(server.hung_up, "HANG in the pool")
        assert (await one.ask("and now"))["text"] == "echo: and now"


async def test_a_conversation_too_long_for_its_model_is_compacted_under_way(
    supervisor: Supervisor, server: FakeOpenAI
) -> None:
    async with front(supervisor, "long", "small") as one:
        server.seen.clear()
        outcome = await one.ask(script(*LONG, "finished"))
        assert (outcome["status"], outcome["text"]) == ("ok", "finished")
        await one.heard("done")
        assert one.kinds("compaction:start", "compaction:end")[:2] == ["compaction:start", "compaction:end"]
        assert len(one.kinds("tool_executed")) == len(LONG)
        for seen in server.seen:
            check_pairs(seen.body["messages"])
