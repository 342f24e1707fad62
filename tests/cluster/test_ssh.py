"""Nodes over a real ssh: prompts, the end of ssh in mid-turn, and what is said of each way to fail."""

import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import trio

from cluster.engines.engine import EngineLost
from cluster.engines.ssh import SshEngine, SshWire, next_delay
from cluster.engines.ssh_command import SshNode, SshProblem, ssh_argv
from cluster.engines.ssh_probe import probe_nodes
from cluster.frames import FrameKind
from cluster.home import NodeDesk
from cluster.messages import Hello, message_frame
from cluster.settings import NodeSettings
from cluster.wire import WireClosed
from errors import PoolError
from pool.settings import PoolSettings
from pool.shell import Pool
from profiles import ProfilesSettings, build_profile
from rpc.pipes import Pipe
from tests.cluster.nodes import cluster, own_disk, require_own_disks
from tests.cluster.sshd import Sshd, sshd
from tests.rpc.procs import is_alive
from wire.version import VERSION

PROFILE = build_profile(ProfilesSettings(), "main", "default", "/")
LABELS = {"gpu": "h100"}
OTHER_PROTOCOL = message_frame(FrameKind.HELLO, 0, Hello(protocol=99, version="9", name="a", boot="b", instance="i"))
SAYS_OTHER_PROTOCOL = "printf %b '" + "".join(f"\\0{byte:03o}" for byte in OTHER_PROTOCOL) + "'"


class NoNode:
    """Hears of no node, since none joins."""

    def joined(self, *_args: object) -> None:
        raise AssertionError

    def drain(self, *_args: object, **_options: object) -> None:
        raise AssertionError

    def idle(self, *_args: object) -> float:
        raise AssertionError

    def lost(self, *_args: object) -> int:
        raise AssertionError


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with sshd(tmp_path_factory.mktemp("sshd")) as running:
        yield running


def settings_of(server: Sshd, name: str, command: Sequence[str], *options: str) -> NodeSettings:
    options = (*options, *server.options)
    return NodeSettings(ssh=f"node-{name}", options=[*options], command=[*command], slots=2, labels=LABELS)


def ssh_process(name: str) -> int:
    """The ssh of this test that runs for a node."""
    (found,) = (child for child in psutil.Process().children() if f"node-{name}" in child.cmdline())
    return int(found.pid)


# --- pure -------------------------------------------------------------------------------------------------------------


def test_the_delay_between_links_doubles_up_to_half_a_minute_and_begins_again_after_a_long_one() -> None:
    delays = [0.0]
    for _ in range(9):
        delays.append(next_delay(delays[-1], 1.0))
    assert delays == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    assert next_delay(30.0, 29.9) == 30.0
    assert next_delay(30.0, 30.0) == 0.5


def test_no_option_of_the_settings_forwards_anything_and_no_word_reaches_the_shell_as_more_than_a_word() -> None:
    node = NodeSettings(ssh="-oProxyCommand=evil", options=["-A", "-X", "-p", "22"])
    argv = ssh_argv(SshNode("a", node), ("pool", "$(evil)", "it's; evil"))
    assert argv[-3:] == ["--", "-oProxyCommand=evil", "pool '$(evil)' 'it'\"'\"'s; evil'"]
    assert argv.index("-a") > argv.index("-A"), "of two flags the last counts"
    assert argv.index("-x") > argv.index("-X")
    assert argv.index("-oBatchMode=yes") < argv.index("-A"), "of two options the first counts"
    assert "-oClearAllForwardings=yes" in argv


async def test_without_ssh_the_engine_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    desk = NodeDesk(tmp_path, lease=9.0, margin=1.0, silence=9.0, watcher=NoNode(), emit=lambda *_: None)
    with pytest.raises(EngineLost, match="no program ssh on PATH; install OpenSSH's client"):
        await SshEngine({}).run(desk)


async def test_ssh_may_take_its_time_to_be_let_in_but_not_for_ever(virtual_time: None) -> None:
    theirs, ours = os.pipe()
    os.set_blocking(theirs, False)
    node = SshNode("a", NodeSettings(ssh="node-a"))

    async def problem() -> SshProblem:
        raise AssertionError

    wire = SshWire(Pipe(theirs), Pipe(-1), node, problem)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wire.read_first)
        await trio.sleep(29)
        os.write(ours, OTHER_PROTOCOL)
    assert await wire.receive() == OTHER_PROTOCOL
    await wire.read_first()
    with pytest.raises(WireClosed, match="ssh node-a: nothing was said within 30 s"):
        await wire.receive()
    wire.close()
    os.close(ours)


# --- real ssh ---------------------------------------------------------------------------------------------------------


@pytest.mark.process
async def test_prompts_run_over_two_nodes_and_a_turn_fails_at_once_with_its_ssh(server: Sshd, tmp_path: Path) -> None:
    server.know("host_key.pub")
    async with cluster(tmp_path, lease=20.0) as nodes, trio.open_nursery() as nursery:

        def here(name: str) -> NodeSettings:
            program = [sys.executable, "-m", "cli", "node", "--state-dir", str(tmp_path / f"state-{name}")]
            return settings_of(server, name, [*own_disk(nodes.data_dir), *program])

        nursery.start_soon(SshEngine({name: here(name) for name in "ab"}).run, nodes.desk)
        with trio.fail_after(60):
            for name in "ab":
                node = await nodes.desk.wait_linked(name)
                assert (node.engine, node.labels, node.given_slots) == ("ssh", LABELS, 2)
            async with Pool(PoolSettings(min=0, max=2), launcher=nodes.launcher) as pool:
                async with pool.lease("s", PROFILE) as lease:
                    nodes.target = "b"
                    async with pool.lease("t", PROFILE) as other:
                        assert (await other.prompt("beta").wait()).text
                        worker, turn = lease.pid, lease.prompt("alpha PIECES=9999 DELAY=50")
                        await anext(turn)
                        os.kill(ssh_process("a"), signal.SIGKILL)
                        began = time.monotonic()
                        with pytest.raises(PoolError, match="its node a was lost: ssh node-a was killed by signal 9"):
                            await turn.wait()
                        failed = time.monotonic() - began
                        assert (await other.prompt("gamma").wait()).text, "the other node goes on"
                nodes.target = "a"
                await nodes.desk.wait_linked("a")
                async with pool.lease("s", PROFILE) as lease:
                    free = time.monotonic() - began
                    assert worker is not None
                    assert not is_alive(worker)
                    assert "alpha" in (await lease.prompt("RECALL").wait()).text
        print(f"the turn failed after {failed:.3f} s, the session was free after {free:.2f} s")  # noqa: T201
        nursery.cancel_scope.cancel()
    refused = [facts["reason"] for event, facts in nodes.events if event == "node_refused"]
    assert not [reason for reason in refused if "may still run" in reason], "it says at once what it has swept"


class Failure(NamedTuple):
    """A way to fail: what the client knows of the server's key, and what is asked; and what is said of it."""

    said: str
    command: tuple[str, ...] = ("pool",)
    options: tuple[str, ...] = ()
    known_key: str | None = "host_key.pub"


FAILURES = {
    "no-start": Failure("ssh cannot be started: embedded null byte", options=("-oUser=\0",)),
    "other-key": Failure("Host key verification failed; if the new .* ssh-keygen -R", known_key="user_key.pub"),
    "unknown-key": Failure("verification failed; look at its key .*: ssh -F /.* node-a$", known_key=None),
    "not-let-in": Failure(r"Permission denied \(publickey\); .*: ssh -oUser=nobody", options=("-oUser=nobody",)),
    "no-sshd": Failure("port 1: Connection refused; look whether it is up", options=("-oPort=1",)),
    "no-host": Failure("resolve .*; correct cluster.nodes.a.ssh", options=("-oHostName=x.invalid",)),
    "no-program": Failure(
        "node-a cannot run no-such-pool: .*not found; set cluster.nodes.a.command to where pool is there",
        ("no-such-pool", "node"),
    ),
    "words-before": Failure(
        r'node-a writes something before its node program does, "Welcome \\x1b\[1m.*bashrc', ("echo", "Welcome \x1b[1m")
    ),
    "other-version": Failure(
        "version 99 of the protocol, not 1; install the same version of pool there",
        ("sh", "-c", SAYS_OTHER_PROTOCOL),
    ),
    "program-fails": Failure(
        "the node program on node-a exited with code 3: out of luck", ("sh", "-c", "echo out of luck >&2; exit 3")
    ),
}


@pytest.mark.process
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_each_way_to_fail_says_what_happened_where_and_what_to_do(
    server: Sshd, tmp_path: Path, failure: Failure
) -> None:
    server.know(failure.known_key)
    events, heard = trio.open_memory_channel[tuple[str, dict[str, str]]](8)

    def emit(event: str, facts: dict[str, Any]) -> None:
        events.send_nowait((event, facts))

    desk = NodeDesk(tmp_path, lease=9.0, margin=1.0, silence=9.0, watcher=NoNode(), emit=emit)
    node = settings_of(server, "a", failure.command, *failure.options)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(SshEngine({"a": node}).run, desk)
            event, facts = await heard.receive()
            nursery.cancel_scope.cancel()
    assert (event, facts["node"]) == ("node_refused", "a")
    assert re.search(failure.said, facts["reason"]), facts["reason"]
    assert facts["reason"].isprintable()


@pytest.mark.process
async def test_the_doctor_starts_each_node_up_to_where_it_would_take_workers(server: Sshd, tmp_path: Path) -> None:
    require_own_disks()
    server.know("host_key.pub")
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    program = [*own_disk(data_dir), sys.executable, "-m", "cli", "node", "--state-dir", str(tmp_path / "state")]
    nodes = {
        "good": settings_of(server, "good", program),
        "none": settings_of(server, "none", ["no-such-pool"]),
        "other": settings_of(server, "other", ["sh", "-c", SAYS_OTHER_PROTOCOL]),
    }
    with trio.fail_after(60):
        found = await probe_nodes(nodes, data_dir / "made" / "there")
        impossible = await probe_nodes({"good": nodes["good"]}, Path("/proc/nowhere"))
    assert not found["good"].problem
    assert found["good"].hello is not None
    assert (found["good"].hello.version, found["good"].hello.slots) == (VERSION, 0)
    assert not (data_dir / "made").exists(), "it is made on the node"
    assert "cannot run no-such-pool" in found["none"].problem
    assert found["none"].fix.startswith("set cluster.nodes.none.command to")
    assert "version 99 of the protocol" in found["other"].problem
    assert "the directory /proc/nowhere cannot be made" in impossible["good"].problem
