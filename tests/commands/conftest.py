"""What the tests of the commands share: a fake supervisor, a machine without any, one with the real pi behind it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from fixtures.fake_openai import serving as serving_model
from fixtures.pi_home import write_pi_home
from tests.acceptance.supervisor import Supervisor, running_supervisor
from tests.commands.fake_pool import Bench, FakePool, serving
from tests.doors.conftest import short_dir

__all__ = ["short_dir"]


@pytest.fixture
def bench() -> Iterator[Bench]:
    pool = FakePool()
    with serving(pool) as socket:
        yield Bench(socket, pool)


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """A runner on a machine without any supervisor or settings."""
    monkeypatch.chdir(tmp_path)
    for name in ("POOL_SOCKET", "POOL_CONFIG", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return CliRunner()


@pytest.fixture(scope="module")
def pi_homes(tmp_path_factory: pytest.TempPathFactory, pi_command: str) -> Iterator[Callable[[], Path]]:
    """Makes agent directories for a pi of its own, all for the same model server: each release has another one."""
    with serving_model() as server:
        yield lambda: write_pi_home(tmp_path_factory.mktemp("home") / "agent", server.port)


@pytest.fixture(scope="module")
def pi_supervisor(
    tmp_path_factory: pytest.TempPathFactory, pi_command: str, pi_homes: Callable[[], Path]
) -> Iterator[Supervisor]:
    """Its agent ``pi`` is the real one; ``own`` is the same with the front end's own agent directory."""
    place = tmp_path_factory.mktemp("p")
    settings = place / "pool.toml"
    settings.write_text(
        f'[pool]\nmin = 0\nmax = 3\n[agents.pi]\ncommand = ["{pi_command}", "--mode", "rpc"]\ndialect = "pi"\n'
        f'agent_dir = "{pi_homes()}"\nextra_args = ["--offline"]\n'
        f'[agents.own]\ncommand = ["{pi_command}", "--mode", "rpc"]\ndialect = "pi"\nextra_args = ["--offline"]\n'
    )
    with running_supervisor(place / "data", "--config", str(settings)) as running:
        yield running
