"""The fake ACP agent does what its table says: one story a group of the table."""

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import stress.acp_agent
from stress.acp_agent.options import KNOWN, LIKE, Quirks
from stress.acp_agent.turn import AgentTurn
from tests.acp.client import Client, select_option
from tests.house import ROOT

pytestmark = pytest.mark.process

PROGRAM = ROOT / "stress" / "acp_agent"
Starts = Callable[..., Client]


@pytest.fixture
def starts(tmp_path: Path) -> Iterator[Starts]:
    """Starts agents of one store with these quirks; all end with the test."""

    def start(*quirks: str) -> Client:
        flags = [flag for quirk in quirks for flag in ("--quirk", quirk)]
        log = ("--log", str(tmp_path / "log"))
        command = [sys.executable, str(PROGRAM), "--store", str(tmp_path / "store"), *log, *flags]
        return ending.enter_context(Client(command))

    with ExitStack() as ending:
        yield start


@pytest.fixture
def opens(starts: Starts, tmp_path: Path) -> Callable[..., tuple[Client, str]]:
    """Starts an agent and opens a conversation."""

    def open_one(*quirks: str) -> tuple[Client, str]:
        client = starts(*quirks)
        client.start()
        return client, client.new(tmp_path)

    return open_one


Opens = Callable[..., tuple[Client, str]]


def load(client: Client, session_id: str, cwd: Path, method: str = "load") -> dict[str, object]:
    return client.request(f"session/{method}", sessionId=session_id, cwd=str(cwd), mcpServers=[])


def test_the_table_names_each_directive_and_the_source_each_quirk() -> None:
    table = stress.acp_agent.__doc__ or ""
    directives = [name.removeprefix("do_").upper() for name in dir(AgentTurn) if name.startswith("do_")]
    named = {"__init__.py", "options.py"}
    source = "".join(path.read_text() for path in PROGRAM.glob("*.py") if path.name not in named)
    assert [name for name in directives if not re.search(rf"``{name}[=:`]", table)] == []
    of_methods = {"no-resume", "no-close", "no-list"}
    assert {name for name in KNOWN if f'"{name}"' not in source} == of_methods


@pytest.mark.parametrize("agent", LIKE)
def test_the_quirks_of_each_agent_are_known_and_its_name_is_in_the_table(agent: str) -> None:
    assert all(quirk.partition("=")[0] in Quirks(list(LIKE[agent])) for quirk in LIKE[agent])
    assert re.search(rf"\b{agent}\b", (stress.acp_agent.__doc__ or "").partition("``--log FILE``")[0])


def test_a_misspelt_flag_is_an_error() -> None:
    for flags in (["--quirk", "ignore-eof"], ["--like", "claud"], ["--stor", "/tmp"]):
        with Client([sys.executable, str(PROGRAM), *flags]) as client:
            assert client.process.wait() == 2


def test_a_conversation_goes_on_in_another_process(starts: Starts, tmp_path: Path) -> None:
    first = starts()
    assert first.start()["agentCapabilities"]["loadSession"]
    apple, pear = first.new(tmp_path), first.new(tmp_path)
    assert first.say(apple, "apple") == "echo: apple"
    assert first.say(pear, "pear") == "echo: pear"
    assert first.say(apple, "RECALL") == "apple"
    first.process.kill()

    second = starts()
    second.start()
    assert "result" in load(second, apple, tmp_path)
    assert second.text(kind="user_message_chunk") == "appleRECALL"
    assert second.say(apple, "RECALL") == "apple | RECALL"
    assert "result" in load(second, pear, tmp_path, "resume")
    assert second.say(pear, "RECALL") == "pear"
    listed = second.request("session/list", cwd=str(tmp_path))["result"]["sessions"]
    assert {session["sessionId"] for session in listed} == {apple, pear}
    assert load(second, apple, tmp_path.parent)["error"] == {
        "code": -32602,
        "message": f"cwd: the session belongs to {tmp_path}",
    }
    assert load(second, "nobody", tmp_path)["error"] == {"code": -32002, "message": "Resource not found: nobody"}


def test_a_turn_tells_what_its_directives_say(opens: Opens) -> None:
    client, session = opens()
    answer = client.prompt(session, "THINK:hm;CHUNKS=2;TOOL:read;FAIL:bash;PLAN;USAGE;KIND:odd;STOP=max_tokens;LATE:oh")
    assert answer["result"] == {
        "stopReason": "max_tokens",
        "usage": {"inputTokens": 11, "outputTokens": 7, "totalTokens": 18},
    }
    tool = ["tool_call", "tool_call_update", "tool_call_update"]
    chunks = ["agent_thought_chunk", "agent_message_chunk", "agent_message_chunk"]
    assert client.kinds() == [*chunks, *tool, *tool, "plan", "usage_update", "odd"]
    client.until(lambda: client.text().endswith("oh"))
    assert client.prompt(session, "ERROR=429:slow down:later")["error"] == {
        "code": 429,
        "message": "slow down",
        "data": {"details": "later"},
    }
    state = json.loads(client.say(session, "STATE"))
    assert (state["pid"], state["mode"], state["turns"]) == (client.process.pid, "ask", 2)


def test_questions_are_asked_and_their_answers_count(opens: Opens) -> None:
    client, session = opens()
    client.decide = select_option("allow_once")
    assert client.say(session, "ASK:bash") == "bash allowed: allow_once"
    client.decide = select_option("reject_once")
    assert client.say(session, "ASK:bash;REQUEST:fs/read_text_file") == (
        "bash denied: reject_oncefs/read_text_file: -32601"
    )
    client.decide = select_option("none of these")
    assert client.prompt(session, "ASK:bash")["result"] == {"stopReason": "cancelled"}
    assert [message["id"] for message in client.asked] == [0, 1, 2, 3], "its ids collide with ours"
    client.request("session/set_config_option", sessionId=session, configId="mode", value="auto")
    assert client.say(session, "ASK:bash") == "bash allowed: auto"


def test_a_turn_can_be_steered_and_cancelled_while_another_waits(opens: Opens) -> None:
    client, session = opens()
    prompt = [{"type": "text", "text": "STEERED;HANG"}]
    first = client.begin("session/prompt", sessionId=session, prompt=prompt)
    second = client.begin("session/prompt", sessionId=session, prompt=prompt)
    steer = [{"type": "text", "text": "left"}]
    assert client.request("_session/steering", sessionId=session, prompt=steer)["result"] == {"outcome": "injected"}
    client.until(lambda: client.text() == "steered: left")
    client.notify("session/cancel", sessionId=session)
    assert client.answer(first)["result"] == client.answer(second)["result"] == {"stopReason": "cancelled"}


def test_bad_input_gets_the_errors_of_json_rpc(starts: Starts, tmp_path: Path) -> None:
    client = starts()
    for line in (b"{", b"[]", b"null", b'{"jsonrpc": "2.0"}'):
        client.send(line)
    early = client.request("session/new", cwd=str(tmp_path), mcpServers=[])
    client.start()
    unknown = client.request("_pool/ping")
    relative = client.request("session/new", cwd="here", mcpServers=[])
    codes = [answer["error"]["code"] for answer in client.answers[:4]]
    assert codes == [-32700, -32600, -32600, -32600]
    assert [answer["error"]["code"] for answer in (early, unknown, relative)] == [-32600, -32601, -32602]


def test_quirks_of_the_login(starts: Starts, tmp_path: Path) -> None:
    client = starts("auth")
    assert client.start()["authMethods"][0]["id"] == "fake-login"
    assert client.request("session/new", cwd=str(tmp_path), mcpServers=[])["error"]["code"] == -32000
    assert client.request("authenticate", methodId="fake-login")["result"] == {}
    client.new(tmp_path)


@pytest.mark.parametrize(
    ("quirk", "comes_back"),
    [
        ("load-forgets", ("one", "one")),
        ("load-empty", ("", "")),
        ("load-amnesia", ("onetwo", "")),
        ("load-foreign", ("other", "one | two")),
        ("load-pace=0.001", ("onetwo", "one | two")),
    ],
)
def test_quirks_of_a_load(
    quirk: str, comes_back: tuple[str, str], starts: Starts, opens: Opens, tmp_path: Path
) -> None:
    """What is replayed, and what is remembered."""
    client, session = opens()
    client.say(session, "one")
    client.say(session, "two")
    client.say(client.new(tmp_path), "other")
    other = starts(quirk)
    other.start()
    assert "result" in load(other, session, tmp_path)
    assert (other.text(kind="user_message_chunk"), other.say(session, "RECALL")) == comes_back


def test_the_third_load_tells_everything_three_times(opens: Opens, tmp_path: Path) -> None:
    client, session = opens("load-repeats")
    client.say(session, "one")
    for _ in range(3):
        load(client, session, tmp_path)
    assert client.say(session, "two") == "echo: two" * 3


def test_what_is_stored_late_is_lost_with_the_process(opens: Opens, starts: Starts, tmp_path: Path) -> None:
    client, session = opens("late-store=60")
    client.say(session, "one")
    client.process.kill()
    other = starts()
    other.start()
    assert "result" in load(other, session, tmp_path)
    assert other.say(session, "RECALL") == ""


def test_quirks_of_two_prompts_and_of_a_cancel(opens: Opens) -> None:
    client, session = opens("second-unanswered")
    hang = [{"type": "text", "text": "HANG"}]
    first = client.begin("session/prompt", sessionId=session, prompt=hang)
    client.begin("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "second"}])
    client.until(lambda: client.text() == "echo: second")
    client.notify("session/cancel", sessionId=session)
    assert client.answer(first)["result"] == {"stopReason": "cancelled"}
    assert [answer["id"] for answer in client.answers].count(first + 1) == 0

    client, session = opens("cancel-waits", "permission-first", "string-ids")
    held: list[object] = []
    client.decided = lambda message: held.append(message["id"])  # type: ignore[method-assign]
    prompt = client.begin("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "ASK:bash"}])
    client.until(lambda: held)
    client.notify("session/cancel", sessionId=session)
    assert client.request("_pool/ping")["error"]["code"] == -32601
    assert [answer["id"] for answer in client.answers].count(prompt) == 0
    assert (held, client.kinds()) == (["own-0"], [])
    client.send(b'{"jsonrpc": "2.0", "id": "own-0", "result": {"outcome": {"outcome": "cancelled"}}}')
    assert client.answer(prompt)["result"] == {"stopReason": "cancelled"}


def test_quirks_of_the_wire(opens: Opens, tmp_path: Path) -> None:
    client, session = opens("pollute", "answers-twice", "unknown-ids", "early-updates=3", "idless-errors", "late-text")
    assert client.others[0] == b"Checking for updates..."
    assert client.kinds() == ["session_info_update"] * 3
    client.notify("session/cancel", sessionId=session)
    assert len(client.say(session, "LINE=1048576")) == 1 << 20
    client.until(lambda: client.text().endswith("late"))
    assert [answer.get("id") for answer in client.answers[:6]] == [1_000_001, 1, 1, 1_000_002, 2, 2]
    assert [answer for answer in client.answers if "id" not in answer]


def test_quirks_of_the_end_of_the_process(opens: Opens) -> None:
    client, session = opens("ignores-ends-in-turn")
    client.begin("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "ECHO:in;SLOW=0.2;EXIT=3"}])
    client.until(lambda: client.text() == "in")
    client.process.send_signal(signal.SIGTERM)
    client.stdin.close()
    assert client.process.wait() == 3

    client, session = opens("wrapper")
    worker = json.loads(client.say(session, "STATE"))["pid"]
    client.process.terminate()
    assert client.process.wait() == -signal.SIGTERM
    assert client.say(session, "still here") == "echo: still here"
    os.kill(worker, signal.SIGKILL)

    client, session = opens()
    child = int(client.say(session, "SETSID:exec sleep 60").removeprefix("pid "))
    assert os.getsid(child) == child
    client.stdin.close()
    assert client.process.wait() == 0
    os.kill(child, signal.SIGKILL)
