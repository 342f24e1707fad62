"""``pool attach`` with the real pi behind it: conversations that are shared, found, resumed, or not kept."""

import os
import signal
from pathlib import Path

import pytest

from tests.acceptance.supervisor import Supervisor
from tests.commands.attached import answer_of, attach_pi, is_end, pi_prompt, pi_state

pytestmark = [pytest.mark.process, pytest.mark.real_pi, pytest.mark.timeout(180)]


def test_two_front_ends_and_the_terminal_share_one_conversation(pi_supervisor: Supervisor) -> None:
    with attach_pi(pi_supervisor, "--session", "shared") as one, attach_pi(pi_supervisor, "--session", "shared") as two:
        for program in one, two:  # an end is sent to those who are there
            program.ask({"id": "here", "type": "get_state"})
        one.say(pi_prompt("same", "from-one"))
        assert answer_of(two.until(is_end)) == "echo: from-one"
        two.say(pi_prompt("same", "from-two"))
        assert answer_of(two.until(is_end)) == "echo: from-two"
        assert "from-one | from-two" in pi_supervisor.prompt("shared", "RECALL")
        one.until(is_end)
        one.until(is_end)
        for program in one, two:
            assert "from-one | from-two" in answer_of(program.until(is_end))
            assert [line["id"] for line in program.seen if line["type"] == "response"] == ["here", "same"]


def test_a_worker_killed_in_mid_run_ends_it_and_the_next_one_goes_on_with_all_that_was_set(
    pi_supervisor: Supervisor,
) -> None:
    with attach_pi(pi_supervisor, "--session", "bereft") as program:
        program.say(pi_prompt("p1", "remember-this"))
        program.until(is_end)
        program.ask({"id": "m", "type": "set_model", "provider": "fake", "modelId": "fake-think"})
        program.ask({"id": "t", "type": "set_thinking_level", "level": "low"})
        program.ask({"id": "s", "type": "set_steering_mode", "mode": "all"})
        program.say(pi_prompt("p2", "HANG"))
        program.until(lambda line: line["type"] == "message_update")
        os.kill(pi_supervisor.wait_for_turn("bereft")["pid"], signal.SIGKILL)
        assert "killed by signal 9" in program.until(is_end)["messages"][0]["errorMessage"]
        program.until(lambda line: line["type"] == "agent_settled")  # clients of newer releases wait for it
        seen = len(program.seen)
        state = pi_state(program)
        assert (state["model"]["id"], state["thinkingLevel"], state["steeringMode"]) == ("fake-think", "low", "all")
        assert [line["type"] for line in program.seen[seen:]] == ["response"]
        program.say(pi_prompt("p3", "RECALL"))
        assert "remember-this" in answer_of(program.until(is_end))


def test_a_conversation_is_found_by_its_id_and_its_file_as_pi_finds_it_and_keeps_its_name(
    pi_supervisor: Supervisor,
) -> None:
    with attach_pi(pi_supervisor, "--name", "the big one") as program:
        program.say(pi_prompt("p", "remember-this"))
        program.until(is_end)
        state = pi_state(program)
        assert program.end()[0] == 0
    for flags in (["--session", state["sessionId"][:13]], ["--session-id", state["sessionId"]], []):
        with attach_pi(pi_supervisor, *flags) as program:
            if not flags:
                switch = {"id": "w", "type": "switch_session", "sessionPath": state["sessionFile"]}
                assert program.ask(switch)["success"] is True
            found = pi_state(program)
            assert (found["sessionFile"], found["sessionName"]) == (state["sessionFile"], "the big one")
            program.say(pi_prompt("p", "RECALL"))
            assert "remember-this" in answer_of(program.until(is_end))
    with attach_pi(pi_supervisor, "--session", "0badf00d") as program:
        code, words = program.wait()
    assert (code, "no conversation has an id that begins with '0badf00d'" in words) == (2, True)


def test_a_conversation_that_is_not_to_be_kept_is_in_no_file(pi_supervisor: Supervisor, tmp_path: Path) -> None:
    for text in ("first", "second"):
        with attach_pi(pi_supervisor, "--no-session", cwd=tmp_path) as program:
            program.say(pi_prompt("p", text))
            program.until(is_end)
            program.say(pi_prompt("r", "RECALL"))
            assert answer_of(program.until(is_end)) == text
            assert "sessionFile" not in pi_state(program)
            assert program.end()[0] == 0
    assert list(tmp_path.iterdir()) == []
