"""What ``pool config`` does with files: it never leaves one that cannot be used, and never shows a secret."""

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from errors import UsageError
from settings import config_file
from settings.config_file import check_config, init_config, set_config, show_config
from settings.load import load_settings, parse_settings
from settings.problems import SettingsError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "etc" / "pool.toml"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


# --- init and check --------------------------------------------------------------------------------------------------


def test_a_first_file_can_be_used_and_is_its_owners_only(path: Path) -> None:
    init_config(path)
    assert check_config(path) == []
    assert mode(path) == 0o600
    assert "#max = 4" in path.read_text()


def test_an_existing_file_is_replaced_only_by_force_and_a_place_that_cannot_be_written_is_named(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("mine")
    path.chmod(0o640)
    with pytest.raises(UsageError, match=r"pool\.toml already; --force"):
        init_config(path)
    assert path.read_text() == "mine"
    init_config(path, force=True)
    assert (check_config(path), mode(path)) == ([], 0o640)
    with pytest.raises(UsageError, match=r"cannot write .*pool\.toml/pool\.toml: File exists"):
        init_config(path / "pool.toml")


def test_every_problem_of_a_file_is_a_line(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("[pool]\nmx = 1\nmin = -1\nmax = 'x'\n")
    assert check_config(path) == [
        f'{path}:2: pool.mx: there is no such setting; did you mean "max"?',
        f"{path}:3: pool.min: must be 0 or more, not -1",
        f"{path}:4: pool.max: expected int, got str",
    ]
    assert check_config(path.with_name("none.toml"))[0].startswith("cannot read")
    assert check_config(None) == []


def test_hooks_that_cannot_be_loaded_are_a_problem(path: Path) -> None:
    path.parent.mkdir()
    path.with_name("hooks.py").write_text("nonsense\n")
    path.write_text('[gateway]\nhooks = "hooks.py"\n')
    place = f"{path.with_name('hooks.py')}:1"
    problem = f"cannot load the gateway's hooks: {place}: NameError: name 'nonsense' is not defined"
    assert check_config(path) == [f"{path}:2: gateway.hooks: {problem}"]


# --- show ------------------------------------------------------------------------------------------------------------

SECRETS = """
[agents.main]
command = ["agent", "--token", "S1", "--api-key=S2", "--verbose", "--url", "https://me:S3@host/x"]
extra_args = ["--password"]
env = { ANYTHING = "S4" }
model = "m"
"""


def test_what_is_shown_as_toml_is_what_holds(path: Path) -> None:
    text = '[pool]\nmax = 9\nidle_timeout = 90\n[agents.x]\nmodel = "m"\n[agents.defaults]\ntimeout_seconds = 60\n'
    settings = parse_settings(text, path)
    shown = show_config(settings)
    assert parse_settings(shown, path) == settings
    assert 'idle_timeout = "90s"' in shown
    assert tomllib.loads(shown)["agents"]["defaults"]["timeout_seconds"] == "1m"


def test_as_json_times_are_seconds_and_sizes_bytes(path: Path) -> None:
    shown = json.loads(show_config(parse_settings("pool.max = 9", path), as_json=True))
    assert shown["pool"]["max"] == 9
    assert shown["pool"]["idle_timeout"] == 300
    assert shown["pool"]["worker_memory"] == 150 * 1024 * 1024
    assert shown["agents"]["defaults"]["timeout_seconds"] == 600


@pytest.mark.parametrize("as_json", [True, False])
def test_secrets_are_hidden_and_the_rest_is_not(as_json: bool, path: Path) -> None:  # noqa: FBT001  # a parameter
    shown = show_config(parse_settings(SECRETS, path), as_json=as_json)
    assert [secret for secret in ("S1", "S2", "S3", "S4") if secret in shown] == []
    table = json.loads(shown) if as_json else tomllib.loads(shown)
    assert table["agents"]["main"]["command"] == [
        *("agent", "--token", "***", "--api-key=***", "--verbose", "--url", "https://***@host/x")
    ]
    assert table["agents"]["main"]["env"] == {"ANYTHING": "***"}
    assert table["agents"]["main"]["model"] == "m"


@pytest.mark.parametrize("as_json", [True, False])
def test_variables_and_headers_of_mcp_servers_are_hidden(as_json: bool, path: Path) -> None:  # noqa: FBT001  # a parameter
    servers = (
        '{ name = "s", command = "/bin/mcp", args = ["--token", "S3"], env = [{ name = "KEY", value = "S1" }] }, '
        '{ name = "w", type = "http", url = "https://h", headers = [{ name = "auth", value = "S2" }] }'
    )
    agent = f'[agents.a]\ndialect = "acp"\ncommand = ["x"]\nmcp_servers = [{servers}]\n'
    shown = show_config(parse_settings(agent, path), as_json=as_json)
    assert [secret for secret in ("S1", "S2", "S3") if secret in shown] == []
    assert "/bin/mcp" in shown


SECRET_NAMES = ("token", "auth_token", "api_key", "apikey", "password", "client_secret", "accessToken")
OTHER_NAMES = ("token_file", "tokenizer", "max_tokens", "secretary", "model", "monkey")


@pytest.mark.parametrize("name", [*SECRET_NAMES, *OTHER_NAMES])
def test_what_is_called_a_secret_is_hidden_and_what_only_looks_like_one_is_not(name: str) -> None:
    shown = "***" if name in SECRET_NAMES else "S"
    assert config_file._redacted({name: "S", "path": "p"}) == {name: shown, "path": "p"}
    assert config_file._redacted({name: ""}) == {name: ""}, "one that is not set is seen not to be"


# --- set -------------------------------------------------------------------------------------------------------------


def test_a_key_is_set_in_its_line(path: Path) -> None:
    init_config(path)
    before = path.read_text()
    change = set_config(path, "pool.max", "9")
    assert (change.file, change.key, change.value, change.backup) == (path, "pool.max", "9", None)
    assert path.read_text() == before.replace("#max = 4\n", "#max = 4\nmax = 9\n")
    assert load_settings(path).pool.max == 9
    assert list(path.parent.iterdir()) == [path], "no temporary file is left"


def test_mode_and_link_stay(path: Path, tmp_path: Path) -> None:
    init_config(path)
    path.chmod(0o644)
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    set_config(link, "pool.max", "9")
    assert link.is_symlink()
    assert load_settings(path).pool.max == 9
    assert mode(path) == 0o644


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("pool.mx", "8", 'pool.mx: there is no such setting; did you mean "max"?'),
        ("pool.max", "eight", "pool.max: expected int, got str"),
        ("pool.max", "0", "pool.max: must be 1 or more, not 0"),
        ("gateway.queue.mode", "stear", 'did you mean "steer"?'),
        ("pool", "5", "pool: expected object, got int"),
    ],
)
def test_what_would_make_the_file_unusable_is_refused_and_the_file_stays(
    key: str, value: str, problem: str, path: Path
) -> None:
    init_config(path)
    before = path.read_bytes()
    with pytest.raises(SettingsError) as refusal:
        set_config(path, key, value)
    assert problem in str(refusal.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param(None, "", id="no file"),
        pytest.param("#\n[pool]\nmin = 1\n", "{path}:2: ", id="the table"),
        pytest.param("#\n[pool]\nmax = 4\n", "{path}:3: ", id="the key"),
    ],
)
def test_a_refused_value_is_reported_with_the_line_of_the_file_as_it_is(
    text: str | None, line: str, path: Path
) -> None:
    if text is not None:
        path.parent.mkdir()
        path.write_text(text)
    with pytest.raises(SettingsError) as refusal:
        set_config(path, "pool.max", "0")
    assert str(refusal.value) == f"{line.format(path=path)}pool.max: must be 1 or more, not 0"


def test_a_file_that_is_no_toml_is_not_touched(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("pool = [")
    with pytest.raises(SettingsError, match="not TOML"):
        set_config(path, "pool.max", "8")
    assert path.read_text() == "pool = ["


def test_a_value_is_a_number_where_one_is_wanted_and_else_a_text_in_a_file_that_is_made(path: Path) -> None:
    assert set_config(path, "agents.defaults.timeout_seconds", "20m").value == '"20m"'
    assert path.read_text() == '[agents.defaults]\ntimeout_seconds = "20m"\n'
    assert mode(path) == 0o600
    set_config(path, "agents.main.env.PORT", "8080")
    set_config(path, "agents.main.model", "true")
    settings = load_settings(path).agents["main"]
    assert (settings.env, settings.model) == ({"PORT": "8080"}, "true")


def test_a_secret_is_set_but_not_told(path: Path) -> None:
    change = set_config(path, "agents.main.env.KEY", "S4")
    assert "S4" not in repr(change)
    assert load_settings(path).agents["main"].env == {"KEY": "S4"}
    assert "S5" not in repr(set_config(path, "agents.main.env", '{KEY = "S5"}'))


def test_where_comments_are_lost_the_old_file_is_kept(path: Path) -> None:
    path.parent.mkdir()
    old = "# mine\n[[pool.prewarm]]\ncount = 1\n"
    path.write_text(old)
    path.chmod(0o600)
    change = set_config(path, "pool.prewarm", "[{count = 2}]")
    assert change.backup == path.with_name("pool.toml.bak")
    assert change.backup.read_text() == old
    assert mode(change.backup) == 0o600
    assert [entry.count for entry in load_settings(path).pool.prewarm] == [2]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    init_config(path)
    before = path.read_bytes()

    def full(_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="No space left"):
        set_config(path, "pool.max", "9")
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_the_new_text_is_on_the_disk_before_it_takes_the_place_of_the_old(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    replace = Path.replace

    def note_replace(source: Path, target: Path) -> Path:
        steps.append("replace")
        return replace(source, target)

    monkeypatch.setattr(os, "fsync", lambda _: steps.append("sync"))
    monkeypatch.setattr(Path, "replace", note_replace)
    set_config(path, "pool.max", "9")
    assert steps == ["sync", "replace", "sync"]


def test_of_webhooks_only_the_host_is_shown(path: Path) -> None:
    hook = '[delivery.webhooks.{}]\nurl = "https://hooks.example:8443/T0/{}?k={}"\nsecret{} = "{}"\n'
    text = hook.format("a", "PATH1", "KEY1", "", "S" * 20) + hook.format("b", "PATH2", "KEY2", "_env", "OPS_KEY")
    shown = show_config(parse_settings(text, path))
    assert shown.count('url = "https://hooks.example:8443/***"') == 2
    assert "OPS_KEY" in shown
    assert not [word for word in ("PATH1", "PATH2", "KEY1", "KEY2", "SSS") if word in shown]
    assert (
        "PATH" not in set_config(path, "delivery.webhooks", '{ a = { url = "http://h/PATH", secret_env = "X" } }').value
    )


def test_a_misspelt_agent_is_not_defined_by_one_of_its_settings(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('[agents.claude]\ndialect = "acp"\ncommand = ["x"]\n')
    before = path.read_text()
    with pytest.raises(UsageError, match=r"there is no agent 'cluade' in .*; did you mean 'claude'"):
        set_config(path, "agents.cluade.env.K", "v")
    with pytest.raises(UsageError, match=r"set agents\.other\.dialect first"):
        set_config(path, "agents.other.model", "m")
    assert path.read_text() == before
    for key, value in (
        ("agents.main.model", "m"),
        ("agents.defaults.timeout_seconds", "5m"),
        ("agents.b.dialect", "pi"),
    ):
        set_config(path, key, value)
    assert set_config(path, "agents.b.model", "m").value == '"m"'
