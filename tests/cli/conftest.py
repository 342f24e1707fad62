"""What the tests of the commands share: a fake supervisor to talk to, or a machine without any."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.fake_pool import Bench, FakePool, serving


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
