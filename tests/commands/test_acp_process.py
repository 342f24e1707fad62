"""``pool acp`` in real processes: an editor on one side, a supervisor with the bundled agent on the other."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.supervisor import POOL, Lives, Supervisor, gated, running_supervisor, tool
from tests.commands.editor import Editor, edit

pytestmark = pytest.mark.process

SETTINGS = '[agents.main]\npermission_mode = "auto"\n[agents.asking]\npermission_mode = "approval"\n'


@pytest.fixture(scope="module")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    place = tmp_path_factory.mktemp("s") / "data"
    with running_supervisor(place, "--min", "1", "--max", "4", settings=SETTINGS) as running:
        yield running


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = (tmp_path / "project").resolve()
    place.mkdir()
    return place


# --- conversations ----------------------------------------------------------------------------------------------------


def test_a_conversation_from_its_beginning_to_its_end(supervisor: Supervisor, project: Path) -> None:
    with edit(supervisor) as editor:
        session = editor.open(project)
        assert session.startswith("acp-")
        assert editor.prompt(session, "PIECES=3 hello") == "end_turn"
        chunks = [line for line in editor.seen if "agent_message_chunk" in str(line)]
        assert len(chunks) == 3, "it streams"
        assert editor.said(session) == "piece 0 piece 1 piece 2 "
        assert editor.prompt(session, f"THINK {tool('pwd > made')} TELL") == "end_turn"
        assert (project / "made").read_text().strip() == str(project), "the agent works where the editor does"
        kinds = editor.kinds()
        assert kinds.index("tool_call") < kinds.index("tool_call_update") < kinds.index("agent_thought_chunk")
        options = editor.request("session/set_config_option", sessionId=session, configId="thought_level", value="high")
        assert [option["currentValue"] for option in options["configOptions"]] == ["default", "high"]
        editor.seen.clear()
        assert editor.prompt(session, "WHOAMI") == "end_turn"
        assert "high" in editor.said(session)
        listed = editor.request("session/list", cwd=str(project))["sessions"]
        assert [(each["sessionId"], each["cwd"]) for each in listed] == [(session, str(project))]
        assert editor.request("session/close", sessionId=session) == {}
        assert editor.refused("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "x"}])[0] == -32002
        assert editor.end() == (0, "")


def test_a_session_outlives_its_editor_before_and_after_its_first_prompt(supervisor: Supervisor, project: Path) -> None:
    with edit(supervisor) as editor:
        session = editor.open(project)
        assert editor.end()[0] == 0
    with edit(supervisor) as editor:
        editor.request("session/resume", sessionId=session, cwd=str(project))
        assert editor.prompt(session, "remember-this") == "end_turn"
        assert editor.prompt(session, tool("echo hi")) == "end_turn"
        assert editor.end()[0] == 0
    with edit(supervisor) as editor:
        editor.request("session/load", sessionId=session, cwd=str(project), mcpServers=[])
        kinds = editor.kinds()
        assert kinds[:3] == ["user_message_chunk", "agent_message_chunk", "user_message_chunk"]
        assert {"tool_call", "tool_call_update"} <= set(kinds)
        assert editor.said(session, "user_message_chunk").startswith("remember-this")
        assert editor.prompt(session, "RECALL") == "end_turn"
        assert "remember-this" in editor.said(session)


def test_errors_are_sentences_with_the_codes_of_the_protocol(supervisor: Supervisor, project: Path) -> None:
    with edit(supervisor, "--agent", "nobody") as editor:
        assert editor.refused("session/new", cwd=str(project), mcpServers=[]) == (
            -32602,
            "unknown agent 'nobody'; known: main, asking",
        )
    with edit(supervisor) as editor:
        other = project / "other"
        assert editor.refused("session/new", cwd=str(other), mcpServers=[]) == (
            -32602,
            f"there is no directory {other}",
        )
        other.mkdir()
        found = editor.refused("session/load", sessionId="acp-none", cwd=str(project), mcpServers=[])
        assert found == (-32002, "there is no session 'acp-none'")
        session = editor.open(project)
        editor.prompt(session, "hello")
        code, words = editor.refused("session/load", sessionId=session, cwd=str(other), mcpServers=[])
        assert (code, words.startswith(f"session {session} works in {project}, not in {other}")) == (-32602, True)
        answer = editor.answer(editor.send_prompt(session, "ERROR"))
        assert (answer["error"]["code"], answer["error"]["data"]["run"][:4]) == (-32603, "acp-")
        bad = [b"garbage\n", b"[]\n", b"null\n", b'{"jsonrpc":"2.0","id":"z"}\n']
        editor.say(*bad)
        codes = [editor.until(lambda line: "error" in line)["error"]["code"] for _ in bad]
        assert codes == [-32700, -32600, -32600, -32600]


def test_the_session_of_the_command_line_is_known_to_other_doors(supervisor: Supervisor, project: Path) -> None:
    with edit(supervisor, "--session", "mine") as editor:
        assert editor.open(project) == "mine"
        assert editor.open(project) != "mine"
        editor.prompt("mine", "remember-this")
    assert "remember-this" in supervisor.prompt("mine", "RECALL")
    with edit(supervisor, "--session", "mine") as editor:
        assert editor.open(project) == "mine"


# --- runs of others, questions, cancels -------------------------------------------------------------------------------


def test_a_run_of_another_door_is_told_with_its_message(supervisor: Supervisor, project: Path) -> None:
    with edit(supervisor) as editor:
        session = editor.open(project)
        assert supervisor.prompt(session, "PIECES=2 from elsewhere") == "piece 0 piece 1"
        assert editor.update("user_message_chunk")["content"]["text"] == "PIECES=2 from elsewhere"
        editor.update("agent_message_chunk", lambda update: "piece 1" in update["content"]["text"])
        assert editor.prompt(session, "RECALL") == "end_turn"
        assert "from elsewhere" in editor.said(session)


def test_a_call_that_needs_approval_runs_only_when_it_is_allowed(supervisor: Supervisor, project: Path) -> None:
    with edit(supervisor, "--agent", "asking") as editor:
        session = editor.open(project)
        for option, status, made in (("reject", "failed", False), ("allow", "completed", True)):
            prompt = editor.send_prompt(session, f"{tool(f'echo x > {option}')} TELL")
            question = editor.question()
            assert f"echo x > {option}" in str(question["params"]["toolCall"]["content"])
            editor.choose(question, option)
            call = question["params"]["toolCall"]["toolCallId"]
            end = editor.update("tool_call_update", lambda update: update["status"] in ("failed", "completed"))
            assert (end["toolCallId"], end["status"]) == (call, status)
            assert editor.answer(prompt)["result"] == {"stopReason": "end_turn"}
            assert (project / option).exists() is made


def test_a_long_call_is_shown_whole_and_can_be_allowed(supervisor: Supervisor, project: Path) -> None:
    with edit(supervisor, "--agent", "asking") as editor:
        session = editor.open(project)
        command = "\n".join(f": {number} {'x' * 100}" for number in range(600)) + "\necho the-end > made"
        prompt = editor.send_prompt(session, tool(command))
        question = editor.question()
        shown = "".join(block["content"]["text"] for block in question["params"]["toolCall"]["content"])
        assert command in shown
        editor.choose(question, "allow")
        assert editor.answer(prompt)["result"] == {"stopReason": "end_turn"}
        assert (project / "made").exists()


def test_every_editor_is_asked_the_first_answer_decides_and_the_others_hear_of_it(
    supervisor: Supervisor, project: Path
) -> None:
    with edit(supervisor, "--agent", "asking") as one, edit(supervisor) as two, edit(supervisor) as three:
        session = one.open(project)
        two.request("session/resume", sessionId=session, cwd=str(project))
        prompt = one.send_prompt(session, f"{tool('echo did-it')} TELL")
        asked, also = one.question(), two.question()
        three.request("session/resume", sessionId=session, cwd=str(project))
        late = three.question()
        assert three.end()[0] == 0, "who leaves decides nothing"
        assert late["params"]["toolCall"]["toolCallId"] == asked["params"]["toolCall"]["toolCallId"]
        two.choose(also, "allow")
        withdrawn = one.until(lambda line: line.get("method") == "$/cancel_request")
        assert withdrawn["params"] == {"requestId": asked["id"]}
        assert one.answer(prompt)["result"] == {"stopReason": "end_turn"}
        assert one.said(session) == "did-it\n"


def test_cancel_ends_the_running_prompt_and_the_one_that_waits(supervisor: Supervisor, project: Path) -> None:
    with edit(supervisor) as editor:
        session = editor.open(project)
        running = editor.send_prompt(session, gated(project / "gate"))
        editor.update("tool_call")
        waiting = editor.send_prompt(session, "hello")
        editor.notify("session/cancel", sessionId=session)
        ends = {running, waiting}
        while ends:
            line = editor.until(lambda line: line.get("id") in ends and "method" not in line)
            assert line["result"] == {"stopReason": "cancelled"}
            ends.remove(line["id"])
        assert editor.prompt(session, "ECHO:still here") == "end_turn"


def test_a_cancel_right_behind_its_prompt_is_heard(supervisor: Supervisor, project: Path) -> None:
    with edit(supervisor) as editor:
        session = editor.open(project)
        identity = editor.send_prompt(session, "HANG")
        editor.notify("$/cancel_request", requestId=identity)
        assert editor.answer(identity)["result"] == {"stopReason": "cancelled"}


def test_a_steer_reaches_the_running_turn(supervisor: Supervisor, project: Path) -> None:
    with edit(supervisor) as editor:
        session = editor.open(project)
        gate = project / "gate"
        steering = {"sessionId": session, "prompt": [{"type": "text", "text": "turn-left"}]}
        assert editor.request("_session/steering", **steering) == {"outcome": "promptRequired"}
        prompt = editor.send_prompt(session, gated(gate))
        editor.update("tool_call")
        assert editor.request("_session/steering", **steering) == {"outcome": "injected"}
        gate.touch()
        assert editor.answer(prompt)["result"] == {"stopReason": "end_turn"}
        assert editor.prompt(session, "RECALL") == "end_turn"
        assert "turn-left" in editor.said(session)


# --- those who leave --------------------------------------------------------------------------------------------------


def test_a_run_goes_on_when_its_editor_leaves(supervisor: Supervisor, project: Path) -> None:
    gate = project / "gate"
    with edit(supervisor) as editor:
        session = editor.open(project)
        editor.send_prompt(session, f"{tool(f'until [ -e {gate} ]; do sleep 0.05; done; echo all-done')} TELL")
        editor.update("tool_call")
        assert editor.end() == (0, "")
    gate.touch()
    supervisor.prompt(session, "ECHO:after it")
    with edit(supervisor) as editor:
        editor.request("session/load", sessionId=session, cwd=str(project), mcpServers=[])
        assert "all-done" in editor.said(session)


def test_what_an_editor_sends_and_does_not_wait_for_is_done(supervisor: Supervisor, project: Path) -> None:
    with edit(supervisor) as editor:
        session = editor.open(project)
        editor.send_prompt(session, tool("echo x > made"))
        assert editor.end() == (0, "")
    supervisor.prompt(session, "hello")
    assert (project / "made").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_signal_ends_it_with_its_code(supervisor: Supervisor, project: Path, number: int, code: int) -> None:
    with edit(supervisor) as editor:
        editor.open(project)
        editor.process.send_signal(number)
        assert editor.wait()[0] == code


def test_a_closed_stdout_ends_it(supervisor: Supervisor) -> None:
    reader, writer = os.pipe()
    env = {**os.environ, "POOL_SOCKET": str(supervisor.socket)}
    with subprocess.Popen([*POOL, "acp"], stdin=subprocess.PIPE, stdout=writer, env=env) as process:
        os.close(writer)
        os.close(reader)
        assert process.wait(60) == 1


def test_an_editor_that_does_not_read_is_cut_off(supervisor: Supervisor, project: Path) -> None:
    with edit(supervisor) as editor:
        session = editor.open(project)
        editor.prompt(session, "ECHO:" + "x" * 2_000_000)
        assert editor.end()[0] == 0
    line = b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":%b}\n'
    load = b'{"sessionId":"%b","cwd":"%b","mcpServers":[]}' % (session.encode(), str(project).encode())
    reader, writer = os.pipe()
    env = {**os.environ, "POOL_SOCKET": str(supervisor.socket)}
    with subprocess.Popen(
        [*POOL, "acp"], stdin=subprocess.PIPE, stdout=writer, stderr=subprocess.PIPE, env=env
    ) as process:
        os.close(writer)
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(line % (0, b"initialize", b'{"protocolVersion":1}'))
        for number in range(1, 40):
            process.stdin.write(line % (number, b"session/load", load))
        process.stdin.flush()
        assert process.wait(60) == 1
        assert b"the editor was cut off: it has not read 67,108,864 bytes" in process.stderr.read()
    os.close(reader)
    assert supervisor.prompt(session, "ECHO:still here") == "still here"


# --- supervisors ------------------------------------------------------------------------------------------------------


def test_without_a_supervisor_it_says_so_and_works_once_there_is_one(tmp_path: Path, project: Path) -> None:
    lives = Lives(tmp_path, SETTINGS)
    with Editor(POOL_SOCKET=str(lives.data_dir / "control.sock")) as editor:
        for _ in range(2):
            code, words = editor.refused("session/new", cwd=str(project), mcpServers=[])
            assert code == -32603
            assert words.startswith("no_supervisor: no supervisor listens on ")
            assert words.endswith("start one with: pool run")
        first = lives.living()
        session = editor.open(project)
        assert editor.prompt(session, "remember-this") == "end_turn"
        prompt = editor.send_prompt(session, "HANG")
        first.wait_for_turn(session)
        first.kill()
        answer = editor.answer(prompt)
        assert (answer["error"]["code"], answer["error"]["data"]) == (-32603, {"code": "no_supervisor"})
        lives.living()
        assert editor.prompt(session, "RECALL") == "end_turn"
        assert "remember-this" in editor.said(session)
        assert editor.end() == (0, "")
    lives.stop()


def test_it_finds_the_supervisor_by_its_settings(supervisor: Supervisor, project: Path) -> None:
    with Editor("--config", str(supervisor.data_dir / "pool.toml"), "--data-dir", str(supervisor.data_dir)) as editor:
        assert editor.open(project)
    broken = project / "broken.toml"
    broken.write_text("[pool]\nmax = -1\n")
    with Editor("--config", str(broken)) as editor:
        code, words = editor.refused("session/new", cwd=str(project), mcpServers=[])
        assert (code, "pool.max" in words) == (-32603, True), words


# --- what it costs ----------------------------------------------------------------------------------------------------


def test_it_answers_without_what_only_a_supervisor_needs(supervisor: Supervisor, project: Path) -> None:
    program = "import sys, cli, commands.acp; print([name for name in sys.argv[1:] if name in sys.modules])"
    heavy = ["trio", "settings", "gateway", "rich", "httpx", "hashlib", "profiles", "router", "pool", "store"]
    done = subprocess.run(
        [sys.executable, "-c", program, *heavy], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
    with edit(supervisor) as editor:
        session = editor.open(project)
        editor.prompt(session, "PIECES=3 hello")
        status = Path(f"/proc/{editor.process.pid}/status").read_text()
    (peak,) = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")]
    assert peak < 24 * 1024, "KiB"


def test_help_says_what_it_is_and_a_second_name_of_the_program_is_the_same() -> None:
    for name in ("pool", "agent-pool"):
        command: list[Any] = [Path(POOL[0]).parent / name, "acp", "--help"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert "Act as an ACP agent on stdin and stdout" in done.stdout
        assert "--session KEY" in done.stdout
    done = subprocess.run([*POOL, "acp", "--nonsense"], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "--nonsense" in done.stderr) == (2, True)
