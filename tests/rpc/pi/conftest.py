"""Finding the real pi, and running one as a worker: ``make test-pi`` installs it."""

import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import trio

from fixtures.fake_openai import FakeOpenAI, serving
from fixtures.pi_home import write_pi_home
from rpc.children import ChildRegistry
from rpc.client import RpcClient
from rpc.pi import PiDialect
from rpc.pi.agent_dir import PrivateAgentDir
from rpc.process import WorkerProcess
from rpc.settings import RpcSettings
from rpc.spawn import WorkerSpec, worker_environment
from tests.rpc.pi.lines import in_a_run
from tests.rpc.pi.replay import Replay

LIMIT = 28  # seconds for one test, a slow boot on a busy machine included


class PiWorker:
    """A running pi: its client, its directories, and whether somebody is there to answer its dialogs."""

    def __init__(self, client: RpcClient, process: WorkerProcess, root: Path, attended: trio.Event) -> None:
        self.client = client
        self.attended = attended
        self.process = process
        self.home = root / "home"
        self.sessions = root / "sessions"


StartPi = Callable[..., AbstractAsyncContextManager[PiWorker]]


@pytest.fixture(scope="session")
def model_server() -> Iterator[FakeOpenAI]:
    """A model that does what the prompt says."""
    with serving() as server:
        yield server


@pytest.fixture
def shared_home(tmp_path: Path, model_server: FakeOpenAI) -> Path:
    """The agent dir that workers get private copies of."""
    return write_pi_home(tmp_path / "agent", model_server.port)


@pytest.fixture
def start_pi(pi_command: str, shared_home: Path, tmp_path: Path) -> StartPi:
    """``async with start_pi(*flags) as pi``: a pi that is ready, stopped at the end of the block."""

    @asynccontextmanager
    async def start(
        *flags: str,
        name: str = "w1",
        source: Path | None = None,
        ready: bool = True,
        settings: RpcSettings | None = None,
    ) -> AsyncIterator[PiWorker]:
        root = tmp_path / name
        (root / "work").mkdir(parents=True)
        settings, marker = settings or RpcSettings(), f"{secrets.token_hex(8)}:{name}"
        with PrivateAgentDir(source or shared_home, root / "home", root / "sessions") as home, trio.fail_after(LIMIT):
            environment = worker_environment(settings, os.environ, {**home.environ, "HOME": str(root)}.items(), marker)
            spec = WorkerSpec(
                worker_id=name,
                marker=marker,
                argv=(pi_command, "--mode", "rpc", "--offline", *flags),
                env=tuple(environment.items()),
                cwd=str(root / "work"),
            )
            async with trio.open_nursery() as nursery:
                process = WorkerProcess.spawn(spec, ChildRegistry(), settings)
                nursery.start_soon(process.supervise)
                attended = trio.Event()
                dialect = PiDialect(settings, allow_bash=True, attended=attended.is_set)
                client = RpcClient(process, dialect, settings, name=name)
                nursery.start_soon(client.run)
                if ready:
                    await client.wait_ready(LIMIT)
                yield PiWorker(client, process, root, attended)
                await process.stop()
                nursery.cancel_scope.cancel()

    return start


@pytest.fixture
def replay() -> Replay:
    """A dialect that has booted."""
    return Replay()


@pytest.fixture
def busy() -> Replay:
    """A dialect that is inside a run."""
    return in_a_run()
