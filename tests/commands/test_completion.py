"""Completion: names from the supervisor and the settings, whole descriptions, a key with colons in a real bash."""

import os
import sys
from pathlib import Path

import pytest
from click.shell_completion import CompletionItem, FishComplete

import cli
from commands.completion import ColonBashComplete, WholeFishComplete
from errors import RequestTimeout
from tests.commands.documents import DOCUMENT, JOBS, NODES, SESSION_VIEWS, worker
from tests.commands.fake_pool import Bench
from tests.commands.terminal import on_a_terminal

KEY = "agent:main:sms:dm:7"
SETTINGS = """
[agents.ops]
dialect = "native"
[roles.reviewer]
[cluster]
listen = "127.0.0.1:0"
token_file = "token"
[cluster.groups.gpu]
labels = { gpu = "h100" }
"""


def offered(words: str) -> dict[str, str | None]:
    """What is offered for the last word, with its description."""
    *args, incomplete = words.split(" ")[1:]
    found = FishComplete(cli.main, {}, "pool", "_POOL_COMPLETE").get_completions(args, incomplete)
    return {item.value: item.help for item in found}


@pytest.fixture
def known(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("POOL_SOCKET", str(bench.socket))
    settings = tmp_path / "pool.toml"
    settings.write_text(SETTINGS)
    monkeypatch.setenv("POOL_CONFIG", str(settings))
    bench.pool.fixed = {
        "cron.list": JOBS,
        "approvals.list": DOCUMENT["gateway"]["permissions"],
        "workers.list": [worker("w1", session="ada", background=1)],
        "nodes.list": NODES,
        "process": {"sessions": [{"session_id": "calm-fox", "command": "make \\\n all"}]},
        "sessions.list": [*SESSION_VIEWS, {**SESSION_VIEWS[1], "key": KEY}],
    }
    return bench


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("pool sessions show ", {"ada": "approval, agent main", "bob": "idle, agent main", KEY: "idle, agent main"}),
        ("pool prompt -s b", {"bob": "idle, agent main"}),
        ("pool rm a", {"ada": "approval, agent main", KEY: "idle, agent main"}),
        ("pool workers stop ", {"w1": "idle, ada"}),
        ("pool nodes drain gpu-1", {"gpu-1": "up, 2 of 8 slots used"}),
        ("pool nodes --group g", {"gpu": None}),
        ("pool prompt -a ", {"main": "the bundled agent", "ops": None}),
        ("pool sessions --agent o", {"ops": None}),
        ("pool prompt -r r", {"reviewer": None}),
        ("pool cron delete t", {"tea": "cron 0 9 * * mon-fri (Europe/Berlin)"}),
        ("pool approve ", {"c1": "exec of session ada"}),
        ("pool processes kill ", {"calm-fox": "make \\  all (session ada)"}),
        ("pool sessions --state w", {"working": None, "waiting": None}),
        ("pool config set pool.mi", {"pool.min": "The least of unbound workers that are kept ready"}),
    ],
)
def test_names_are_offered_with_what_they_stand_for(known: Bench, words: str, names: dict[str, str | None]) -> None:
    found = offered(words)
    assert list(found) == list(names)
    assert words.startswith("pool config") or found == names


def test_what_is_known_when_a_worker_does_not_answer_is_offered(known: Bench) -> None:
    known.pool.fixed["workers.list"] = [worker(name, session=name, background=1) for name in ("w1", "w2")]
    listed = known.pool.fixed["process"]
    known.pool.fixed["process"] = iter([listed, RequestTimeout("no answer in time")])
    assert list(offered("pool processes kill ")) == ["calm-fox"]


def test_descriptions_of_commands_are_whole(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["cron", "-h"], prog_name="pool")
    assert "times that passed while it was off are not caught up." in " ".join(capsys.readouterr().out.split())
    assert offered("pool cron e") == {
        "enable": "Have an added job run on its schedule again; times that passed while it was off are not caught up."
    }


@pytest.mark.parametrize("words", ["pool sessions show ", "pool approve ", "pool workers stop ", "pool cron show "])
def test_without_a_supervisor_no_name_is_offered_and_nothing_is_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    monkeypatch.setenv("POOL_SOCKET", str(tmp_path / "none"))
    assert offered(words) == {}
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("line", "args", "incomplete", "answer"),
    [
        ("pool sessions show agent:main:s", ["sessions", "show"], "agent:main:s", "sms:dm:7"),
        ("pool prompt --session=agent:m", ["prompt"], "--session=agent:m", "main:sms:dm:7"),
        ("pool sessions show ", ["sessions", "show"], "", KEY),
    ],
)
def test_in_bash_a_key_is_one_word_and_its_answer_begins_where_bash_replaces(
    monkeypatch: pytest.MonkeyPatch, line: str, args: list[str], incomplete: str, answer: str
) -> None:
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("COMP_WORDBREAKS", " \t\n\"'><=;|&(:")
    shell = ColonBashComplete(cli.main, {}, "pool", "_POOL_COMPLETE")
    assert shell.get_completion_args() == (args, incomplete)
    item = CompletionItem(KEY)
    assert shell.format_completion(item) == f"plain,{answer}"


@pytest.mark.process
def test_a_real_bash_completes_a_key_with_colons(known: Bench) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with on_a_terminal(["bash", "--norc", "--noprofile"], PATH=path, PS1="$ ") as bash:
        bash.press('eval "$(_POOL_COMPLETE=bash_source pool)"; echo rea""dy\n')
        bash.read_until("ready\n")
        bash.press("pool sessions show agent:\t")
        bash.read_until(KEY)
        bash.press("\x15exit\n")
        bash.process.wait(20)


def test_fish_gets_descriptions_with_commas() -> None:
    assert 'string split --max 1 ","' in WholeFishComplete(cli.main, {}, "pool", "_POOL_COMPLETE").source()
