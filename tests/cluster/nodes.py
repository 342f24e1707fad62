"""Real node programs beside a desk in the test, each with a disk of its own where the supervisor's data lies."""

import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from cluster.engines.engine import DialTarget
from cluster.home import NodeDesk
from cluster.launcher import ClusterLauncher
from cluster.listener import LifeCertificate, serve_nodes
from cluster.remote_node import RemoteNode
from cluster.shared import SharedDirectory
from cluster.wire import LinkWire
from errors import WorkerStartFailed
from pool.launcher import LocalLauncher
from tests.cluster.networks import NodeNetwork

ROOT = Path(__file__).parents[2]
_OWN_DISK = ["unshare", "-Urm", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"']


def own_disk(data_dir: Path) -> list[str]:
    """What runs a command where the supervisor's data directory is an empty one of its own."""
    return [*_OWN_DISK, str(data_dir)]


def require_own_disks() -> None:
    """Skip, aloud, where no user may make a mount namespace; in CI one must."""
    found = subprocess.run(["unshare", "-Urm", "true"], capture_output=True, text=True, check=False)
    if found.returncode:
        message = f"a node needs a mount namespace of its own: {found.stderr.strip()}"
        if os.environ.get("CI") == "true":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)


TOKEN = "a-token-for-the-nodes-of-a-test"


class Cluster:
    """A desk, a launcher whose next worker goes to the node that ``target`` names, and the events of the desk."""

    def __init__(self, directory: Path, nursery: trio.Nursery, *, shared: bool = False, **seconds: Any) -> None:
        self.data_dir = directory / "data"
        self.data_dir.mkdir(mode=0o700)
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.desk = NodeDesk(
            self.data_dir,
            watcher=self,
            emit=lambda event, facts: self.events.append((event, facts)),
            read_token=lambda: TOKEN,
            shared=SharedDirectory(self.data_dir) if shared else None,
            **seconds,
        )
        self.target = "a"
        self.launcher = ClusterLauncher(LocalLauncher(data_dir=self.data_dir, use_cgroups=False), self)
        self.programs: list[subprocess.Popen[bytes]] = []
        self._directory = directory
        self._is_shared = shared
        self._nursery = nursery
        self._certificate: LifeCertificate | None = None
        self._port = 0

    def place(self, worker: str, group: str, near: str) -> RemoteNode:  # noqa: ARG002 - the launcher's
        """Where ``target`` says, whatever is there."""
        node = self.desk.linked(self.target)
        if node is None:
            raise WorkerStartFailed(f"node {self.target} is not linked")
        return node

    def release(self, worker: str) -> None:
        """There are as many slots as anyone wants."""

    def joined(self, node: RemoteNode) -> None:
        """The next worker may go there."""

    def drain(self, name: str, seconds: float | None, *, ends: bool) -> None:
        """It has no workers of its own."""

    def idle(self, name: str) -> float:  # noqa: ARG002 - the desk's
        """No test asks."""
        return 0.0

    def lost(self, node: RemoteNode, reason: str) -> int:  # noqa: ARG002 - the desk's
        """The workers notice it by themselves."""
        return 0

    async def add(
        self, name: str, *, over: str = "stdio", network: NodeNetwork | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a node program, wait until it is linked; ``network``: where it runs, it dials then, by the token.

        ``over``: "stdio"; "tls", by an invitation, for one link; "token", for one after the other.
        """
        dials = over != "stdio" or network is not None
        if dials and self._certificate is None:
            self._certificate = await trio.to_thread.run_sync(LifeCertificate.make)
            self._port = await self._nursery.start(serve_nodes, self.desk, self._certificate, "0.0.0.0", 0)
            self.desk.dial = DialTarget("127.0.0.1", self._port, self._certificate.fingerprint)
        program = self._start_dialling(name, network, is_invited=over == "tls") if dials else self._start_on_pipes(name)
        self.programs.append(program)
        await self.desk.wait_linked(name)
        return program

    def _command(self, name: str) -> list[str]:
        own = ["--name", name, "--state-dir", str(self._directory / f"state-{name}")]
        disk = [] if self._is_shared else own_disk(self.data_dir)
        return [*disk, sys.executable, "-m", "cli", "node", *own]

    def stderr_of(self, name: str) -> Path:
        """Where a node program on pipes writes what it has to say."""
        return self._directory / f"{name}.stderr"

    def _start_on_pipes(self, name: str) -> subprocess.Popen[bytes]:
        command = [*self._command(name), "--stdio"]
        with self.stderr_of(name).open("ab") as log:
            program = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, bufsize=0
            )
        assert program.stdin is not None
        assert program.stdout is not None
        ours = os.dup(program.stdout.fileno()), os.dup(program.stdin.fileno())
        for pipe in (program.stdin, program.stdout):
            pipe.close()
        for fd in ours:
            os.set_blocking(fd, False)
        self._nursery.start_soon(self.desk.serve, LinkWire.of_pipes(*ours), name)
        return program

    def _start_dialling(self, name: str, network: NodeNetwork | None, *, is_invited: bool) -> subprocess.Popen[bytes]:
        assert self._certificate is not None
        secret = self._directory / f"secret-{name}"
        secret.touch(mode=0o600)
        secret.write_text(self.desk.invite(name) if is_invited else TOKEN)
        flag = "--secret-file" if is_invited else "--token-file"
        host, within = ("127.0.0.1", []) if network is None else (network.home, network.command)
        where = ["--dial", f"{host}:{self._port}", "--fingerprint", self._certificate.fingerprint]
        return subprocess.Popen([*within, *self._command(name), *where, flag, str(secret)], cwd=ROOT)


@asynccontextmanager
async def cluster(
    directory: Path, *, lease: float = 60.0, margin: float = 3.0, silence: float = 30.0, shared: bool = False
) -> AsyncGenerator[Cluster, None]:
    """A desk for the test, and the end of all node programs after it."""
    require_own_disks()
    async with trio.open_nursery() as nursery:
        made = Cluster(directory, nursery, lease=lease, margin=margin, silence=silence, shared=shared)
        nursery.start_soon(made.desk.run)
        try:
            yield made
        finally:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                for program in made.programs:
                    program.kill()
                    await trio.to_thread.run_sync(program.wait)
