"""``pool agents``: listings with and without a supervisor, and definitions that are written."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

import cli
from commands.agent_facts import AgentListing, list_agents
from commands.agents_view import agents_view
from commands.tables import explanation_table
from errors import PoolClosed, PoolError, RequestTimeout
from profiles import AgentSettings, ProfilesSettings
from profiles.catalogue import MAKES
from settings.load import load_settings
from tests.commands.fake_pool import Bench

SEEN: dict[str, Any] = {
    "program": "fake-agent",
    "version": "1.0.0",
    "capabilities": ["load"],
    "resumes": "yes",
    "is_ready": True,
}


def listed(definition: AgentSettings, env: dict[str, str] | None = None, **seen: Any) -> AgentListing:
    told = [{"name": "a", "seen": seen}] if seen else None
    settings = ProfilesSettings(agents={"a": definition})
    return next(each for each in list_agents(settings, env or {}, told) if each.name == "a")


def of_make(make: str, **changes: Any) -> AgentSettings:
    return AgentSettings(dialect=MAKES[make].dialect, command=list(MAKES[make].command), **changes)


# --- what is known ----------------------------------------------------------------------------------------------------


def test_without_a_supervisor_the_settings_and_this_machine_say_what_is_missing(tmp_path: Path) -> None:
    found = listed(of_make("codex"), {"PATH": str(tmp_path), "HOME": str(tmp_path)})
    assert (found.make, found.version, found.resume, found.login) == ("codex", "", "unknown", "none")
    assert [part.line for part in found.missing] == ["npm install -g @agentclientprotocol/codex-acp", "codex login"]
    assert found.missing[-1].alternative == "pool config set agents.a.env.CODEX_API_KEY KEY"


def test_no_listing_shows_a_secret_of_a_command() -> None:
    found = listed(AgentSettings(dialect="acp", command=[sys.executable, "--token=abc", "--api-key", "def", "acp"]))
    assert "abc" not in str(found)
    assert "def" not in found.command


def test_a_key_or_the_file_of_a_login_is_one(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    assert listed(of_make("codex", env={"CODEX_API_KEY": "k"}), home).login == "found"
    assert listed(of_make("codex", env={"CODEX_API_KEY": ""}), home).login == "none"
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "auth.json").touch()
    assert listed(of_make("codex"), home).login == "found"


def test_what_workers_have_shown_comes_before_what_lies_on_the_disk() -> None:
    program = AgentSettings(dialect="acp", command=[sys.executable])
    ready = listed(program, None, **SEEN)
    assert (ready.agent, ready.version, ready.resume, ready.login) == ("fake-agent", "1.0.0", "yes", "ok")
    assert ready.missing == []
    refused = listed(of_make("claude", env={"ANTHROPIC_API_KEY": "k"}), problem="a wants a login: run claude")
    assert (refused.login, refused.missing[-1].what) == ("wanted", "it wants a login")


def test_why_a_worker_did_not_start_is_told_in_its_words_where_the_make_is_not_known() -> None:
    found = listed(
        AgentSettings(dialect="acp", command=[sys.executable]), problem="worker w3 did not start: a wants a login: go"
    )
    assert (found.login, found.missing[0].what) == ("wanted", "its last start failed: a wants a login: go")


@pytest.mark.parametrize(
    ("dialect", "seen", "resume"),
    [
        ("native", {}, "yes"),
        ("pi", {}, "yes"),
        ("acp", {}, "unknown"),
        ("acp", SEEN, "yes"),
        ("acp", {**SEEN, "resumes": "unknown"}, "unknown"),
        ("acp", {**SEEN, "resumes": "unknown", "forgets": True}, "no"),
    ],
)
def test_whether_an_agent_goes_on_with_a_session_is_yes_no_or_unknown(
    dialect: Any, seen: dict[str, Any], resume: str
) -> None:
    assert listed(AgentSettings(dialect=dialect, command=[sys.executable]), None, **seen).resume == resume


@pytest.mark.parametrize(
    ("more", "words"), [({"honest": "yes"}, "yes, without a replay after an end in order"), ({"forgets": True}, "no")]
)
def test_an_explanation_says_how_the_agent_goes_on(more: dict[str, Any], words: str) -> None:
    profile = {"signature": "a1b2c3d4", "agent": "a", "role": "default"}
    console = Console(width=140)
    with console.capture() as shown:
        console.print(explanation_table({"profile": profile, "workers": [], "seen": {**SEEN, **more}}, 140))
    assert shown.get().splitlines()[1].rstrip().endswith(f"resume: {words}")


@pytest.mark.parametrize("width", [60, 120])
def test_a_listing_fits_the_terminal_and_the_lines_to_type_are_whole(width: int) -> None:
    found = listed(of_make("opencode"), {"PATH": "", "HOME": "/nowhere"})
    console = Console(width=width, record=True, no_color=True)
    with console.capture() as shown:
        console.print(agents_view([found], width, note="why it is not known"), crop=False)
    lines = shown.get().splitlines()
    assert max(map(len, lines[:2])) <= width
    assert "    npm install -g opencode-ai" in [line.rstrip() for line in lines]
    assert lines[-1].rstrip() == "why it is not known"


# --- the commands -----------------------------------------------------------------------------------------------------


def test_the_agents_of_the_settings_are_listed_without_a_supervisor(alone: CliRunner) -> None:
    result = alone.invoke(cli.main, ["agents"])
    assert (result.exit_code, "main" in result.stdout, "no supervisor runs" in result.stdout) == (0, True, True)
    (main,) = msgspec.json.decode(alone.invoke(cli.main, ["agents", "--json"]).stdout)
    assert alone.invoke(cli.main, ["agents", "list"]).stdout == result.stdout
    assert msgspec.json.decode(alone.invoke(cli.main, ["agents", "show", "main", "--json"]).stdout) == main
    unknown = alone.invoke(cli.main, ["agents", "show", "none"])
    assert (unknown.exit_code, unknown.stderr) == (2, "pool: there is no agent 'none'; pool agents lists them\n")
    assert (main["name"], main["make"], main["missing"]) == ("main", "bundled", [])


def test_a_running_supervisor_adds_what_its_workers_have_shown(bench: Bench, alone: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "pool.toml"
    file.write_text(
        f'[agents.fix]\ndialect = "acp"\ncommand = ["{sys.executable}"]\n[agents.new]\ncommand = ["{sys.executable}"]\n'
    )
    bench.pool.fixed["agents.list"] = [{"name": "main"}, {"name": "fix", "seen": SEEN}]
    result = alone.invoke(cli.main, ["agents", "--json", "--config", str(file), "--socket", str(bench.socket)])
    _main, fix, new = msgspec.json.decode(result.stdout)
    assert (fix["version"], fix["resume"], fix["login"], fix["missing"]) == ("1.0.0", "yes", "ok", [])
    assert [part["line"] for part in new["missing"]] == ["pool reload"]


@pytest.mark.parametrize("error", [RequestTimeout("no answer in time"), PoolClosed("it is stopping")])
def test_the_agents_are_listed_beside_a_supervisor_that_does_not_answer(
    bench: Bench, alone: CliRunner, error: PoolError
) -> None:
    bench.pool.fixed["agents.list"] = error
    result = alone.invoke(cli.main, ["agents", "--socket", str(bench.socket)])
    assert (result.exit_code, f"is not known: {error.message}" in result.stdout) == (0, True), result.output


def test_what_runs_under_the_name_of_another_program_is_not_shown_as_this_one() -> None:
    settings, other = (ProfilesSettings(agents={"a": AgentSettings(command=[path])}) for path in (sys.executable, "x"))
    for mark, version, missing in (
        (settings.program_mark("a"), "1.0.0", []),
        (other.program_mark("a"), "", ["differs from the running one"]),
    ):
        (_, found) = list_agents(settings, {}, [{"name": "main"}, {"name": "a", "program": mark, "seen": SEEN}])
        assert (found.version, [part.what for part in found.missing]) == (version, missing)


@pytest.mark.parametrize("make", MAKES)
def test_a_definition_that_is_written_can_be_used(alone: CliRunner, tmp_path: Path, make: str) -> None:
    result = alone.invoke(cli.main, ["agents", "add", make])
    assert result.exit_code == 0, result.stderr
    found = load_settings(tmp_path / "pool.toml").agents[make]
    assert (found.dialect, found.command, found.mode) == (
        MAKES[make].dialect,
        list(MAKES[make].command),
        MAKES[make].mode,
    )
    assert f"[agents.{make}]" in result.stdout
    assert f"-a {make} " in result.stdout


def test_shown_commands_find_the_same_settings(alone: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "o.toml"
    added = alone.invoke(cli.main, ["agents", "add", "codex", "--config", str(file)])
    listed = alone.invoke(cli.main, ["agents", "--config", str(file)])
    assert f"pool doctor --config {file}" in added.stdout
    assert f"CODEX_API_KEY KEY --config {file}" in added.stdout
    assert f"CODEX_API_KEY KEY --config {file}" in listed.stdout
    elsewhere = alone.invoke(cli.main, ["agents", "--config", str(file), "--data-dir", str(tmp_path / "d")])
    (line,) = [line.partition("or: ")[2] for line in elsewhere.stdout.splitlines() if "CODEX_API_KEY KEY" in line]
    assert alone.invoke(cli.main, line.split()[1:]).exit_code == 0, line


def test_a_definition_that_is_there_stays_and_another_name_can_be_given(alone: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "pool.toml"
    text = '# mine\n[agents.claude]\ndialect = "acp"\ncommand = ["other"]  # kept\n'
    file.write_text(text)
    refused = alone.invoke(cli.main, ["agents", "add", "claude"])
    assert (refused.exit_code, "--name" in refused.stderr, file.read_text()) == (2, True, text)
    added = alone.invoke(cli.main, ["agents", "add", "claude", "--name", "second", "--json"])
    document = msgspec.json.decode(added.stdout)
    assert (document["file"], document["backup"]) == (str(file), None)
    assert document["written"]["mode"] == "default"
    assert file.read_text().startswith(text)
    assert load_settings(file).agents["second"].command == ["claude-agent-acp"]


def test_a_name_that_none_may_have_is_refused_and_nothing_is_written(alone: CliRunner, tmp_path: Path) -> None:
    reasons = dict.fromkeys(("My Agent", "", "-x"), "is no name for an agent")
    reasons |= dict.fromkeys(("defaults", "gateway_prompts"), "is a table of its own in [agents]")
    for name, words in reasons.items():
        result = alone.invoke(cli.main, ["agents", "add", "pi", "--name", name])
        assert (result.exit_code, f"{name!r} {words}" in result.stderr) == (2, True), result.stderr
    assert not (tmp_path / "pool.toml").exists()


def test_the_files_other_settings_and_comments_stay(alone: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "pool.toml"
    file.write_text('agents = { a = { command = ["x"] } }  # one line\n[pool]\n# a comment\nmax = 3\n')
    result = alone.invoke(cli.main, ["agents", "add", "pi"])
    settings = load_settings(file)
    assert (result.exit_code, set(settings.agents), settings.pool.max) == (0, {"a", "pi"}, 3), result.stderr
    assert "# a comment" in file.read_text()


def test_where_comments_are_lost_the_copy_of_the_file_is_named(
    alone: CliRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("settings.edit._candidates", lambda *_: iter(()))
    file = tmp_path / "pool.toml"
    file.write_text("[pool]\n# a comment\nmax = 3\n")
    result = alone.invoke(cli.main, ["agents", "add", "pi"])
    assert f"{file}.bak" in result.stdout
    assert "# a comment" in (tmp_path / "pool.toml.bak").read_text()
    assert load_settings(file).pool.max == 3


@pytest.mark.parametrize(
    ("definition", "rest"),
    [
        ("[agents.fix]\nmodel = 'x'\n# why\n[agents.fix.env]\nA = '1'\n", "# why\n"),
        ("agents.fix.model = 'x'\n", ""),
        ("[agents]\nfix = { model = 'x' } # it\n", "[agents]\n"),
    ],
)
def test_a_definition_is_removed_and_others_stay(alone: CliRunner, tmp_path: Path, definition: str, rest: str) -> None:
    file = tmp_path / "pool.toml"
    file.write_text(f"# mine\n{definition}[pool] # kept\nmax = 3\n")
    asked = alone.invoke(cli.main, ["agents", "delete", "fix"])
    assert (asked.exit_code, "give --yes" in asked.stderr) == (2, True)
    assert alone.invoke(cli.main, ["agents", "delete", "fix", "--yes"]).exit_code == 0
    assert file.read_text() == f"# mine\n{rest}[pool] # kept\nmax = 3\n"
    again = alone.invoke(cli.main, ["agents", "delete", "fix", "--yes"])
    assert (again.exit_code, "there is no agent 'fix'" in again.stderr) == (2, True)


def test_a_definition_that_cannot_be_removed_in_place_leaves_a_backup(alone: CliRunner, tmp_path: Path) -> None:
    file, text = tmp_path / "pool.toml", "# mine\nagents = { a = { model = 'x' }, b = { model = 'y' } }\n"
    file.write_text(text)
    removed = alone.invoke(cli.main, ["agents", "delete", "a", "--yes"])
    assert (removed.exit_code, "pool.toml.bak" in removed.stdout) == (0, True)
    assert (set(load_settings(file).agents), (tmp_path / "pool.toml.bak").read_text()) == ({"b"}, text)


def test_a_definition_that_a_route_needs_stays(alone: CliRunner, tmp_path: Path) -> None:
    file, text = tmp_path / "pool.toml", "[agents.fix]\nmodel = 'x'\n[router]\ndefault_agent = 'fix'\n"
    file.write_text(text)
    refused = alone.invoke(cli.main, ["agents", "delete", "fix", "--yes"])
    assert (refused.exit_code, "there is no agent 'fix'" in refused.stderr, file.read_text()) == (2, True, text)
