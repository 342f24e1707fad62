"""``pool attach`` with the real pi behind it, and the same pi alone: what one says, the other says."""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.supervisor import Supervisor
from tests.commands.attached import AttachedProgram, answer_of, attach_pi, is_end, pi_prompt
from tests.real_pi import RealPi

pytestmark = [pytest.mark.process, pytest.mark.real_pi, pytest.mark.timeout(180)]


def pi_alone(command: str | Path, home: Path, *flags: str) -> AttachedProgram:
    own = [command, "--mode", "rpc", "--offline", "--no-session", *flags]
    return AttachedProgram(own, PI_CODING_AGENT_DIR=str(home))


def both_show(programs: Sequence[AttachedProgram], converse: Callable[[AttachedProgram], Any]) -> Any:
    """What both programs show of a conversation; they hold it at the same time."""
    with ExitStack() as stack, ThreadPoolExecutor() as threads:
        alone, attached = threads.map(converse, [stack.enter_context(program) for program in programs])
    assert attached == alone
    return alone


def test_lines_that_are_no_commands_are_answered_as_pi_answers_them(
    pi_supervisor: Supervisor, pi_command: str, pi_homes: Callable[[], Path]
) -> None:
    lines = [b"this is not json", b'{"type":"get_state"', b"", b"[1,2]", b"42", b'"text"', b'{"id":"nt"}']
    lines += [b'{"id":"c1","type":"frobnicate"}', b'{"id":"t","type":5}', b'{"id":"p0","type":"prompt"}']
    lines += [b'{"id":"x","type":"fork"}', b'{"id":"y","type":"steer"}', b'{"id":{"a":1},"type":"abort_retry"}']

    def answers(program: AttachedProgram) -> list[dict[str, Any]]:
        """In any order: pi takes up a line before it has answered the last."""
        program.say(b"\n".join(lines) + b"\n", {"id": "last", "type": "get_commands"})
        count = len(lines) + 1
        found = [program.until(lambda line: bool(line["type"] == "response")) for _ in range(count)]
        assert program.end()[0] == 0
        return sorted(map(_comparable, found), key=json.dumps)

    both_show([pi_alone(pi_command, pi_homes()), attach_pi(pi_supervisor, "--no-session")], answers)


def _comparable(line: dict[str, Any]) -> dict[str, Any]:
    if line.get("command") == "parse":
        line = {**line, "error": line["error"].partition(":")[0]}
    if "Unknown command" in line.get("error", ""):  # releases before 0.87 leave out the id, which is restored here
        line = {name: value for name, value in line.items() if name != "id"}
    return line


def test_what_pi_refuses_keeps_its_id_and_kills_nobody_and_odd_characters_come_through(
    pi_supervisor: Supervisor,
) -> None:
    with attach_pi(pi_supervisor, "--no-session", "--tools", "read") as program:
        program.say(b"null\n")
        assert program.until(lambda line: line.get("command") == "parse")["success"] is False
        refused = program.ask({"id": "c1", "type": "frobnicate"})
        assert (refused["id"], refused["error"]) == ("c1", "Unknown command: frobnicate")
        assert program.ask({"id": 7, "type": 5})["id"] == 7
        bash = program.ask({"id": "b", "type": "bash", "command": "echo no"})
        assert (bash["success"], bash["command"]) == (False, "bash"), "the profile has no such tool"
        text = "\u2028\u2029 " + "x" * 500_000 + " the-end"
        program.say((json.dumps(pi_prompt("p", text), ensure_ascii=False) + "\n").encode())
        program.until(is_end)
        ended = [line["message"] for line in program.seen if line["type"] == "message_end"]
        [user] = [message for message in ended if message["role"] == "user"]
        assert user["content"] == [{"type": "text", "text": text}]


@pytest.mark.each_pi
def test_a_prompt_while_pi_waits_for_a_retry_is_answered_as_pi_does(
    pi_supervisor: Supervisor, real_pi: RealPi, pi_homes: Callable[[], Path]
) -> None:
    last = "agent_end" if real_pi.version < (0, 80, 4) else "agent_settled"  # before it newer releases take no prompt
    home = pi_homes()
    settings = json.loads((home / "settings.json").read_text())
    settings["retry"]["baseDelayMs"] = 1_000
    (home / "settings.json").write_text(json.dumps(settings))

    def prompt_while_it_waits(program: AttachedProgram) -> list[Any]:
        shown: list[Any] = []
        for more in ({}, {"streamingBehavior": "steer"}):
            program.say(pi_prompt("p1", f"STATUS=500x1 {program.process.pid} {more}"))
            program.until(lambda line: bool(line["type"] == "auto_retry_start"))
            seen = len(program.seen)
            program.say(pi_prompt("p2", "instead", **more))
            program.until(lambda line: bool(line["type"] == last))
            types = [line["type"] for line in program.seen[seen:] if line["type"] != "message_update"]
            assert types.index("response") < types.index("agent_start")
            program.say(pi_prompt("p3", "RECALL"))
            recalled = answer_of(program.until(is_end)).replace(str(program.process.pid), "")
            program.until(lambda line: bool(line["type"] == last)) if last != "agent_end" else None
            shown.append((types, recalled))
        return shown

    attached = attach_pi(pi_supervisor, "--no-session", agent="own", PI_CODING_AGENT_DIR=str(home))
    both_show([pi_alone(real_pi.command, home), attached], prompt_while_it_waits)


def test_a_flag_that_pi_refuses_ends_it_as_it_would_end_pi(pi_supervisor: Supervisor) -> None:
    spawned = pi_supervisor.status()["counters"]["spawned"]
    with attach_pi(pi_supervisor, "-e", "/no/such/extension.ts") as program:
        code, words = program.wait()
    assert (code, "Extension path does not exist" in words) == (1, True)
    assert pi_supervisor.status()["counters"]["spawned"] == spawned + 1


def test_what_pi_writes_to_stderr_at_its_start_and_later_is_on_the_front_ends_stderr(
    pi_supervisor: Supervisor, pi_command: str, pi_homes: Callable[[], Path], tmp_path: Path
) -> None:
    extension = tmp_path / "warn.ts"
    warn = 'pi.registerCommand("warn", { handler: async () => { console.error("a late warning"); } });'
    extension.write_text(f"export default function (pi) {{ {warn} }}")
    flags = ("--thinking", "frob", "-e", str(extension))

    def warnings(program: AttachedProgram) -> list[bytes]:
        program.say(pi_prompt("w", "/warn"))
        assert program.process.stderr is not None
        early = list(iter(program.process.stderr.readline, b"a late warning\n"))
        assert program.end() == (0, "")
        return early

    alone, attached = pi_alone(pi_command, pi_homes(), *flags), attach_pi(pi_supervisor, "--no-session", *flags)
    assert b"Invalid thinking level" in b"".join(both_show([alone, attached], warnings))
