"""A supervisor with the real pi behind it, and the fake model that this asks."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fixtures.fake_openai import serving
from fixtures.pi_home import write_pi_home
from tests.acceptance.supervisor import Supervisor, running_supervisor


@pytest.fixture(scope="module")
def pi_homes(tmp_path_factory: pytest.TempPathFactory, pi_command: str) -> Iterator[Callable[[], Path]]:
    """Makes agent directories for a pi of its own, all for the same model server: each release has another one."""
    with serving() as server:
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
