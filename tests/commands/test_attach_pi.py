"""``pool attach`` with the real pi behind it: what pi says, and what becomes of that without its worker."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.supervisor import POOL, Supervisor
from tests.commands.attached import AttachedProgram
from tests.real_pi import RealPi

pytestmark = [pytest.mark.process, pytest.mark.real_pi, pytest.mark.timeout(180)]

ATTACH = [*POOL, "attach", "--mode", "rpc", "--agent", "pi"]
OWN_FLAGS = ["--mode", "rpc", "--offline", "--no-session"]


def attach(supervisor: Supervisor, *flags: str, cwd: Path | None = None) -> AttachedProgram:
    return AttachedProgram([*ATTACH, *flags], cwd=cwd, POOL_SOCKET=str(supervisor.socket))


def prompt(identity: str, text: str, **more: Any) -> dict[str, Any]:
    return {"id": identity, "type": "prompt", "message": text, **more}


def is_end(line: dict[str, Any]) -> bool:
    return bool(line["type"] == "agent_end")


def said(end: dict[str, Any]) -> str:
    """The last text of a run."""
    return "".join(part["text"] for part in end["messages"][-1]["content"] if part["type"] == "text")


def state_of(program: AttachedProgram) -> dict[str, Any]:
    state: dict[str, Any] = program.ask({"id": "state", "type": "get_state"})["data"]
    return state


def test_lines_that_are_no_commands_are_answered_as_pi_answers_them(
    pi_supervisor: Supervisor, pi_command: str, pi_homes: Callable[[], Path]
) -> None:
    lines = [b"this is not json", b'{"type":"get_state"', b"", b"[1,2]", b"42", b'"text"', b'{"id":"nt"}']
    lines += [b'{"id":"c1","type":"frobnicate"}', b'{"id":"t","type":5}', b'{"id":"p0","type":"prompt"}']
    lines += [b'{"id":"x","type":"fork"}', b'{"id":"y","type":"steer"}', b'{"id":{"a":1},"type":"abort_retry"}']
    shown = []
    own = AttachedProgram([pi_command, *OWN_FLAGS], PI_CODING_AGENT_DIR=str(pi_homes()))
    for program in (own, attach(pi_supervisor, "--no-session")):
        with program:
            program.say(b"\n".join(lines) + b"\n", {"id": "last", "type": "get_commands"})
            answers: list[dict[str, Any]] = []  # in any order: pi takes up a line before it has answered the last
            while len(answers) <= len(lines):  # one for each, and the last question's
                answers.append(_comparable(program.until(lambda line: bool(line["type"] == "response"))))
            shown.append(sorted(answers, key=json.dumps))
            assert program.end()[0] == 0
    assert shown[1] == shown[0]


def _comparable(line: dict[str, Any]) -> dict[str, Any]:
    if line.get("command") == "parse":
        line = {**line, "error": line["error"].partition(":")[0]}
    if "Unknown command" in line.get("error", ""):  # releases before 0.87 leave out the id, which is restored here
        line = {name: value for name, value in line.items() if name != "id"}
    return line


def test_what_pi_refuses_keeps_its_id_and_kills_nobody_and_odd_characters_come_through(
    pi_supervisor: Supervisor,
) -> None:
    with attach(pi_supervisor, "--no-session", "--tools", "read") as program:
        program.say(b"null\n")
        assert program.until(lambda line: line.get("command") == "parse")["success"] is False
        refused = program.ask({"id": "c1", "type": "frobnicate"})
        assert (refused["id"], refused["error"]) == ("c1", "Unknown command: frobnicate")
        assert program.ask({"id": 7, "type": 5})["id"] == 7
        bash = program.ask({"id": "b", "type": "bash", "command": "echo no"})
        assert (bash["success"], bash["command"]) == (False, "bash"), "the profile has no such tool"
        text = "\u2028\u2029 " + "x" * 500_000 + " the-end"
        program.say((json.dumps(prompt("p", text), ensure_ascii=False) + "\n").encode())
        program.until(is_end)
        ended = [line["message"] for line in program.seen if line["type"] == "message_end"]
        [user] = [message for message in ended if message["role"] == "user"]
        assert user["content"] == [{"type": "text", "text": text}]


def test_two_front_ends_and_the_terminal_share_one_conversation(pi_supervisor: Supervisor) -> None:
    with attach(pi_supervisor, "--session", "shared") as one, attach(pi_supervisor, "--session", "shared") as two:
        for program in one, two:  # an end is sent to those who are there
            program.ask({"id": "here", "type": "get_state"})
        one.say(prompt("same", "from-one"))
        assert said(two.until(is_end)) == "echo: from-one"
        two.say(prompt("same", "from-two"))
        assert said(two.until(is_end)) == "echo: from-two"
        assert "from-one | from-two" in pi_supervisor.prompt("shared", "RECALL")
        one.until(is_end)
        one.until(is_end)
        for program in one, two:
            assert "from-one | from-two" in said(program.until(is_end))
            assert [line["id"] for line in program.seen if line["type"] == "response"] == ["here", "same"]


def test_a_worker_killed_in_mid_run_ends_it_and_the_next_one_goes_on_with_all_that_was_set(
    pi_supervisor: Supervisor,
) -> None:
    with attach(pi_supervisor, "--session", "bereft") as program:
        program.say(prompt("p1", "remember-this"))
        program.until(is_end)
        program.ask({"id": "m", "type": "set_model", "provider": "fake", "modelId": "fake-think"})
        program.ask({"id": "t", "type": "set_thinking_level", "level": "low"})
        program.ask({"id": "s", "type": "set_steering_mode", "mode": "all"})
        program.say(prompt("p2", "HANG"))
        program.until(lambda line: line["type"] == "message_update")
        os.kill(pi_supervisor.wait_for_turn("bereft")["pid"], signal.SIGKILL)
        assert "killed by signal 9" in program.until(is_end)["messages"][0]["errorMessage"]
        program.until(lambda line: line["type"] == "agent_settled")  # clients of newer releases wait for it
        seen = len(program.seen)
        state = state_of(program)
        assert (state["model"]["id"], state["thinkingLevel"], state["steeringMode"]) == ("fake-think", "low", "all")
        assert [line["type"] for line in program.seen[seen:]] == ["response"]
        program.say(prompt("p3", "RECALL"))
        assert "remember-this" in said(program.until(is_end))
        with attach(pi_supervisor, "--session", "unset") as other:
            assert state_of(other)["model"]["id"] == "fake-1", "a setting stays with its session"
        program.ask({"id": "n", "type": "new_session"})
        program.say(prompt("p4", "the-new"))
        program.until(is_end)
        [pid] = [worker["pid"] for worker in pi_supervisor.status()["workers"] if worker["session"] == "bereft"]
        os.kill(pid, signal.SIGKILL)
        pi_supervisor.wait_for_loss(pid)
        recalled = pi_supervisor.prompt("bereft", "RECALL")
        assert ("the-new" in recalled, "remember-this" in recalled) == (True, False), "a new conversation survives it"


@pytest.mark.each_pi
def test_a_prompt_while_pi_waits_for_a_retry_is_answered_as_pi_does(
    pi_supervisor: Supervisor, real_pi: RealPi, pi_homes: Callable[[], Path]
) -> None:
    last = "agent_end" if real_pi.version < (0, 80, 4) else "agent_settled"  # before it newer releases take no prompt
    home = pi_homes()
    settings = json.loads((home / "settings.json").read_text())
    settings["retry"]["baseDelayMs"] = 1_000
    (home / "settings.json").write_text(json.dumps(settings))
    own = [str(real_pi.command), *OWN_FLAGS]
    attached = [*POOL, "attach", "--mode", "rpc", "--agent", "own", "--no-session"]
    shown: list[Any] = [[], []]
    for number, command in enumerate((own, attached)):
        with AttachedProgram(command, POOL_SOCKET=str(pi_supervisor.socket), PI_CODING_AGENT_DIR=str(home)) as program:
            for more in ({}, {"streamingBehavior": "steer"}):
                program.say(prompt("p1", f"STATUS=500x1 {number} {more}"))
                program.until(lambda line: bool(line["type"] == "auto_retry_start"))
                seen = len(program.seen)
                program.say(prompt("p2", "instead", **more))
                program.until(lambda line: bool(line["type"] == last))
                types = [line["type"] for line in program.seen[seen:] if line["type"] != "message_update"]
                assert types.index("response") < types.index("agent_start")
                program.say(prompt("p3", "RECALL"))
                recalled = said(program.until(is_end)).replace(f"x1 {number}", "")
                program.until(lambda line: bool(line["type"] == last)) if last != "agent_end" else None
                shown[number].append((types, recalled))
    assert shown[1] == shown[0]


def test_a_conversation_is_found_by_its_id_and_its_file_as_pi_finds_it_and_keeps_its_name(
    pi_supervisor: Supervisor,
) -> None:
    with attach(pi_supervisor, "--name", "the big one") as program:
        program.say(prompt("p", "remember-this"))
        program.until(is_end)
        state = state_of(program)
        assert program.end()[0] == 0
    for flags in (["--session", state["sessionId"][:13]], ["--session-id", state["sessionId"]], []):
        with attach(pi_supervisor, *flags) as program:
            if not flags:
                switch = {"id": "w", "type": "switch_session", "sessionPath": state["sessionFile"]}
                assert program.ask(switch)["success"] is True
            found = state_of(program)
            assert (found["sessionFile"], found["sessionName"]) == (state["sessionFile"], "the big one")
            program.say(prompt("p", "RECALL"))
            assert "remember-this" in said(program.until(is_end))
    with attach(pi_supervisor, "--session", "0badf00d") as program:
        code, words = program.wait()
    assert (code, "no conversation has an id that begins with '0badf00d'" in words) == (2, True)


def test_a_conversation_that_is_not_to_be_kept_is_in_no_file(pi_supervisor: Supervisor, tmp_path: Path) -> None:
    for text in ("first", "second"):
        with attach(pi_supervisor, "--no-session", cwd=tmp_path) as program:
            program.say(prompt("p", text))
            program.until(is_end)
            program.say(prompt("r", "RECALL"))
            assert said(program.until(is_end)) == text
            assert "sessionFile" not in state_of(program)
            assert program.end()[0] == 0
    assert list(tmp_path.iterdir()) == []


def test_a_flag_that_pi_refuses_ends_it_as_it_would_end_pi(pi_supervisor: Supervisor) -> None:
    spawned = pi_supervisor.status()["counters"]["spawned"]
    with attach(pi_supervisor, "-e", "/no/such/extension.ts") as program:
        code, words = program.wait()
    assert (code, "Extension path does not exist" in words) == (1, True)
    assert pi_supervisor.status()["counters"]["spawned"] == spawned + 1


def test_what_pi_writes_to_stderr_at_its_start_and_later_is_on_the_front_ends_stderr(
    pi_supervisor: Supervisor, pi_command: str, pi_homes: Callable[[], Path], tmp_path: Path
) -> None:
    extension = tmp_path / "warn.ts"
    warn = 'pi.registerCommand("warn", { handler: async () => { console.error("a late warning"); } });'
    extension.write_text(f"export default function (pi) {{ {warn} }}")
    env: dict[str, Any] = {"POOL_SOCKET": str(pi_supervisor.socket), "PI_CODING_AGENT_DIR": str(pi_homes())}
    warnings = []
    for command in ([pi_command, *OWN_FLAGS], [*ATTACH, "--no-session"]):
        with AttachedProgram([*command, "--thinking", "frob", "-e", str(extension)], **env) as program:
            program.say(prompt("w", "/warn"))
            assert program.process.stderr is not None
            lines: list[bytes] = []
            while not lines or lines[-1] != b"a late warning\n":
                lines.append(program.process.stderr.readline())
            warnings.append(lines)
            assert program.end() == (0, "")
    assert b"Invalid thinking level" in b"".join(warnings[0])
    assert warnings[1] == warnings[0]
