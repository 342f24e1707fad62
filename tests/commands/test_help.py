"""The command line before it does anything: help, completion, which options there are, what is imported."""

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

import cli

COMMANDS = ["run", "stop", "pause", "resume", "drain", "reload", "chat", "prompt", "wait", "steer", "abort", "approve"]
COMMANDS += ["deny", "delegate", "attach", "acp", "sessions", "status", "workers", "waiting", "events", "explain"]
COMMANDS += ["route", "approvals", "top", "heartbeats", "cron", "agents", "config", "doctor", "demo", "stress"]
COMMANDS += ["restart", "scale", "logs", "service", "dashboard", "processes", "node", "nodes"]
HEADINGS = ["Supervisor:", "Sessions:", "Automation:", "Observation:", "This machine:", "Exit codes:", "Completion:"]

# --- help -----------------------------------------------------------------------------------------------------------


def test_the_help_lists_every_command_under_a_heading(alone: CliRunner) -> None:
    result = alone.invoke(cli.main, ["--help"])
    assert result.exit_code == 0
    listed = [line.split()[0] for line in result.stdout.splitlines() if line.startswith("  ") and line.split()]
    assert set(COMMANDS) <= set(listed)
    assert set(cli.main.list_commands(click.Context(cli.main))) == set(COMMANDS)
    assert [heading for heading in HEADINGS if heading not in result.stdout] == []


def all_commands(group: click.Group) -> list[click.Command]:
    ctx = click.Context(group)
    commands = [command for name in group.list_commands(ctx) if (command := group.get_command(ctx, name))]
    inner = [command for command in commands if isinstance(command, click.Group)]
    return [*commands, *(command for one in inner for command in all_commands(one))]


def test_every_command_explains_itself_on_a_narrow_terminal_and_calls_a_session_so(alone: CliRunner) -> None:
    for name in COMMANDS:
        result = alone.invoke(cli.main, [name, "--help"])
        assert (result.exit_code, len(result.stdout.splitlines()) > 3) == (0, True), name
        command = cli.main.get_command(click.Context(cli.main), name)
        assert command is not None
        assert len(command.get_short_help_str(90)) <= 66
        if isinstance(command, click.Group):
            assert "..." not in result.stdout.partition("\nCommands:\n")[2], f"{name}: a description is cut"
    for command in all_commands(cli.main):
        said = [command.help, command.short_help, *(getattr(param, "help", "") for param in command.params)]
        assert "onversation" not in " ".join(filter(None, said)), command.name
    for words in (["cron"], ["cron", "add"], ["heartbeats"], ["agents"]):
        shown = alone.invoke(cli.main, [*words, "--help"], terminal_width=80).output
        assert [line for line in shown.splitlines() if len(line) > 80] == [], "examples"


RUNS_ON = {"run", "node", "restart", "stop", "chat", "attach", "acp", "top", "demo"}
"""Commands that run until something ends."""
WRITES = {"agents delete", "config init", "service install", "service uninstall"}


def test_every_command_that_answers_does_so_in_json() -> None:
    def without_json(group: click.Group, *path: str) -> set[str]:
        found = set()
        for name in group.list_commands(click.Context(group)):
            command = group.get_command(click.Context(group), name)
            assert command is not None
            has_json = any("--json" in param.opts for param in command.params)
            if isinstance(command, click.Group):
                found |= without_json(command, *path, name)
            elif not has_json:
                found.add(" ".join([*path, name]))
        return found

    assert without_json(cli.main) == RUNS_ON | WRITES


@pytest.mark.parametrize(
    ("words", "offered"),
    [("pool ev", "events"), ("pool events f", "follow"), ("pool sessions h", "history"), ("pool config s", "show")],
)
def test_a_shell_can_complete_commands(words: str, offered: str) -> None:
    args, word = words.split()[1:-1], words.rsplit(maxsplit=1)[-1]
    complete = BashComplete(cli.main, {}, "pool", "_POOL_COMPLETE")
    assert offered in [item.value for item in complete.get_completions(args, word)]


@pytest.mark.process
@pytest.mark.parametrize(
    ("command", "unwanted"),
    [
        (["--help"], {"trio", "rich", "msgspec", "psutil", "asyncio", "platformdirs"}),
        (["stop"], {"trio", "psutil", "rich"}),
        (["status"], {"trio", "psutil", "rich"}),
        (["prompt", "-s", "a", "hi"], {"trio", "psutil", "rich", "dataclasses", "asyncio", "tomli_w"}),
        (["events", "follow"], {"trio", "psutil", "rich"}),
        (["doctor", "--help"], {"trio", "psutil", "rich", "profiles", "rpc"}),
        (["agents", "show", "x"], {"trio", "psutil", "rich", "rpc.acp.dialect"}),
        (
            ["run", "--data-dir", "/dev/null/x"],
            {"rich", "psutil", "asyncio", "anyio", "starlette", "hypercorn", "httpx"},
        ),
    ],
)
def test_a_command_imports_no_more_than_it_uses(tmp_path: Path, command: list[str], unwanted: set[str]) -> None:
    program = f"import sys, cli\ntry: cli.main({command})\nexcept SystemExit: print(*sys.modules)"
    run = [sys.executable, "-c", program]
    env = {"HOME": str(tmp_path), "PATH": ""}
    done = subprocess.run(run, capture_output=True, text=True, timeout=20, env=env, check=True)
    expected = {"--help": "", "run": "cannot make the directory", "x": "there is no agent 'x'"}
    assert next((expected[word] for word in command if word in expected), "no supervisor listens on") in done.stderr
    loaded = done.stdout.splitlines()[-1].split()
    assert not {*loaded, *(name.partition(".")[0] for name in loaded)} & unwanted
