"""``pool doctor``: judges the facts about a machine and names the remedy of each problem. Pure."""

import os
import re
import shlex
from collections.abc import Iterator, Sequence

import msgspec

from commands.checks import Check, missing, ok, warn
from commands.cluster_checks import ClusterFacts, cluster_checks
from doors.locations import MAX_SOCKET_PATH_BYTES
from profiles.catalogue import APPROVING_MODES
from rpc.acp.words import OFFERS_NO, WANTS_LOGIN

_MIN_PYTHON = (3, 11)
_MIN_NODE = 20
_FILES_PER_WORKER = 8
"""Three pipes, a pidfd, a log, and room for what a turn opens."""
_BASE_FILES = 1100
"""512 control connections, the supervisor's own files, and a reserve."""
_PAGES_PER_WORKER = 48
"""Three pipes of 16 pages each, as the kernel makes them."""
_MIB = 1024 * 1024
_SHOWN_WORKSPACES = 8
_PORT_SERVICES = (
    ("dashboard", "http", "/", ", for a browser"),
    ("openai", "http", "/v1", ", the base URL of OpenAI's clients"),
    ("websocket", "ws", "/ws", ", the gateway protocol"),
    ("events", "http", "/events", ", and POST /api/METHOD, for scripts"),
    ("metrics", "http", "/metrics", ", for Prometheus"),
)
"""Doors: how each is called and reached, and for whom it is."""


class AgentProbe(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent was started up to its first conversation: what it said of itself, or the ``problem``.

    ``mode``: in which it is then. ``stderr``: the last line that it wrote there.
    """

    program: str = ""
    version: str = ""
    capabilities: tuple[str, ...] = ()
    mode: str | None = None
    seconds: float = 0.0
    problem: str | None = None
    stderr: str = ""


class AgentFacts(msgspec.Struct, frozen=True):
    """One agent definition: its program, where that was found (None: nowhere), or why it cannot even be described."""

    name: str
    dialect: str
    program: str = ""
    path: str | None = None
    problem: str | None = None
    keyless_server: str | None = None
    """The model server that it would ask without a key, where that server is not on this machine."""
    needs_node: bool = False
    probe: AgentProbe | None = None
    """Of an agent that was started."""
    install: str = ""
    """What to type to install it, where its make is known; the same for ``login``."""
    login: str = ""
    asking_mode: str = ""
    """The mode to choose where the definition chooses none and its make is known."""
    keeps_workers: bool = False
    """Whether each of its sessions keeps a worker (``resume = "pin"``)."""
    arguments: tuple[str, ...] = ()
    """What the program is given, secrets hidden."""
    chooses_mode: bool = False
    """Whether the definition says who approves: by ``mode``, or by ``permission_mode = "auto"``."""


class WorkspaceFacts(msgspec.Struct, frozen=True):
    """One directory in which agents work, the setting that names it, and why it cannot be used (None: it can).

    ``is_shared``: all sessions work in it; if not, each has a directory of its own there.
    """

    path: str
    source: str
    problem: str | None = None
    is_shared: bool = True


class HttpFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The HTTP door as the settings have it."""

    url: str
    """Or words, where the port is not known before it is bound."""
    token: str
    """Where it is, in words."""
    is_local: bool
    """Whether only this machine can reach it."""
    is_token_made: bool
    """Whether the token is one that the supervisor makes itself."""
    token_problem: str | None
    max_connections: int
    port_problem: str | None = None
    """Why listening there fails: another process does, for example."""


class MachineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """This machine and these settings, as far as the checks need them. Sizes in bytes; None = cannot be known here."""

    python: tuple[int, int]
    platform: str
    max_workers: int
    worker_memory: int
    agents: tuple[AgentFacts, ...]
    node: str | None
    """What ``node --version`` prints."""
    cgroup: bool
    pidfd: bool
    subreaper: bool
    pipe_pages_soft: int | None
    """``fs.pipe-user-pages-soft``; 0 = no limit."""
    is_root: bool
    open_files: int
    """The hard limit on open files."""
    memory: int
    data_dir: str
    data_dir_problem: str | None
    socket: str
    http: HttpFacts | None = None
    """None = it is off."""
    supervisor: int | None = None
    """The process that serves this data directory; None = none does."""
    workspaces: tuple[WorkspaceFacts, ...] = ()
    workers_here: int | None = None
    """How many of ``max_workers`` run on this machine; None = all."""
    cluster: ClusterFacts | None = None
    """None = there are no other machines."""

    @property
    def local_workers(self) -> int:
        """Workers that this machine has to run."""
        return self.max_workers if self.workers_here is None else self.workers_here

    @property
    def local_setting(self) -> str:
        """What bounds them."""
        return "pool.max" if self.cluster is None else "cluster.local_slots"


def diagnose(facts: MachineFacts) -> list[Check]:
    """Judge the facts, what is needed most first."""
    return [
        _python(facts),
        ok(
            "supervisor",
            "none runs here; `pool run` starts one"
            if facts.supervisor is None
            else f"pid {facts.supervisor} serves this data directory",
        ),
        *(check for agent in facts.agents for check in _agent(agent)),
        *_workspaces(facts.workspaces),
        *_kept_workers(facts),
        *_node(facts),
        _memory(facts),
        _open_files(facts),
        _pipes(facts),
        _data_dir(facts),
        _socket(facts),
        ok("attach", "pool attach --mode rpc, in place of an agent's own program"),
        _http(facts.http),
        *_port_services(facts.http),
        *cluster_checks(facts.cluster),
        *_orphans(facts),
    ]


def _python(facts: MachineFacts) -> Check:
    found = ".".join(map(str, facts.python))
    if facts.python >= _MIN_PYTHON:
        return ok("python", found)
    return missing("python", found, "install Python 3.11 or newer and recreate the environment")


def _agent(agent: AgentFacts) -> Iterator[Check]:
    name = f"agent {agent.name}"
    if agent.problem is not None:
        yield missing(name, agent.problem, f"correct agents.{agent.name} in the settings")
    elif agent.path is None:
        how = agent.install or f"install {agent.program}"
        fix = f"{how}, or set agents.{agent.name}.command to where it is"
        yield missing(name, f"{agent.program} is not found", fix)
    elif agent.probe is not None:
        yield from _started(agent, agent.probe)
    else:
        yield ok(name, f"{agent.path} ({agent.dialect})")
    if agent.keyless_server is not None:
        fix = f"set OPENAI_API_KEY in [agents.{agent.name}.env]; a worker does not get that of this terminal"
        yield warn(f"key of {agent.name}", f"none for {agent.keyless_server}", fix)


def _started(agent: AgentFacts, probe: AgentProbe) -> Iterator[Check]:
    """How an agent has done that was started up to its first conversation, and who approves what it does then."""
    if probe.problem is not None:
        wants_login = WANTS_LOGIN in probe.problem
        said = f"; its last words: {probe.stderr}" if probe.stderr and not wants_login else ""
        if wants_login:
            fix = agent.login or "log in as it says, as the user of the supervisor"
        elif probe.problem.startswith(OFFERS_NO):
            fix = f"set what it offers, or nothing: mode, model, thinking and options of agents.{agent.name}"
        else:
            fix = f"see what it says in a terminal: {shlex.join([str(agent.path), *agent.arguments])}"
        yield missing(f"agent {agent.name}", f"{agent.path} ({agent.dialect}): {probe.problem}{said}", fix)
        return
    who = " ".join(filter(None, (probe.program, probe.version))) or "it says no name"
    can = f"; it can {', '.join(probe.capabilities)}" if probe.capabilities else ""
    yield ok(f"agent {agent.name}", f"{agent.path} ({agent.dialect}): {who}, ready in {probe.seconds:.1f} s{can}")
    if probe.mode in APPROVING_MODES and not agent.chooses_mode:
        found = f"{probe.mode}, its own default, in which it approves tool calls by itself"
        choice = f'"{agent.asking_mode}"' if agent.asking_mode else "the mode in which it asks"
        yield warn(f"mode of {agent.name}", found, f"set agents.{agent.name}.mode to {choice}")


def _workspaces(workspaces: Sequence[WorkspaceFacts]) -> Iterator[Check]:
    wrong = [place for place in workspaces if place.problem is not None]
    for place in wrong:
        fix = f"make it, or name another directory ({place.source})"
        yield missing("workspace", f"{place.path}: {place.problem}", fix)
    if workspaces and not wrong:
        yield ok("workspaces", ", ".join(map(_shown_workspace, workspaces[:_SHOWN_WORKSPACES])))


def _shown_workspace(place: WorkspaceFacts) -> str:
    return f"{place.path} ({'shared by all sessions' if place.is_shared else 'a directory for each session'})"


def _kept_workers(facts: MachineFacts) -> Iterator[Check]:
    """Whether there is a worker to keep for one session of each agent with ``resume = "pin"``."""
    names, room = [agent.name for agent in facts.agents if agent.keeps_workers], facts.max_workers - 1
    if len(names) > room:
        found = f'{room} of pool.max = {facts.max_workers}, for sessions of {len(names)} agents with resume = "pin"'
        fix = f'raise pool.max to {len(names) + 1} or more, or set resume = "auto": {", ".join(names)}'
        yield warn("kept workers", found, fix)


def _node(facts: MachineFacts) -> Iterator[Check]:
    if not any(agent.needs_node for agent in facts.agents):
        return
    number = re.match(r"v(\d+)\.", facts.node or "")
    if number and int(number[1]) >= _MIN_NODE:
        yield ok("node", str(facts.node))
    else:
        fix = f"agents of dialect pi run on node {_MIN_NODE} or newer; install it"
        yield missing("node", facts.node or "not found", fix)


def _memory(facts: MachineFacts) -> Check:
    wanted = facts.local_workers * facts.worker_memory
    found = (
        f"{facts.local_workers} workers x {facts.worker_memory // _MIB} MiB = {wanted // _MIB} MiB "
        f"of {facts.memory // _MIB} MiB"
    )
    if wanted > facts.memory:
        fits = facts.memory // max(facts.worker_memory, 1)
        return missing("memory", found, f"set {facts.local_setting} to {fits} or less")
    if wanted > facts.memory * 0.8:
        return warn("memory", found, f"little is left for anything else; lower {facts.local_setting}")
    return ok("memory", found)


def _open_files(facts: MachineFacts) -> Check:
    connections = 0 if facts.http is None else facts.http.max_connections
    wanted = facts.local_workers * _FILES_PER_WORKER + _BASE_FILES + connections
    found = f"{facts.open_files} allowed, up to {wanted} used by {facts.local_workers} workers"
    if facts.open_files >= wanted:
        return ok("open files", found)
    return missing("open files", found, f"raise the hard limit (ulimit -Hn {wanted}), or lower {facts.local_setting}")


def _pipes(facts: MachineFacts) -> Check:
    limit = facts.pipe_pages_soft
    wanted = facts.local_workers * _PAGES_PER_WORKER
    if limit is None:
        return ok("pipe quota", "this system has none")
    if limit == 0 or facts.is_root or wanted <= limit:
        return ok("pipe quota", f"{wanted} of {limit or 'unlimited'} pages")
    fix = f"slower pipes of one page each; sudo sysctl fs.pipe-user-pages-soft={2 * wanted}"
    return warn("pipe quota", f"{limit} pages, {wanted} used by {facts.local_workers} workers", fix)


def _data_dir(facts: MachineFacts) -> Check:
    if facts.data_dir_problem is None:
        return ok("data directory", facts.data_dir)
    found = f"{facts.data_dir}: {facts.data_dir_problem}"
    return missing("data directory", found, "name another with --data-dir or `data_dir` in the settings")


def _socket(facts: MachineFacts) -> Check:
    length = len(os.fsencode(facts.socket))
    if length <= MAX_SOCKET_PATH_BYTES:
        return ok("socket path", facts.socket)
    found = f"{facts.socket} has {length} bytes, {MAX_SOCKET_PATH_BYTES} are possible"
    return missing("socket path", found, "name a shorter one with --socket or $POOL_SOCKET")


def _http(http: HttpFacts | None) -> Check:
    """How programs and browsers come in, and with what."""
    if http is None:
        return ok("http", 'off; http.bind = "127.0.0.1:8765" in the settings opens it')
    if http.port_problem is not None:
        fix = "choose another port in http.bind, or end what listens there"
        return missing("http", f"{http.url}: {http.port_problem}", fix)
    found = f"{http.url}, token: {http.token}"
    if http.token_problem is not None:
        return missing("http", f"{http.url}: {http.token_problem}", "mend the token, or name another")
    if http.is_local:
        return ok("http", found)
    if http.is_token_made:
        fix = "other machines can reach this address: set http.token_file to a token of your choice, or bind 127.0.0.1"
        return missing("http", found, fix)
    fix = "other machines can reach this address, and what they send is not encrypted: put a TLS proxy before it"
    return warn("http", found, fix)


def _port_services(http: HttpFacts | None) -> Iterator[Check]:
    """Where the doors are that share the port of HTTP."""
    if http is None or http.token_problem is not None or http.port_problem is not None:
        return
    is_known = http.url.startswith("http")
    for name, scheme, path, what in _PORT_SERVICES:
        place = http.url.replace("http", scheme, 1) + path if is_known else f"{path} on that port"
        yield ok(name, f"{place}{what}")


def _orphans(facts: MachineFacts) -> Iterator[Check]:
    """What the clean-up after a worker's stray children rests on; the pool works without, with a lesser guarantee."""
    if facts.platform != "linux":
        yield warn("orphans", facts.platform, "only Linux lets the pool find every stray process")
        return
    for name, is_there, fix in (
        ("pidfd", facts.pidfd, "needs Linux 5.3 and a Python built for it; exits are noticed by SIGCHLD instead"),
        ("subreaper", facts.subreaper, "the system refuses it; strays are looked for in /proc instead"),
        ("cgroup", facts.cgroup, "run in a delegated cgroup v2, e.g. systemd-run --user -p Delegate=yes"),
    ):
        yield ok(name, "available") if is_there else warn(name, "not available", fix)
