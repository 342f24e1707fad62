"""``pool config check``, ``run`` and ``reload`` refuse the same settings; commands find a supervisor even so."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.supervisor import POOL, Supervisor, running_supervisor

pytestmark = pytest.mark.process

NO_PYTHON = Path(__file__).parent.parent.parent / "LICENSE"
TOO_MANY = "[pool]\nmax = 100000\n"
NO_SECRET = '[delivery.webhooks.ops]\nurl = "https://example.org/x"\nsecret_env = "NOT_SET_ANYWHERE"\n'
NO_TOKEN = '[http]\nbind = "127.0.0.1:0"\ntoken_file = "nowhere.token"\n'
OPEN = '[http]\nbind = "0.0.0.0:0"\n'
HOUR = '[agents.ops.heartbeat]\nevery = "1h"\nactive_hours = { start = "25:00", end = "08:00" }\n'
ZONE = '[agents.defaults.heartbeat]\nactive_hours = { start = "08:00", end = "20:00", tz = "Mars/Olympus" }\n'
NO_PLACE = '[agents.main]\nworkspace = "/nowhere/at/all"\n'
NO_HOOKS = '[agents.main]\nhooks = ["nowhere.py"]\n'
BROKEN_HOOKS = f'[agents.main]\nhooks = ["{NO_PYTHON}"]\n'
BROKEN_GATEWAY_HOOKS = f'[gateway]\nhooks = "{NO_PYTHON}"\n'
ALL_PINNED = "[pool]\nmax = 2\nmax_pinned = 2\n"

REFUSED = [
    (NO_HOOKS, "2: agents.main.hooks[0]: cannot read "),
    (BROKEN_HOOKS, f"2: agents.main.hooks[0]: cannot load {NO_PYTHON}:"),
    (BROKEN_GATEWAY_HOOKS, f"2: gateway.hooks: cannot load {NO_PYTHON}:"),
    (ALL_PINNED, "3: pool.max_pinned: is 2"),
    (TOO_MANY, "2: pool.max: 100000 workers x 150 MiB"),
    (NO_SECRET, "3: delivery.webhooks.ops.secret_env: the environment variable NOT_SET_ANYWHERE"),
    (NO_TOKEN, "3: http.token_file: cannot read the token file"),
    (OPEN, "2: http.bind: is 0.0.0.0:0, and other machines can reach it"),
    (HOUR, "3: agents.ops.heartbeat.active_hours: start = '25:00' is no time of day"),
    (ZONE, "2: agents.defaults.heartbeat.active_hours: tz = 'Mars/Olympus' is no time zone"),
    (NO_PLACE, "2: agents.main.workspace: the workspace /nowhere/at/all cannot be made"),
]


def pool(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("POOL_", "XDG_"))}
    return subprocess.run(
        [*POOL, *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=25, check=False
    )


@pytest.fixture(scope="module")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Supervisor, Path]]:
    directory = tmp_path_factory.mktemp("agree")
    config = directory / "pool.toml"
    config.write_text("[pool]\nmin = 0\n")
    with running_supervisor(directory / "data", "--config", str(config)) as running:
        yield running, config


@pytest.mark.parametrize(("text", "words"), REFUSED)
def test_what_one_of_them_refuses_all_refuse_with_file_and_line(
    supervisor: tuple[Supervisor, Path], tmp_path: Path, text: str, words: str
) -> None:
    alone = tmp_path / "pool.toml"
    alone.write_text(text)
    expected = f"pool: {alone}:{words}"
    for arguments in (("config", "check"), ("run", "--data-dir", str(tmp_path / "data"))):
        done = pool(*arguments, cwd=tmp_path)
        assert (done.returncode, done.stderr.startswith(expected)) == (2, True), done.stderr
    running, config = supervisor
    config.write_text(text)
    done = running.pool("reload")
    assert done.returncode != 0
    assert f"{config}:{words}" in done.stderr


def test_what_a_check_accepts_runs(supervisor: tuple[Supervisor, Path], tmp_path: Path) -> None:
    token = tmp_path / "t.token"
    token.write_text("a-token-of-sixteen-or-more\n")
    token.chmod(0o600)
    running, config = supervisor
    text = f'[pool]\nmin = 0\n[http]\ntoken_file = "{token}"\n[agents.main]\nworkspace = "{tmp_path}/made"\n'
    config.write_text(text)
    assert pool("config", "check", "--config", str(config), cwd=tmp_path).returncode == 0
    assert running.pool("reload").returncode == 0


@pytest.mark.parametrize("broken", ["[pool]\nmin = 'x'\n", "[pool]\n[[[\n", "[poool]\n"])
@pytest.mark.parametrize("command", ["heartbeat status", "heartbeat", "cron list", "status", "sessions list"])
def test_beside_broken_settings_the_supervisor_that_runs_is_found(tmp_path: Path, broken: str, command: str) -> None:
    """Found by what can be made out of the file."""
    config = tmp_path / "pool.toml"
    first = f'data_dir = "{tmp_path}/data"\nsocket = "{tmp_path}/data/control.sock"\n'
    config.write_text(f"{first}[pool]\nmin = 0\n")
    with running_supervisor(tmp_path / "data", "--config", str(config)) as running:
        config.write_text(first + broken)
        done = pool(*command.split(), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stderr.startswith(f"pool: the settings cannot be used, but a supervisor runs: {config}:")
        running.signal(signal.SIGKILL)
        running.wait()
        alone = pool(*command.split(), cwd=tmp_path)
        assert (alone.returncode, alone.stderr.startswith(f"pool: {config}:")) == (2, True), alone.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_a_file_of_another_user_says_nothing_about_where_a_supervisor_is(tmp_path: Path) -> None:
    """It is refused, and not read for its place either."""
    config, control = tmp_path / "pool.toml", tmp_path / "control.sock"
    config.write_text(f'socket = "{control}"\n')
    os.chown(config, 65534, 65534)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(control))
        listener.listen()
        done = pool("status", cwd=tmp_path)
        assert (done.returncode, "it is not used without being named" in done.stderr) == (2, True), done.stderr
        listener.settimeout(0)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_explain_without_an_agent_is_about_the_default_one(tmp_path: Path) -> None:
    config = tmp_path / "pool.toml"
    config.write_text('[pool]\nmin = 0\n[router]\ndefault_agent = "ops"\n[agents.ops]\nmodel = "scripted-small"\n')
    with running_supervisor(tmp_path / "data", "--config", str(config)) as running:
        assert "wanted: ops/default" in running.pool("explain").stdout
        running.prompt("alice", "hello", "-a", "main")
        assert "wanted: main/default" in running.pool("explain", "-s", "alice", "-r", "default").stdout
