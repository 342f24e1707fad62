"""Leases and fences: whatever is late, dies or is suspended, no session has two workers at the same time."""

from collections import deque
from random import Random
from typing import Any

import pytest

from cluster.lease import NodeLease
from cluster.messages import Hello
from cluster.nodes import NodeAdmission, NodeLife, NodeRefusal, NodeRoster

LEASE, MARGIN = 6.0, 2.0
GUARD_DELAY = 1.5
"""Seconds that a guard may be late; what the margin is for."""
NAMES = ("a", "b")
CLOCK_OFFSET = 1e6
"""Between the supervisor's clock and those of the nodes."""


def hello(name: str = "a", instance: str = "i1", boot: str = "boot", **more: Any) -> Hello:
    return Hello(**{"version": "1", "name": name, "boot": boot, "machine": "m", "instance": instance, **more})


def table() -> NodeRoster:
    return NodeRoster(lease=LEASE, margin=MARGIN)


def admitted(nodes: NodeRoster, said: Hello, now: float) -> NodeLife:
    assert isinstance(nodes.hello(said, now), NodeAdmission)
    life = nodes.life_of(said.name)
    assert life is not None
    return life


def test_a_lease_runs_from_the_sending_of_the_ping_that_was_answered() -> None:
    lease = NodeLease(LEASE, hello_sent=100.0)
    assert lease.ends_at == 106.0
    first, second = lease.ping(101.0), lease.ping(102.0)
    assert lease.answered(second)
    assert lease.ends_at == 108.0
    assert not lease.answered(first), "an older ping does not shorten it"
    assert not lease.answered(second), "nor is one counted twice"
    assert not lease.answered(99)
    assert (lease.has_ended(107.9), lease.has_ended(108.0)) == (False, True)


def test_a_second_link_of_a_name_is_refused_while_the_first_may_live() -> None:
    nodes = table()
    life = admitted(nodes, hello(), 0.0)
    assert nodes.hello(hello(instance="i2"), 50.0) == NodeRefusal("node a is linked since an earlier link", 0.0)
    nodes.answered(life, 50.0)
    nodes.unlinked(life)
    refused = nodes.hello(hello(instance="i2"), 51.0)
    assert isinstance(refused, NodeRefusal)
    assert refused.retry_after == 7.0
    assert (nodes.next_fence(), nodes.fence(57.9)) == (58.0, [])
    assert nodes.fence(58.0) == [life]
    assert nodes.next_fence() is None
    assert nodes.hello(hello(instance="i2"), 58.0) == NodeAdmission()


@pytest.mark.parametrize("said", [hello(instance="i2", swept=("i1",)), hello(instance="i2", boot="later")])
def test_a_node_that_has_swept_its_last_instance_or_was_booted_since_is_taken_at_once(said: Hello) -> None:
    nodes = table()
    life = admitted(nodes, hello(), 0.0)
    assert nodes.hello(said, 1.0) == NodeAdmission(life)
    nodes.swept(life)
    assert nodes.life_of("a") is not None, "what is said of the old life does not concern the new one"


@pytest.mark.parametrize("machines", [("m", "another"), ("", ""), ("m", ""), ("", "m")])
def test_the_boot_of_another_machine_ends_no_life_of_the_first(machines: tuple[str, str]) -> None:
    nodes = table()
    first, second = machines
    admitted(nodes, hello(machine=first), 0.0)
    refused = nodes.hello(hello(instance="i2", boot="later", machine=second), 1.0)
    assert isinstance(refused, NodeRefusal)
    assert refused.retry_after == LEASE + MARGIN - 1.0


def test_an_instance_is_taken_once() -> None:
    nodes = table()
    nodes.unlinked(admitted(nodes, hello(), 0.0))
    assert isinstance(nodes.hello(hello(swept=("i1",)), 1.0), NodeRefusal)


class _Connection:
    """The bytes under way between the two ends of one link, which arrive in order, some time."""

    def __init__(self, name: str, instance: str) -> None:
        self.name = name
        self.instance = instance
        self.to_home: deque[tuple[str, Any]] = deque()
        self.to_node: deque[tuple[str, Any]] = deque()
        self.life: NodeLife | None = None
        """What the supervisor made of it."""


class _Node:
    """A machine with a node program, its guard and its workers; ``processes``: session by instance."""

    def __init__(self) -> None:
        self.program = "dead"
        self.connection: _Connection | None = None
        self.lives = 0
        self.lease: NodeLease | None = None
        self.is_welcome = False
        self.processes: list[tuple[str, str]] = []
        self.guard_acts_at: float | None = None

    def kill_all(self) -> None:
        self.processes.clear()
        self.is_welcome, self.guard_acts_at = False, None

    def end_link(self) -> None:
        """The program has noticed: it kills everything, and will dial again."""
        self.kill_all()
        self.lease = None

    def pass_time(self, now: float) -> None:
        """What happens by itself until ``now``."""
        if self.program == "up" and self.lease is not None and self.lease.has_ended(now):
            self.end_link()
        if self.guard_acts_at is not None and now >= self.guard_acts_at:
            self.program, self.lease = "dead", None  # it was suspended, or is gone
            self.kill_all()


class World:
    """Two nodes, one session, links that delay and break."""

    def __init__(self) -> None:
        self.now = 0.0
        self.home = table()
        self.nodes = {name: _Node() for name in NAMES}
        self.connections: list[_Connection] = []
        self.session_on: NodeLife | None = None
        self.moves = 0

    def both_nodes_are_linked_and_the_session_has_a_worker(self) -> None:
        for name in NAMES:
            self.the_program_dials(name)
            self.arrive_at_home(self.connections[-1])
            self.something_arrives_at_the_node(name)
        self.start_session(self.connections[0])
        self.something_arrives_at_the_node(NAMES[0])

    def node_time(self) -> float:
        return self.now + CLOCK_OFFSET

    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for node in self.nodes.values():
            node.pass_time(self.node_time())
        for life in self.home.fence(self.now):
            self.is_over(life)
        if self.session_on is None:
            self.home_starts_the_session()

    def is_over(self, life: NodeLife) -> None:
        if self.session_on is life:
            self.session_on = None

    def something_happens_to_the_program(self, name: str, event: str) -> None:
        match event:
            case "dials":
                self.the_program_dials(name)
            case "loses the link":
                self.the_program_loses_the_link(name)
            case "is killed":
                self.the_program_is_killed(name)
            case _:
                self.the_program_is_suspended_or_goes_on(name)

    def the_program_dials(self, name: str) -> None:
        node = self.nodes[name]
        if node.program != "suspended" and node.lease is None:
            node.kill_all()  # what the state file names is swept before the first HELLO
            swept = (node.connection.instance,) if node.connection else ()
            node.program, node.lives = "up", node.lives + 1
            node.connection = _Connection(name, f"{name}{node.lives}")
            self.connections.append(node.connection)
            node.lease = NodeLease(LEASE, hello_sent=self.node_time())
            node.connection.to_home.append(("hello", hello(name, node.connection.instance, swept=swept)))

    def the_program_pings(self, name: str) -> None:
        node = self.nodes[name]
        if node.program == "up" and node.lease is not None and node.connection and node.is_welcome:
            node.connection.to_home.append(("ping", node.lease.ping(self.node_time())))

    def frames_arrive(self, at: int, frames: int, *, answers: bool) -> None:
        """At home, on one of the last connections, and the answers at the node."""
        connection = self.connections[max(0, len(self.connections) - 1 - at)]
        for _ in range(min(frames, len(connection.to_home))):
            self.arrive_at_home(connection)
        if answers:
            self.everything_arrives_at_the_node(connection.name)

    def arrive_at_home(self, connection: _Connection) -> None:
        kind, said = connection.to_home.popleft()
        if kind == "ping":
            if connection.life is not None and connection.life.is_linked:
                self.home.answered(connection.life, self.now)
                connection.to_node.append(("pong", said))
            return
        answer = self.home.hello(said, self.now)
        if isinstance(answer, NodeAdmission):
            if answer.fenced is not None:
                self.is_over(answer.fenced)
            connection.life = self.home.life_of(connection.name)
            connection.to_node.append(("welcome", None))

    def everything_arrives_at_the_node(self, name: str) -> None:
        connection = self.nodes[name].connection
        for _ in range(len(connection.to_node) if connection else 0):
            self.something_arrives_at_the_node(name)

    def something_arrives_at_the_node(self, name: str) -> None:
        node = self.nodes[name]
        if node.program != "up" or node.lease is None or node.connection is None or not node.connection.to_node:
            return
        kind, said = node.connection.to_node.popleft()
        if kind == "welcome":
            node.is_welcome, node.guard_acts_at = True, node.lease.ends_at + GUARD_DELAY
        elif kind == "start":
            node.processes.append((node.connection.instance, said))
        elif node.lease.answered(said):
            node.guard_acts_at = node.lease.ends_at + GUARD_DELAY

    def linked(self) -> list[_Connection]:
        return [each for each in self.connections if each.life is not None and each.life.is_linked]

    def home_starts_the_session(self) -> None:
        for connection in self.linked():
            self.start_session(connection)
            self.everything_arrives_at_the_node(connection.name)
            return

    def start_session(self, connection: _Connection) -> None:
        self.session_on = connection.life
        self.moves += 1
        connection.to_node.append(("start", "s"))

    def home_loses_a_link(self, at: int) -> None:
        linked = self.linked()
        life = linked[at % len(linked)].life if linked else None
        if life is not None:
            self.home.unlinked(life)

    def the_program_loses_the_link(self, name: str) -> None:
        node = self.nodes[name]
        if node.program == "up" and node.lease is not None:
            node.end_link()

    def the_program_is_killed(self, name: str) -> None:
        node = self.nodes[name]
        node.program, node.lease = "dead", None
        if node.guard_acts_at is not None:
            node.guard_acts_at = min(node.guard_acts_at, self.node_time() + GUARD_DELAY)

    def the_program_is_suspended_or_goes_on(self, name: str) -> None:
        node = self.nodes[name]
        if node.program != "dead":
            node.program = "suspended" if node.program == "up" else "up"
            node.pass_time(self.node_time())

    def no_session_has_two_workers(self) -> None:
        running = [process for node in self.nodes.values() for process in node.processes]
        assert len(running) <= 1, running

    def step(self, chance: Random) -> None:
        """Something happens; mostly time passes, pings go out and are answered."""
        name = chance.choice(NAMES)
        (event,) = chance.choices(tuple(WEIGHTS), [*WEIGHTS.values()])
        match event:
            case "time":
                self.time_passes(chance.choice((0.1, 0.5, 1.0, 2.0)))
            case "ping":
                self.the_program_pings(name)
            case "frames":
                self.frames_arrive(chance.randrange(4), chance.randint(1, 5), answers=chance.random() < 0.7)
            case "answers":
                self.everything_arrives_at_the_node(name)
            case "home loses":
                self.home_loses_a_link(chance.randrange(2))
            case "program":
                event = chance.choice(("dials", "dials", "dials", "loses the link", "is killed", "is suspended"))
                self.something_happens_to_the_program(name, event)


WEIGHTS = {"time": 6, "ping": 6, "frames": 8, "answers": 4, "home loses": 1, "program": 2}


def test_no_delays_let_two_workers_have_one_session() -> None:
    moves = 0
    for seed in range(1500):
        world, chance = World(), Random(seed)
        world.both_nodes_are_linked_and_the_session_has_a_worker()
        for _ in range(80):
            world.step(chance)
            world.no_session_has_two_workers()
        moves += world.moves
    assert moves > 1500, "hardly any session has moved: nothing was tested"
