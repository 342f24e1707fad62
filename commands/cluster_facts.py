"""``pool doctor``: looks at the other machines of the settings; ``commands.cluster_checks`` judges what it finds."""

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import trio

from cluster.engines.ssh_probe import NodeAnswer, probe_nodes
from cluster.placement import reckoned_slots
from cluster.settings import ClusterSettings, NodeSettings, RaySettings
from commands.cluster_checks import ClusterFacts, ListenFacts, NodeFacts, RayFacts
from errors import UsageError
from wire.addresses import parse_bind
from wire.tokens import read_token

_TIMEOUT = 20.0
_RAY_VERSION = "from importlib.metadata import version; print(version('ray'))"


def gather_cluster(
    settings: ClusterSettings,
    data_dir: Path,
    *,
    worker_memory: int,
    port_problem: Callable[[str, int], str | None],
    on_probe: Callable[[Sequence[str]], None],
) -> ClusterFacts:
    """Look at them. Starts the program of each node over ssh, and the Python of Ray.

    ``worker_memory``: bytes. ``port_problem``: why one cannot listen on a host and port. ``on_probe``: called with the
    names of the nodes before.
    """
    answers: dict[str, NodeAnswer] = {}
    if settings.nodes and shutil.which("ssh") is None:
        no_ssh = NodeAnswer(problem="there is no program ssh here", fix="install OpenSSH's client")
        answers = dict.fromkeys(settings.nodes, no_ssh)
    elif settings.nodes:
        on_probe([*settings.nodes])
        answers = trio.run(probe_nodes, settings.nodes, data_dir)
    return ClusterFacts(
        data_dir=str(data_dir),
        nodes=tuple(
            _node(settings, name, settings.nodes[name], answer, worker_memory) for name, answer in answers.items()
        ),
        listen=_listen(settings, port_problem) if settings.listen else None,
        ray=_ray(settings.ray) if settings.ray.address else None,
    )


def _node(
    settings: ClusterSettings, name: str, given: NodeSettings, answer: NodeAnswer, worker_memory: int
) -> NodeFacts:
    hello = answer.hello
    if answer.problem or hello is None:
        return NodeFacts(name=name, host=given.ssh, problem=answer.problem, fix=answer.fix)
    return NodeFacts(
        name=name,
        host=given.ssh,
        version=hello.version,
        slots=given.slots or hello.slots or reckoned_slots(hello, worker_memory),
        cores=hello.cores,
        memory=hello.memory,
        group=settings.group_of({**hello.labels, **given.labels}),
        seconds=answer.seconds,
    )


def _listen(settings: ClusterSettings, port_problem: Callable[[str, int], str | None]) -> ListenFacts:
    host, port = parse_bind(settings.listen)
    problem = None
    if settings.token_file:
        try:
            read_token(Path(settings.token_file))
        except UsageError as exc:
            problem = exc.message
    return ListenFacts(
        address=settings.listen,
        port_problem=port_problem(host, port) if port else None,
        token_file=settings.token_file,
        token_problem=problem,
        has_openssl=shutil.which("openssl") is not None,
    )


def _ray(settings: RaySettings) -> RayFacts:
    version, problem = None, ""
    try:
        answer = subprocess.run(
            [settings.python, "-c", _RAY_VERSION], capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
        version = answer.stdout.strip() or None if answer.returncode == 0 else None
    except OSError as exc:
        problem = f"{settings.python} cannot be run: {exc.strerror or exc}"
    except subprocess.TimeoutExpired:
        problem = f"{settings.python} does not answer within {_TIMEOUT:g} s"
    return RayFacts(
        address=settings.address,
        python=settings.python,
        version=version,
        problem=problem,
        auth_mode=os.environ.get("RAY_AUTH_MODE", ""),
        token=_ray_token(),
    )


def _ray_token() -> str:
    """Where the token of Ray is, in the order in which Ray looks for it."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return "RAY_AUTH_TOKEN"
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    return str(path) if path.is_file() else ""
