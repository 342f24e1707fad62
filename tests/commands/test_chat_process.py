"""``pool chat`` on a real terminal, with a real supervisor that is killed under it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.child import SupervisorProcess
from tests.commands.terminal import on_a_terminal

pytestmark = pytest.mark.process

MAX_MODULES = 460
CHAT = (sys.executable, "-m", "cli", "chat", "-s", "ada", "--socket")


def test_one_talks_approves_loses_the_supervisor_goes_on_and_leaves(short_dir: Path) -> None:
    settings = '[agents.main]\npermission_mode = "approval"\n'
    state = str(short_dir / "state")
    with (
        SupervisorProcess(short_dir, settings) as first,
        on_a_terminal([*CHAT, str(first.socket)], NO_COLOR="1", XDG_STATE_HOME=state) as chat,
    ):
        chat.read_until_shown("idle · ada")
        chat.press('TOOL:exec {"command": "echo 4$((2*1))"}\r')
        chat.read_until_shown("approval · ada", "y Allow")
        chat.press("a\r")  # always: the same command again is not asked about
        chat.read_until_shown("ok, code 0", "idle · ada · main")
        chat.press('TOOL:exec {"command": "echo 4$((2*1))"}\r')
        chat.read_until_shown("(turn 2")
        chat.press("\x0f")  # Ctrl-O
        chat.read_until_shown("│ 42")
        os.kill(first.pid, signal.SIGKILL)
        chat.read_until_shown("no supervisor · ada")
        with SupervisorProcess(short_dir, settings) as second:
            chat.read_until_shown("the supervisor is back", "idle · ada")
            chat.paste("\n".join(f"line {number}" for number in range(50_000)))
            chat.read_until_shown("[paste 1: 50,000 lines")
            chat.press("\r")
            chat.read_until_shown("(turn 3")
            chat.press("[paste 9: 1 lines, 1 characters]\r")  # of an earlier chat
            chat.read_until_shown("is not kept any more")
            chat.press("\x03")  # Ctrl-C clears the input
            chat.press("HANG\r")
            chat.read_until_shown("working · ada")
            chat.press("\x03")
            chat.read_until_shown("aborted", "idle · ada")
            chat.press("\x04")  # Ctrl-D
            chat.read_until_shown("come back with: pool chat --socket", "-s ada")
            assert chat.process.wait(90) == 0
            with second.connect() as client:
                assert client.call("sessions.get", {"session": "ada"})["state"] == "READY"
    history = short_dir / "state" / "pool" / "chat-history"
    assert (history.stat().st_mode & 0o777, "[paste" in history.read_text()) == (0o600, False)


def test_a_terminal_that_only_prints_lines_gets_lines_and_is_told_so(short_dir: Path) -> None:
    settings = '[agents.main]\npermission_mode = "approval"\n'
    with (
        SupervisorProcess(short_dir, settings) as supervisor,
        on_a_terminal([*CHAT, str(supervisor.socket)], TERM="dumb") as chat,
    ):
        chat.read_until("plain lines, since TERM=dumb")
        chat.read_until("\n> ")
        chat.press("hello\n")
        chat.read_until("(turn 1)")
        chat.press('TOOL:exec {"command": "echo 4$((2*1))"} ECHO:**bold**\n')
        chat.read_until("y Allow")
        chat.press("y\n")
        chat.read_until("**bold**\n\n> ", since=chat.read_until("ok, code 0").index("y Allow"))
        with supervisor.connect() as client:
            subscription = client.subscribe({"session": "ada"})
            chat.press("HANG\n")
            next(batch for batch in subscription.batches() if any(event.type == "run:start" for event in batch))
        os.kill(chat.process.pid, signal.SIGINT)  # what a terminal makes of Ctrl-C
        chat.read_until("was aborted in its turn\n> ")
        chat.press("\x04")  # Ctrl-D
        chat.read_until("come back with: pool chat --socket")
        assert chat.process.wait(90) == 0
        assert "\x1b" not in chat.written


def test_a_chat_shows_its_prompt_without_what_only_an_answer_needs(short_dir: Path) -> None:
    """Imports are nearly all of the time from exec to the prompt; their number is the same on any machine."""
    with SupervisorProcess(short_dir) as supervisor:
        place = ["--data-dir", str(supervisor.data_dir)]
        report = short_dir / "modules"
        program = (
            f"import sys, cli\ntry: cli.main({['chat', *place]!r})\n"
            f"finally: open({str(report)!r}, 'w').write(chr(10).join(sys.modules))"
        )
        home = str(short_dir)
        with on_a_terminal([sys.executable, "-c", program], HOME=home, XDG_STATE_HOME=home) as chat:
            chat.read_until_shown("idle · chat")
            chat.press("\x04")
            assert chat.process.wait(90) == 0
    loaded = report.read_text().splitlines()
    unwanted = {"rich", "pygments", "markdown_it", "trio", "psutil", "gateway", "profiles", "platformdirs"}
    assert {name.partition(".")[0] for name in loaded} & unwanted == set()
    assert {"settings.schema", "commands.prompt", "commands.events"} & set(loaded) == set()
    assert len(loaded) <= MAX_MODULES


def test_the_bare_agent_on_a_terminal_is_a_chat_and_without_one_each_names_the_other_command(short_dir: Path) -> None:
    with SupervisorProcess(short_dir) as supervisor:
        command = [*CHAT, str(supervisor.socket)]
        bare = [sys.executable, "-m", "agent"]
        with on_a_terminal(bare, POOL_SOCKET=str(supervisor.socket), XDG_STATE_HOME=str(short_dir)) as chat:
            chat.read_until_shown("idle · chat")
            chat.press("\x04")
            chat.read_until_shown("come back with: pool chat")
            assert chat.process.wait(90) == 0
        nowhere = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert (nowhere.returncode, "pool prompt -s KEY" in nowhere.stderr) == (2, True)
