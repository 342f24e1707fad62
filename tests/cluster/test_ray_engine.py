"""The engine of Ray's machines against a driver that is the test: which node programs are asked for, and when."""

import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from cluster.engines.engine import DialTarget, EngineLost
from cluster.engines.ray import RayEngine, RayNode, bundles, next_delay, taken_back
from cluster.settings import GroupSettings, RaySettings
from cluster.wire import LinkWire
from wire.units import Seconds

BRIDGE = """#!{python}
import os, shutil, socket, sys, threading
far = socket.socket(socket.AF_UNIX)
far.connect({address!r})
hello = repr((sys.argv, dict(os.environ))).encode()
far.sendall(len(hello).to_bytes(4, "big") + hello)
def speak():
    shutil.copyfileobj(far.makefile("rb", 0), open(1, "wb", 0), 1)
    os._exit({code})
threading.Thread(target=speak).start()
shutil.copyfileobj(open(0, "rb", 0), far.makefile("wb", 0), 1)
os._exit(0)
"""
"""A driver that says what the test says, and hands on what it hears."""


class SeenDesk:
    """A desk that remembers."""

    def __init__(self) -> None:
        self.dial: DialTarget | None = DialTarget("10.0.0.2", 7645, "ab")
        self.invited: list[tuple[str, str, dict[str, str], int]] = []
        self.drained: list[tuple[str, float | None]] = []
        self.has_drained = trio.Event()
        self.failures: list[tuple[str, str, str]] = []
        self.idle_for: dict[str, float] = {}

    def invite(self, name: str, *, engine: str, labels: Mapping[str, str], slots: int) -> str:
        self.invited.append((name, engine, dict(labels), slots))
        return f"secret-{len(self.invited)}"

    def draining(self, name: str, deadline: float | None) -> None:
        self.drained.append((name, deadline))
        self.has_drained.set()

    def idle(self, name: str) -> float:
        return self.idle_for.get(name, 0.0)

    def failed(self, name: str, *, engine: str, reason: str) -> None:
        self.failures.append((name, engine, reason))

    def gone(self, name: str, reason: str) -> None:
        raise AssertionError(f"{name} is closed: {reason}")

    async def serve(self, wire: LinkWire, name: str, **known: Any) -> None:
        raise AssertionError(f"{name} has no pipes: {wire} {known}")


class Driver:
    """The test's end of the engine, which runs."""

    def __init__(self, directory: Path, *, code: int = 0, **settings: Any) -> None:
        self.desk = SeenDesk()
        self.lost = ""
        self.configuration: dict[str, Any] = {}
        self._is_lost = trio.Event()
        self.hello = ""
        self._address = str(directory / "driver.sock")
        python = directory / "python"
        python.write_text(BRIDGE.format(python=sys.executable, address=self._address, code=code))
        python.chmod(0o755)
        own = {"address": "10.0.0.1:6379", "python": str(python), **settings}
        groups = {"gpu": GroupSettings(labels={"kind": "gpu"})}
        self.engine = RayEngine(RaySettings(**own), groups)
        self._lines = b""
        self.stream: trio.SocketStream

    async def say(self, **event: Any) -> None:
        await self.stream.send_all(msgspec.json.encode(event) + b"\n")

    async def heard(self) -> dict[str, Any]:
        """The next command."""
        while b"\n" not in self._lines:
            data = await self.stream.receive_some()
            assert data
            self._lines += data
        line, _, self._lines = self._lines.partition(b"\n")
        return dict(msgspec.json.decode(line))

    async def hang_up(self) -> None:
        await self.stream.send_eof()

    async def run(self, nursery: trio.Nursery) -> None:
        """Start the engine; return when its driver is connected."""
        listener = trio.socket.socket(trio.socket.AF_UNIX)
        await listener.bind(self._address)
        listener.listen()
        nursery.start_soon(self._run_engine)
        connection, _ = await listener.accept()
        listener.close()
        self.stream = trio.SocketStream(connection)
        size = int.from_bytes(await self.stream.receive_some(4), "big")
        while len(self.hello) < size:
            self.hello += (await self.stream.receive_some(size - len(self.hello))).decode()

    async def _run_engine(self) -> None:
        try:
            await self.engine.run(self.desk)
        except EngineLost as exc:
            self.lost = exc.message
            self._is_lost.set()

    async def wait_lost(self) -> str:
        await self._is_lost.wait()
        return self.lost


@asynccontextmanager
async def driven(directory: Path, **options: Any) -> AsyncGenerator[Driver, None]:
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            driver = Driver(directory, **options)
            await driver.run(nursery)
            driver.configuration = await driver.heard()
            async with driver.stream:
                yield driver
                nursery.cancel_scope.cancel()


A = {"event": "node", "name": "a", "slots": 2, "labels": {"kind": "gpu"}}


@pytest.mark.process
async def test_each_machine_gets_a_node_program_with_a_secret_of_its_own(tmp_path: Path) -> None:
    async with driven(tmp_path, reserve={"GPU": 2}) as driver:
        await driver.say(**A)
        await driver.say(**A | {"name": "b"})
        started = [await driver.heard(), await driver.heard()]
        assert started == [{"op": "start", "name": name, "secret": f"secret-{n}"} for n, name in ((1, "a"), (2, "b"))]
        assert driver.desk.invited == [(name, "ray", {"kind": "gpu"}, 2) for name in ("a", "b")]
        own = {"address": "10.0.0.1:6379", "resource": "pool_slot", "reserve": {"GPU": 2}, "command": ["pool", "node"]}
        assert driver.configuration.items() >= own.items()
        assert driver.configuration.items() >= {"dial": "10.0.0.2:7645", "fingerprint": "ab", "life": "ab"}.items()


@pytest.mark.process
async def test_a_driver_has_rays_variables_and_none_with_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("SOME_API_KEY", "canary-secret")
    async with driven(tmp_path) as driver:
        assert "'RAY_AUTH_MODE': 'token'" in driver.hello
        assert "canary-secret" not in driver.hello


@pytest.mark.process
async def test_a_program_that_has_ended_is_started_again_and_that_of_a_drained_node_is_not(tmp_path: Path) -> None:
    async with driven(tmp_path) as driver:
        await driver.say(**A)
        await driver.heard()
        await driver.say(event="ended", name="a", reason="killed")
        assert await driver.heard() == {"op": "start", "name": "a", "secret": "secret-2"}
        await driver.say(event="draining", name="a", deadline=30.0)
        await driver.say(event="ended", name="a", reason="empty")
        assert await driver.heard() == {"op": "free", "name": "a"}
        assert driver.desk.drained == [("a", 30.0)]


@pytest.mark.process
async def test_why_a_program_ends_again_and_again_is_said(tmp_path: Path) -> None:
    async with driven(tmp_path) as driver:
        await driver.say(**A)
        for reason in ("killed", "no disk"):
            await driver.heard()
            assert driver.desk.failures == []
            await driver.say(event="ended", name="a", reason=reason)
        await driver.heard()
        assert driver.desk.failures == [("a", "ray", "no disk")]


@pytest.mark.process
async def test_a_machine_that_ray_has_lost_is_started_on_when_it_comes_again(tmp_path: Path) -> None:
    async with driven(tmp_path) as driver:
        await driver.say(**A)
        await driver.heard()
        for event in ("ended", "gone", "ended"):
            await driver.say(event=event, name="a", reason="its raylet died")
        await driver.say(**A)
        assert (await driver.heard())["op"] == "start"
        assert len(driver.desk.invited) == 2


@pytest.mark.process
@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b'{"event":"lost","reason":"wrong token"}\n', "wrong token"),
        (b'{"event":"what"}\n', "says what it should not"),
        (b"x" * 300_000, "says what it should not"),
    ],
)
async def test_an_engine_whose_driver_cannot_go_on_is_lost(tmp_path: Path, said: bytes, reason: str) -> None:
    async with driven(tmp_path) as driver:
        await driver.stream.send_all(said)
        assert reason in await driver.wait_lost()


@pytest.mark.process
async def test_an_engine_whose_driver_has_ended_is_lost(tmp_path: Path) -> None:
    async with driven(tmp_path, code=7) as driver:
        await driver.hang_up()
        assert await driver.wait_lost() == "the driver of Ray has ended (7): it said nothing"


async def test_an_engine_without_an_address_to_dial_or_a_python_says_so(tmp_path: Path) -> None:
    driver = Driver(tmp_path, python=str(tmp_path / "nowhere"))
    with pytest.raises(EngineLost, match=r"cluster\.ray\.python .* cannot be started"):
        await driver.engine.run(driver.desk)
    driver.desk.dial = None
    with pytest.raises(EngineLost, match=r"set cluster\.listen"):
        await driver.engine.run(driver.desk)


@pytest.mark.process
async def test_ray_is_asked_for_slots_only_where_it_may_grow(tmp_path: Path) -> None:
    async with driven(tmp_path, scale=True, max_nodes=2) as driver:
        await driver.say(**A)
        await driver.heard()
        await driver.engine.want({"gpu": 5})
        assert await driver.heard() == {"op": "scale", "slots": [{}, {}, {"kind": "gpu"}]}
    (tmp_path / "fixed").mkdir()
    async with driven(tmp_path / "fixed") as driver:
        await driver.engine.want({"gpu": 5})
        await driver.say(**A)
        assert (await driver.heard())["op"] == "start"


@pytest.mark.process
async def test_a_wish_that_is_being_sent_when_the_driver_ends_ends_with_it(tmp_path: Path) -> None:
    async with driven(tmp_path, scale=True) as driver, trio.open_nursery() as nursery:
        async with driver.engine._sending:
            nursery.start_soon(driver.engine.want, {"gpu": 5})
            await trio.testing.wait_all_tasks_blocked()
            await driver.hang_up()
            await driver.wait_lost()
        await driver.engine.want({"gpu": 5})


@pytest.mark.process
async def test_a_machine_that_came_for_a_wish_is_given_back_when_idle_and_taken_back_when_it_is_wanted(
    tmp_path: Path,
) -> None:
    async with driven(tmp_path, scale=True, idle_node=Seconds(0.05)) as driver:
        await driver.say(**A | {"name": "fixed"})
        await driver.heard()
        await driver.engine.want({"gpu": 2})
        assert (await driver.heard())["op"] == "scale"
        driver.desk.idle_for = {"a": 0.1, "fixed": 0.1}
        await driver.say(**A)
        assert (await driver.heard())["op"] == "start"
        await driver.desk.has_drained.wait()
        assert driver.desk.drained == [("a", None)]
        await driver.say(event="ended", name="a", reason="it was drained")
        assert await driver.heard() == {"op": "free", "name": "a"}
        await driver.engine.want({})
        assert await driver.heard() == {"op": "scale", "slots": []}
        await driver.engine.want({"gpu": 2})
        assert (await driver.heard()).items() >= {"op": "start", "name": "a"}.items()
        assert await driver.heard() == {"op": "scale", "slots": []}


def test_machines_that_were_given_back_serve_what_they_fit() -> None:
    groups = {"gpu": GroupSettings(labels={"kind": "gpu"})}
    nodes = {
        "used": RayNode(8, {"kind": "gpu"}),
        "plain": RayNode(2, {}, is_returned=True),
        "gpu": RayNode(2, {"kind": "gpu"}, is_returned=True),
    }
    assert taken_back(nodes, {"gpu": 3, "": 0}, groups) == (["gpu"], {"gpu": 1})
    assert taken_back(nodes, {"": 2}, groups) == (["plain"], {})


@pytest.mark.parametrize(
    ("max_nodes", "slots"),
    [
        (0, [{}, {}, {"kind": "gpu"}, {"kind": "gpu"}, {}]),
        (3, [{}, {}, {"kind": "gpu"}, {"kind": "gpu"}]),
        (1, [{}, {}]),
    ],
)
def test_slots_that_are_asked_for_come_beside_those_that_are_there(max_nodes: int, slots: list[dict[str, str]]) -> None:
    groups = {"gpu": GroupSettings(labels={"kind": "gpu"})}
    assert list(bundles([RayNode(2, {})], {"gpu": 2, "": 1}, groups, max_nodes)) == slots
    assert list(bundles([RayNode(2, {})], {}, groups, max_nodes)) == []


def test_a_program_that_ends_early_is_started_again_later_each_time() -> None:
    delays = [0.0]
    while len(delays) < 12:
        delays.append(next_delay(delays[-1], 1.0))
    assert delays[1:4] == [0.2, 0.4, 0.8]
    assert delays[-1] == 30.0
    assert next_delay(30.0, 31.0) == 0.2
