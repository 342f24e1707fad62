"""Who is let in as a node, and what is said of those that are not: paper nodes over real descriptors."""

import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from cluster.engines.engine import DialTarget
from cluster.frames import FROM_HOME, FrameKind
from cluster.home import NodeDesk
from cluster.link import Link
from cluster.messages import Beat, Bye, Facts, Hello, Welcome, decode_message
from cluster.proof import home_proof, node_proof
from cluster.remote_node import RemoteNode
from cluster.wire import LinkWire
from errors import WorkerStartFailed
from rpc.host import WorkerPlan
from rpc.settings import RpcSettings
from rpc.stderr_log import LineLog

TOKEN = "token-of-the-cluster"
FINGERPRINT = "ab" * 32
LOG = LineLog(None, 1 << 20)
WRONG = "its name, secret or token is not the right one"


class Watcher:
    """What a desk tells of its nodes."""

    def __init__(self) -> None:
        self.nodes: dict[str, RemoteNode] = {}
        self.ends: list[tuple[str, str]] = []

    def joined(self, node: RemoteNode) -> None:
        self.nodes[node.name] = node

    def drain(self, name: str, seconds: float | None, *, ends: bool) -> None:
        self.ends.append((name, f"drained in {seconds}, {ends}"))

    def idle(self, name: str) -> float:
        raise AssertionError(name)

    def lost(self, node: RemoteNode, reason: str) -> int:
        del self.nodes[node.name]
        self.ends.append((node.name, reason))
        return 0


class Hall:
    """A desk, its events, and the far ends of its links."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.watcher = Watcher()
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.desk = NodeDesk(
            Path("/data"),
            lease=60.0,
            margin=3.0,
            silence=30.0,
            watcher=self.watcher,
            emit=lambda event, facts: self.events.append((event, facts)),
            read_token=lambda: TOKEN,
        )
        self.desk.dial = DialTarget("home", 7645, FINGERPRINT)
        self._nursery = nursery
        self.ends: list[LinkWire] = []

    def connect(self, name: str = "", **origin: Any) -> Link:
        """The far end of a new link; ``name``: over pipes, whose other end is known."""
        near, far = (_wire(end) for end in socket.socketpair())
        self.ends.append(far)
        serve = self.desk.serve_dialled(near) if not name else self.desk.serve(near, name, **origin)
        self._nursery.start_soon(lambda: serve)
        return Link(far)

    async def greet(self, hello: Hello, name: str = "", **origin: Any) -> tuple[Link, Welcome | Bye]:
        """A link that has said its HELLO, and what came back."""
        link = self.connect(name, **origin)
        link.send_message(FrameKind.HELLO, hello)
        first = await link.receive_first(FROM_HOME, 5.0)
        if first.kind is FrameKind.WELCOME:
            return link, decode_message(first.payload, Welcome)
        return link, decode_message(first.payload, Bye)

    async def join(self, hello: Hello, name: str = "", **origin: Any) -> Link:
        """A node that takes workers."""
        link, answer = await self.greet(hello, name, **origin)
        assert isinstance(answer, Welcome)
        link.send_message(FrameKind.PING, Beat(1))
        await wait_all_tasks_blocked()
        return link

    def refusals(self) -> list[str]:
        return [facts["reason"] for event, facts in self.events if event == "node_refused"]


def _wire(end: socket.socket) -> LinkWire:
    end.settimeout(0)
    return LinkWire.of_pipes(os.dup(end.fileno()), end.detach())


@asynccontextmanager
async def hall() -> AsyncGenerator[Hall, None]:
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            made = Hall(nursery)
            yield made
            nursery.cancel_scope.cancel()
    for end in made.ends:
        end.close()


def hello(name: str = "one", instance: str = "i1", **said: Any) -> Hello:
    return Hello(version="1", name=name, boot="b", instance=instance, **said)


def proven(token: str = TOKEN, fingerprint: str = FINGERPRINT, instance: str = "i1") -> Hello:
    return hello(instance=instance, proof=node_proof(token, fingerprint, instance))


async def test_a_node_that_dials_is_let_in_by_a_proof_of_the_token_and_gets_one_back() -> None:
    async with hall() as place:
        _, answer = await place.greet(proven())
        assert isinstance(answer, Welcome)
        assert answer.proof == home_proof(TOKEN, FINGERPRINT, "i1")


@pytest.mark.parametrize(
    "said",
    [
        hello(),
        proven(token="another-token-of-a-cluster"),
        proven(fingerprint="cd" * 32),
        hello(proof=node_proof(TOKEN, FINGERPRINT, "i2")),
        hello(proof=home_proof(TOKEN, FINGERPRINT, "i1")),
        hello(secret=TOKEN),
    ],
    ids=[
        "nothing",
        "another token",
        "through another certificate",
        "of another link",
        "the answer",
        "the token itself",
    ],
)
async def test_a_node_without_a_proof_for_this_link_is_refused(said: Hello) -> None:
    async with hall() as place:
        assert (await place.greet(said))[1] == Bye(WRONG)
        assert place.refusals() == [WRONG]


async def test_an_invited_name_is_its_engines_and_no_one_elses_with_the_token() -> None:
    async with hall() as place:
        secret = place.desk.invite("one", engine="ray", labels={"gpu": "yes"}, slots=3)
        assert (await place.greet(proven()))[1] == Bye(WRONG)
        await place.join(hello(secret=secret, slots=9, labels={"gpu": "no", "disk": "fast"}))
        node = place.watcher.nodes["one"]
        assert (node.engine, node.given_slots, node.labels) == ("ray", 3, {"gpu": "yes", "disk": "fast"})


async def test_a_node_takes_workers_from_its_first_ping_on_and_one_that_cannot_is_refused() -> None:
    async with hall() as place:
        link, _ = await place.greet(proven())
        await wait_all_tasks_blocked()
        assert (place.watcher.nodes, place.desk.linked("one")) == ({}, None)
        link.send_message(FrameKind.BYE, Bye("the directory /data cannot be made"))
        await wait_all_tasks_blocked()
        assert place.refusals() == ["it says: the directory /data cannot be made"]
        assert [node.note for node in place.desk.absent() if node.state == "refused"] == place.refusals()
        assert place.watcher.ends == []
        await place.join(hello("two", "i2", proof=node_proof(TOKEN, FINGERPRINT, "i2")))
        assert list(place.watcher.nodes) == ["two"]


async def test_what_a_node_measures_is_shown_as_it_was_said_last() -> None:
    async with hall() as place:
        link = await place.join(hello(), "one", engine="ssh")
        link.send_message(FrameKind.FACTS, Facts((), 1.5, 7, 0.25))
        link.send_message(FrameKind.FACTS, Facts((), 2.5))
        await wait_all_tasks_blocked()
        node = place.watcher.nodes["one"]
        assert (node.load, node.memory_free, node.rtt) == (2.5, 7, 0.25)


async def test_why_no_node_comes_is_shown_until_one_does() -> None:
    async with hall() as place:
        place.desk.failed("one", engine="ray", reason="there is no program pool")
        assert [(node.state, node.engine, node.note) for node in place.desk.absent()] == [
            ("refused", "ray", "there is no program pool")
        ]
        assert place.refusals() == ["there is no program pool"]
        await place.join(hello(), "one", engine="ray")
        place.desk.failed("one", engine="ray", reason="an old word")
        assert list(place.desk.absent()) == []


async def test_the_drain_of_a_node_that_is_not_linked_is_not_lost() -> None:
    async with hall() as place:
        place.desk.draining("one", 20.0)
        assert place.watcher.ends == [("one", "drained in 20.0, True")]


async def test_a_node_that_its_engine_calls_dead_is_lost_for_that_reason() -> None:
    async with hall() as place:
        await place.join(hello(), "one", engine="ssh")
        place.desk.gone("one", "its machine was taken away")
        await wait_all_tasks_blocked()
        assert place.watcher.ends == [("one", "its machine was taken away")]
        (lost,) = place.desk.absent()
        assert (lost.state, lost.note, lost.engine) == ("lost", "its machine was taken away", "ssh")


async def test_the_link_of_a_node_that_comes_back_takes_the_place_of_the_one_before_in_the_same_step() -> None:
    async with hall() as place:
        await place.join(hello(), "one", engine="ssh")
        before = place.watcher.nodes["one"]
        process = before.start(WorkerPlan(worker_id="w1", agent="main", argv=("agent",), cwd="/"), RpcSettings(), LOG)
        await place.greet(hello(instance="i2", swept=("i1",)), "one", engine="ssh")
        assert (place.watcher.ends, before.is_linked) == ([("one", "it came back over another link")], False)
        await process.stop()
        with pytest.raises(WorkerStartFailed, match="not linked"):
            before.start(WorkerPlan(worker_id="w2", agent="main", argv=("agent",), cwd="/"), RpcSettings(), LOG)
        await wait_all_tasks_blocked()
        assert [event for event, _ in place.events] == ["node_joined", "node_lost", "node_fenced"]


async def test_no_node_takes_the_place_of_another_by_saying_its_instance() -> None:
    async with hall() as place:
        await place.join(hello(), "one", engine="ssh")
        _, answer = await place.greet(hello("two"), "two", engine="ssh")
        assert answer == Bye("its instance was used before")
        place.desk.gone("one", "its machine was taken away")
        await wait_all_tasks_blocked()
        assert place.watcher.ends == [("one", "its machine was taken away")]


async def test_a_node_that_was_sent_away_is_not_lost_and_its_name_is_free() -> None:
    async with hall() as place:
        link = await place.join(proven())
        place.desk.dismiss("one", "it was drained")
        with trio.CancelScope() as until_bye:
            await link.run(FROM_HOME, 5.0, lambda frame: until_bye.cancel() if frame.kind is FrameKind.BYE else None)
        place.ends[-1].close()
        await wait_all_tasks_blocked()
        assert [event for event, _ in place.events] == ["node_joined"]
        await place.join(proven(instance="i2"))
        assert list(place.watcher.nodes) == ["one"]


async def test_what_breaks_the_protocol_hears_why_and_each_reason_is_reported_once() -> None:
    async with hall() as place:
        for _ in range(3):
            _, answer = await place.greet(hello(protocol=99))
            assert isinstance(answer, Bye)
            assert answer.reason.startswith("the node speaks version 99 of the protocol, not 1")
        assert len(place.refusals()) == 1
        for number in range(40):
            await place.greet(hello(f"n{number}"))
        assert len(place.refusals()) <= 25, "trying many names fills no log"
        assert len(list(place.desk.absent())) <= 32
        _, answer = await place.greet(hello("two"), "one", engine="ssh")
        assert answer == Bye("it calls itself two")
