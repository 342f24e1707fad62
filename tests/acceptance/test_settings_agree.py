"""``pool config check``, ``run`` and ``reload`` refuse the same settings; commands find a supervisor even so."""

import os
import re
import socket
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import cli
from settings.config_file import check_config
from settings.load import load_settings
from settings.problems import SettingsError
from tests.acceptance.supervisor import POOL, running_supervisor

NO_PYTHON = Path(__file__).parent.parent.parent / "LICENSE"
WEBHOOK = '[delivery.webhooks.ops]\nurl = "https://example.org/x"\nsecret_env = "NOT_SET_ANYWHERE"\n'
HOUR = '[agents.ops.heartbeat]\nevery = "1h"\nactive_hours = { start = "25:00", end = "08:00" }\n'
ZONE = '[agents.defaults.heartbeat]\nactive_hours = { start = "08:00", end = "20:00", tz = "Mars/Olympus" }\n'
TOKEN_FILE = '[http]\nbind = "127.0.0.1:0"\ntoken_file = "nowhere.token"\n'
REFUSED = [
    ('[agents.main]\nhooks = ["nowhere.py"]\n', "2: agents.main.hooks[0]: cannot read "),
    (f'[agents.main]\nhooks = ["{NO_PYTHON}"]\n', f"2: agents.main.hooks[0]: cannot load {NO_PYTHON}:"),
    (f'[gateway]\nhooks = "{NO_PYTHON}"\n', f"2: gateway.hooks: cannot load {NO_PYTHON}:"),
    ("[pool]\nmax = 2\nmax_pinned = 2\n", "3: pool.max_pinned: is 2"),
    ("[pool]\nmax = 100000\n", "2: pool.max: 100000 workers x 150 MiB"),
    (WEBHOOK, "3: delivery.webhooks.ops.secret_env: the environment variable NOT_SET_ANYWHERE"),
    (TOKEN_FILE, "3: http.token_file: cannot read the token file"),
    ('[http]\nbind = "0.0.0.0:0"\n', "2: http.bind: is 0.0.0.0:0, and other machines can reach it"),
    (HOUR, "3: agents.ops.heartbeat.active_hours: start = '25:00' is no time of day"),
    (ZONE, "2: agents.defaults.heartbeat.active_hours: tz = 'Mars/Olympus' is no time zone"),
    (
        '[agents.main]\nworkspace = "/nowhere/at/all"\n',
        "2: agents.main.workspace: the workspace /nowhere/at/all cannot",
    ),
]


@pytest.mark.parametrize(("text", "words"), REFUSED, ids=[words.split(":")[1].strip() for _, words in REFUSED])
def test_what_a_check_refuses_a_supervisor_refuses_with_file_and_line(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "pool.toml"
    file.write_text(text)
    problems = check_config(file)
    assert problems[0].startswith(f"{file}:{words}")
    with pytest.raises(SettingsError, match=re.escape(problems[0])):
        load_settings(file, machine=os.environ)


def test_what_a_check_accepts_a_supervisor_accepts(tmp_path: Path) -> None:
    (tmp_path / "t.token").write_text("a-token-of-sixteen-or-more\n")
    (tmp_path / "t.token").chmod(0o600)
    file = tmp_path / "pool.toml"
    file.write_text(f'[http]\ntoken_file = "t.token"\n[agents.main]\nworkspace = "{tmp_path}/made"\n')
    assert check_config(file) == []
    assert load_settings(file, machine=os.environ).http.token_file == str(tmp_path / "t.token")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, where nothing else says where a supervisor is."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("POOL_", "XDG_"))]:
        monkeypatch.delenv(name)
    return tmp_path


def invoke(command: str) -> Result:
    return CliRunner().invoke(cli.main, command.split(), prog_name="pool")


BROKEN = ("[pool]\nmin = 'x'\n", "[pool]\n[[[\n", "[poool]\n", REFUSED[4][0])
COMMANDS = ("heartbeats list", "heartbeat", "cron list", "status", "sessions list")


@pytest.mark.process
def test_beside_broken_settings_the_supervisor_that_runs_is_found_and_goes_by_the_old_ones(here: Path) -> None:
    """Found by what can be made out of the file."""
    config = here / "pool.toml"
    first = f'data_dir = "{here}/data"\nsocket = "{here}/data/control.sock"\n'
    config.write_text(f'{first}[pool]\nmin = 0\n[router]\ndefault_agent = "ops"\n[agents.ops]\n')
    with running_supervisor(here / "data", "--config", str(config)) as running:
        for broken in BROKEN:
            config.write_text(first + broken)
            refused = running.pool("reload")
            assert (refused.returncode != 0, f"{config}:" in refused.stderr) == (True, True), refused.stderr
        for broken, command in ((broken, command) for broken in BROKEN[:3] for command in COMMANDS):
            config.write_text(first + broken)
            done = invoke(command)
            assert done.exit_code == 0, done.stderr
            assert done.stderr.startswith(f"pool: the settings cannot be used, but a supervisor runs: {config}:")
        assert "wanted: ops/default" in running.pool("explain").stdout, "it is about the default agent"
        running.prompt("alice", "hello", "-a", "main")
        assert "wanted: main/default" in running.pool("explain", "-s", "alice", "-r", "default").stdout
        running.kill()
        for command in COMMANDS:
            alone = invoke(command)
            assert (alone.exit_code, alone.stderr.startswith(f"pool: {config}:")) == (2, True), alone.stderr
        config.write_text(REFUSED[4][0])
        refused = subprocess.run([*POOL, "run"], capture_output=True, text=True, timeout=60, check=False)
        assert (refused.returncode, refused.stderr.startswith(f"pool: {config}:{REFUSED[4][1]}")) == (2, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_a_file_of_another_user_says_nothing_about_where_a_supervisor_is(here: Path) -> None:
    """It is refused, and not read for its place either."""
    config, control = here / "pool.toml", here / "control.sock"
    config.write_text(f'socket = "{control}"\n')
    os.chown(config, 65534, 65534)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(control))
        listener.listen()
        done = invoke("status")
        assert (done.exit_code, "it is not used without being named" in done.stderr) == (2, True), done.stderr
        listener.settimeout(0)
        with pytest.raises(BlockingIOError):
            listener.accept()
