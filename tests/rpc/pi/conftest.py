"""Finding the real pi, and running one as a worker: ``make test-pi`` installs it."""

import os
import re
import secrets
import shutil
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import NoReturn

import pytest
import trio

from fixtures.fake_openai import FakeOpenAI
from fixtures.pi_home import write_pi_home
from rpc.children import ChildRegistry
from rpc.client import RpcClient
from rpc.pi import PiDialect
from rpc.pi.home import PrivateHome
from rpc.process import WorkerProcess
from rpc.settings import RpcSettings
from rpc.spawn import WorkerSpec, worker_environment

PI_VERSION = "0.73.1"
REPOSITORY = Path(__file__).parents[3]
CACHED = REPOSITORY / ".cache" / f"pi-{PI_VERSION}" / "node_modules" / ".bin" / "pi"
LIMIT = 28  # seconds for one test, a slow boot on a busy machine included


class PiWorker:
    """A running pi: its client, its dialect, its directories."""

    def __init__(self, client: RpcClient, dialect: PiDialect, process: WorkerProcess, root: Path) -> None:
        self.client = client
        self.dialect = dialect
        self.process = process
        self.home = root / "home"
        self.sessions = root / "sessions"


StartPi = Callable[..., AbstractAsyncContextManager[PiWorker]]


def _unavailable(why: str) -> NoReturn:
    """At home a test that cannot run is skipped, and says so; in CI it must run."""
    message = f"{why}; `make test-pi` installs pi {PI_VERSION}, or set POOL_TEST_PI to its executable"
    if os.environ.get("CI") == "true":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


@pytest.fixture(scope="session")
def pi_command() -> str:
    """The real pi's executable."""
    node = shutil.which("node")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout if node else ""
    found = re.match(r"v(\d+)", version)
    if found is None or int(found[1]) < 20:
        _unavailable(f"pi needs node 20 or newer, there is {version.strip() or 'none'}")
    named = os.environ.get("POOL_TEST_PI")
    command = Path(named) if named else CACHED
    if named and not command.exists():
        pytest.fail(f"POOL_TEST_PI names {named}, which does not exist", pytrace=False)
    if not command.exists():
        _unavailable(f"{command} does not exist")
    return str(command)


@pytest.fixture(scope="session")
def model_server() -> Iterator[FakeOpenAI]:
    """A model that does what the prompt says."""
    server = FakeOpenAI()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def shared_home(tmp_path: Path, model_server: FakeOpenAI) -> Path:
    """The agent dir that workers get private copies of."""
    return write_pi_home(tmp_path / "agent", model_server.port)


@pytest.fixture
def start_pi(pi_command: str, shared_home: Path, tmp_path: Path) -> StartPi:
    """``async with start_pi(*flags) as pi``: a pi that is ready, stopped at the end of the block."""

    @asynccontextmanager
    async def start(
        *flags: str, name: str = "w1", source: Path | None = None, ready: bool = True
    ) -> AsyncIterator[PiWorker]:
        root = tmp_path / name
        (root / "work").mkdir(parents=True)
        settings, marker = RpcSettings(), f"{secrets.token_hex(8)}:{name}"
        with PrivateHome(source or shared_home, root / "home", root / "sessions") as home, trio.fail_after(LIMIT):
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
                dialect = PiDialect(settings, allow_bash=True)
                client = RpcClient(process, dialect, settings, name=name)
                nursery.start_soon(client.run)
                if ready:
                    await client.wait_ready(LIMIT)
                yield PiWorker(client, dialect, process, root)
                await process.stop()
                nursery.cancel_scope.cancel()

    return start
