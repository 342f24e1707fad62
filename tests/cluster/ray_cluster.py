"""A Ray cluster on machines of its own: a head, where the supervisor runs too, and nodes that offer slots."""

import json
import os
import secrets
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.cluster.machines import Machine, machines

ROOT = Path(__file__).parents[2]
RAY_VENV = ROOT / ".cache" / "venv-ray" / "bin"
RESOURCE, SLOTS = "pool_slot", 4
_OBJECT_STORE = 80 * 1024 * 1024
_QUICK = {
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1500",
    "RAY_health_check_failure_threshold": "3",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "5",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_enable_metrics_collection": "0",
}
"""Ray finds out about the dead within seconds, and starts nothing ahead of its need."""


class RayCluster:
    """The head ``0`` and its nodes, each a ``Machine``."""

    def __init__(self, directory: Path, made: list[Machine], data_dir: Path) -> None:
        self.directory = directory
        self.data_dir = data_dir
        self._made = made
        self._programs: dict[str, subprocess.Popen[bytes]] = {}
        token = directory / "token"
        token.write_text(secrets.token_hex(16))
        token.chmod(0o600)
        self.env = {
            **{name: os.environ[name] for name in ("PATH", "LANG", "TERM") if name in os.environ},
            **_QUICK,
            "HOME": "/tmp/home",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        self.head = Machine("head", 1)
        made.append(self.head)
        self.head.be_switch()
        self.address = f"{self.head.address}:6379"
        self.nodes: dict[str, Machine] = {}

    def wait(self) -> None:
        """Reap what has ended with its machine."""
        for program in self._programs.values():
            program.wait()

    def start_head(self) -> None:
        """Start Ray's head; it answers on return."""
        self._start_ray(self.head, "--head", "--port=6379", "--include-dashboard=false", "--num-cpus=0")

    def stop_head(self) -> None:
        """Kill every process of Ray's head."""
        self.end_ray(self.head)

    def add_node(self, name: str) -> Machine:
        """A further machine with Ray, without waiting for it."""
        self.nodes[name] = self.add_machine(name)
        self.start_node(name)
        return self.nodes[name]

    def add_machine(self, name: str) -> Machine:
        """A further machine, without Ray."""
        machine = Machine(name, 11 + len(self._made), [self.data_dir])
        self._made.append(machine)
        machine.plug_into(self.head)
        return machine

    def start_node(self, name: str) -> None:
        """Start Ray on a machine where it does not run (any more)."""
        if (before := self._programs.pop(name, None)) is not None:
            before.wait()
        offered = json.dumps({RESOURCE: SLOTS})
        self._start_ray(
            self.nodes[name],
            f"--address={self.address}",
            "--num-cpus=1",
            f"--num-gpus={SLOTS}",
            f"--resources={offered}",
            "--labels=site=here",
        )

    def end_ray(self, machine: Machine) -> None:
        """Kill every process of Ray there, and nothing else; actors are among them."""
        program = self._programs.pop(machine.name)
        while pids := [pid for pid, command in machine.commands().items() if is_rays(command)]:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        program.wait()

    def drain(self, name: str, seconds: float) -> None:
        """Let Ray drain a node, as a cloud does that takes its machine back after so long."""
        self.python(_DRAIN, name, str(seconds))

    def asked(self) -> list[dict[str, float]]:
        """The resources of each slot that Ray's autoscaler is to see to."""
        return list(json.loads(self.python(_ASKED)))

    def python(self, code: str, *arguments: str, env: dict[str, str] | None = None) -> str:
        """What a script says that must succeed beside the head."""
        command = [str(RAY_VENV / "python"), "-c", code, self.address, *arguments]
        return self.head.run(*command, env=self.env if env is None else env)

    def refusal_of(self, machine: Machine, token: str) -> str:
        """What Ray says on a machine that has another token, and is to be a node."""
        (other := self.directory / "other-token").write_text(token)
        command = ["start", f"--address={self.address}", f"--node-ip-address={machine.address}", "--block"]
        done = subprocess.run(
            [*machine.enter, str(RAY_VENV / "ray"), *command],
            env=self.env | {"RAY_AUTH_TOKEN_PATH": str(other)},
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            timeout=60,
        )
        assert done.returncode
        return done.stdout + done.stderr

    def _start_ray(self, machine: Machine, *arguments: str) -> None:
        common = [f"--node-ip-address={machine.address}", f"--object-store-memory={_OBJECT_STORE}", "--block"]
        common += [f"--node-name={machine.name}", "--include-log-monitor=false", "--disable-usage-stats"]
        with (self.directory / f"ray-{machine.name}.log").open("ab") as log:
            self._programs[machine.name] = subprocess.Popen(
                [*machine.enter, str(RAY_VENV / "ray"), "start", *common, *arguments],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd="/",
            )


def is_rays(command: str) -> bool:
    """Whether a process with this command line belongs to Ray."""
    return "/ray/" in command or "/ray start" in command or command.startswith("ray::")


_DRAIN = """
import sys, time, ray
from ray.core.generated import autoscaler_pb2
address, name, seconds = sys.argv[1:]
ray.init(address=address, log_to_driver=False, logging_level="ERROR")
(node,) = [row["NodeID"] for row in ray.nodes() if row["Alive"] and row["NodeName"] == name]
client = ray._private.worker.global_worker.gcs_client
reason = autoscaler_pb2.DrainNodeReason.DRAIN_NODE_REASON_PREEMPTION
print(client.drain_node(node, reason, "test", int((time.time() + float(seconds)) * 1000)))
"""

_ASKED = """
import sys, ray
from ray.autoscaler._private.constants import AUTOSCALER_RESOURCE_REQUEST_CHANNEL
from ray.experimental.internal_kv import _internal_kv_get
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
print((_internal_kv_get(AUTOSCALER_RESOURCE_REQUEST_CHANNEL) or b"[]").decode())
"""


@contextmanager
def ray_cluster(directory: Path, *nodes: str) -> Iterator[RayCluster]:
    """A head and nodes, of which some may still be on their way. ``directory`` has a short path."""
    if not (RAY_VENV / "ray").exists():
        pytest.fail("Ray is not installed: make test-cluster does that", pytrace=False)
    data_dir = directory / "data"
    data_dir.mkdir(mode=0o700)
    with ExitStack() as after, machines() as made:
        cluster = RayCluster(directory, made, data_dir)
        after.callback(cluster.wait)
        cluster.start_head()
        for name in nodes:
            cluster.add_node(name)
        yield cluster
