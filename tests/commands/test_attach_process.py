"""``pool attach`` in real processes, with the bundled agent behind it."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.supervisor import POOL, Supervisor, running_supervisor
from tests.commands.attached import AttachedProgram

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    with running_supervisor(tmp_path_factory.mktemp("s") / "data", "--min", "1", "--max", "3") as running:
        yield running


def attach(supervisor: Supervisor, *flags: str, cwd: Path | None = None) -> AttachedProgram:
    return AttachedProgram([*POOL, "attach", "--mode", "rpc", *flags], cwd=cwd, POOL_SOCKET=str(supervisor.socket))


def prompt(identity: Any, text: str) -> dict[str, Any]:
    return {"id": identity, "method": "prompt", "params": {"text": text}}


def test_it_behaves_as_the_agent_itself_does(supervisor: Supervisor) -> None:
    requests: list[dict[str, Any] | bytes] = [
        {"id": "a", "method": "ping"},
        {"id": 7, "method": "get_commands"},
        {"id": "x", "method": "frobnicate"},
        {"id": "y", "method": "set_thinking", "params": {"level": "huge"}},
        {"id": True, "method": "ping"},
        {"id": "z"},
        b"null\n",
        prompt("p", "hello"),
    ]
    own = [sys.executable, "-P", "-m", "agent", "--mode", "rpc", "--no-session"]
    told = []
    for program in (AttachedProgram(own), attach(supervisor, "--no-session")):
        with program:
            program.say(*requests)
            program.answer("p")
            assert program.end()[0] == 0
            told.append(program.seen)
    answers = [{json.dumps(line.get("id")): _shape(line) for line in lines if "event" not in line} for lines in told]
    assert answers[0] == answers[1]
    events = [[line["event"] for line in lines if "event" in line] for lines in told]
    assert events[0] == events[1]
    assert events[0][0] == "ready"


def _shape(line: dict[str, Any]) -> Any:
    if "error" in line:
        return line["error"]["code"]
    return line["result"].get("text", sorted(line["result"]))


def test_odd_characters_garbage_and_what_is_too_large_are_answered_and_end_nothing(supervisor: Supervisor) -> None:
    garbage = [b"garbage", b"null", b"[]", b'{"id":1', b"\xff\xfe{}", b"\xef\xbb\xbf{}", b'"\xed\xa0\x80"', b"[" * 5000]
    with attach(supervisor, "--session", "odd") as program:
        program.say(b"\n\n" + b"\n".join(garbage) + b"\n")
        text = "\u2028\u2029\x85 " + "x" * 5_000_000 + " the-end"
        program.say((json.dumps(prompt(1, text), ensure_ascii=False) + "\r\n").encode())
        assert program.answer(1)["result"]["stop_reason"] == "stop"
        refused = [line for line in program.seen if line.get("id", 0) is None]
        assert [line["error"]["code"] for line in refused] == ["parse_error"] * len(garbage)
        messages = program.ask({"id": 2, "method": "get_messages"})["result"]["messages"]
        assert [part["text"] for part in messages[0]["content"]] == [text]
        assert "8,384,512" in program.ask(prompt("big", "x" * 9_000_000))["error"]["message"]
        program.say(b'{"id":"last","method":"ping"}')
        assert program.end()[0] == 0
        assert program.answer("last")["result"] == {}, "the last line needs no end"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143)])
def test_a_killed_front_end_takes_nothing_along_and_a_killed_worker_is_replaced(
    supervisor: Supervisor, number: int, code: int
) -> None:
    session = f"killed-{number}"
    with attach(supervisor, "--session", session) as program:
        program.ask(prompt(1, "remember-this"))
        worker = program.ask({"id": 2, "method": "get_state"})
        program.process.send_signal(number)
        assert program.wait()[0] == code
    with attach(supervisor, "--session", session) as again:
        assert again.ask({"id": 2, "method": "get_state"})["result"] == worker["result"]
        assert "remember-this" in again.ask(prompt(3, "RECALL"))["result"]["text"]
        again.say(prompt(4, "HANG"))
        os.kill(supervisor.wait_for_turn(session)["pid"], signal.SIGKILL)
        assert again.answer(4)["error"]["code"] == "worker_exited"
        assert "remember-this" in again.ask(prompt(5, "what?"))["result"]["text"], "by the next worker"


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--model"], 2, "--model needs a value"),
        (["--session", "0badf00d"], 2, "no conversation has an id that begins with '0badf00d'"),
        (["--resume"], 2, "--resume"),
        (["hello"], 2, "unexpected argument 'hello'"),
        (["--agent", "nobody"], 2, "unknown agent 'nobody'"),
        (["--frobnicate"], 1, "unknown option '--frobnicate'"),
        (["--socket", "/nowhere/s"], 3, "no supervisor listens"),
    ],
)
def test_flags_that_no_agent_takes_end_it_with_words(
    supervisor: Supervisor, flags: list[str], code: int, words: str
) -> None:
    with attach(supervisor, *flags) as program:
        found, text = program.wait()
    assert words in text
    assert found == code
