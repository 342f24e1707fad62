"""The engine of a Ray cluster's machines: a driver of Ray in a process of its own, and what is done at its events."""

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
import trio

from cluster.engines.engine import Desk, DialTarget, EngineLost
from cluster.settings import GroupSettings, RaySettings
from errors import ProtocolViolation, unwrap_exception_groups
from rpc.stderr_log import StderrTail
from wire.framing import DECODE_ERRORS, LineFramer

_DRIVER = Path(__file__).parents[1] / "ray_driver.py"
_MAX_LINE_BYTES = 256 * 1024
_STDERR_BYTES = 4 * 1024
_MIN_DELAY, _MAX_DELAY = 0.2, 30.0  # seconds between two node programs, doubled for each one that ended early
_END_GRACE = 5.0  # seconds from the end of its input until the driver is killed
_LAST_WORDS_TIMEOUT = 1.0  # seconds in which a driver whose output has ended says why
_ENVIRONMENT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")
_RAY_PREFIX = "RAY_"


class NodeOffered(msgspec.Struct, frozen=True, tag="node", tag_field="event"):
    """A machine of Ray offers slots."""

    name: str
    slots: int
    labels: dict[str, str]


class NodeDraining(msgspec.Struct, frozen=True, tag="draining", tag_field="event"):
    """Seconds within which Ray wants it empty; None = it has no end."""

    name: str
    deadline: float | None


class ProgramEnded(msgspec.Struct, frozen=True, tag="ended", tag_field="event"):
    """The node program there has ended, or Ray has lost sight of it."""

    name: str
    reason: str


class NodeGone(msgspec.Struct, frozen=True, tag="gone", tag_field="event"):
    """Ray has no such machine any more. Its node program may go on."""

    name: str


class DriverLost(msgspec.Struct, frozen=True, tag="lost", tag_field="event"):
    """The driver cannot go on."""

    reason: str


DriverEvent = NodeOffered | NodeDraining | ProgramEnded | NodeGone | DriverLost
_decode = msgspec.json.Decoder(DriverEvent).decode


class RayNode(msgspec.Struct):
    """A machine that Ray offers, and what was done for it. ``is_returned``: it is empty, and Ray's to take away."""

    slots: int
    labels: dict[str, str]
    began: float = 0.0
    delay: float = 0.0
    is_draining: bool = False
    is_returned: bool = False


class RayEngine:
    """Runs the driver, and asks it for a node program on each machine that offers slots.

    Args:
        settings: ``[cluster.ray]``.
        groups: of whose labels machines are asked for.
    """

    name = "ray"

    def __init__(self, settings: RaySettings, groups: Mapping[str, GroupSettings]) -> None:
        self._settings = settings
        self._groups = groups
        self._nodes: dict[str, RayNode] = {}
        self._has_asked = False
        """Whether Ray was ever asked for machines: those that come after that are given back when they are idle."""
        self._wish: Mapping[str, int] | None = None
        self._wished = trio.Event()
        self._driver: trio.Process | None = None
        self._sending = trio.Lock()
        self._tail = StderrTail(_STDERR_BYTES)

    async def run(self, desk: Desk) -> None:
        """Until cancelled. Raises EngineLost with Ray's reason when the driver has ended."""
        dial = desk.dial
        if dial is None:
            raise EngineLost("nodes of Ray dial the supervisor: set cluster.listen")
        self._nodes = {}
        driver = await self._start_driver()
        try:
            with unwrap_exception_groups():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._read_stderr, driver)
                    await self._send(self._configuration(dial))
                    nursery.start_soon(self._tell_wishes, desk, nursery)
                    await self._follow(driver, desk, nursery)
        finally:
            await self._end(driver)

    async def want(self, slots: Mapping[str, int]) -> None:
        """Ask Ray for machines with these slots, beside those that it has; nothing more where there is none to be.

        ``run`` does that, as long as there is a driver: the last wish counts.
        """
        if self._settings.scale and self._driver is not None:
            self._wish = slots
            self._wished.set()

    async def _tell_wishes(self, desk: Desk, nursery: trio.Nursery) -> None:
        while True:
            await self._wished.wait()
            self._wished = trio.Event()
            wish, self._wish = self._wish, None
            if wish is not None:
                await self._ask_for(wish, desk, nursery)

    async def _ask_for(self, slots: Mapping[str, int], desk: Desk, nursery: trio.Nursery) -> None:
        back, left = taken_back(self._nodes, slots, self._groups)
        for name in back:
            if (node := self._nodes.get(name)) is not None:  # else it went while another was asked for
                await self._use(name, RayNode(node.slots, node.labels), desk, nursery)
        self._has_asked |= bool(left)
        selectors = list(bundles(self._nodes.values(), left, self._groups, self._settings.max_nodes))
        await self._send({"op": "scale", "slots": selectors})

    async def _start_driver(self) -> trio.Process:
        try:
            self._driver = await trio.lowlevel.open_process(
                [self._settings.python, str(_DRIVER)],
                env={name: value for name, value in os.environ.items() if _is_for_ray(name)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,  # Ctrl-C in the terminal of the supervisor is not for it
            )
        except OSError as exc:
            raise EngineLost(f"cluster.ray.python {self._settings.python!r} cannot be started: {exc}") from exc
        return self._driver

    def _configuration(self, dial: DialTarget) -> dict[str, object]:
        own = self._settings
        return {
            "address": own.address,
            "resource": own.resource,
            "reserve": own.reserve,
            "command": own.node_command,
            "dial": dial.address,
            "fingerprint": dial.fingerprint,
            "life": dial.fingerprint,  # a certificate is made for one life of the supervisor
        }

    async def _send(self, command: Mapping[str, object]) -> None:
        """Send a line. A driver that has ended is noticed by what reads it."""
        assert self._driver is not None  # noqa: S101  # started above
        assert self._driver.stdin is not None  # noqa: S101  # opened as a pipe
        async with self._sending:
            try:
                await self._driver.stdin.send_all(msgspec.json.encode(command) + b"\n")
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return

    async def _follow(self, driver: trio.Process, desk: Desk, nursery: trio.Nursery) -> None:
        """Do what each event asks for. Raises EngineLost at the end of them."""
        assert driver.stdout is not None  # noqa: S101  # opened as a pipe
        framer = LineFramer(_MAX_LINE_BYTES)
        try:
            async for data in driver.stdout:
                for line in framer.feed(bytes(data)):
                    await self._handle(_decode(line), desk, nursery)
        except (ProtocolViolation, *DECODE_ERRORS) as exc:
            raise EngineLost(f"the driver of Ray says what it should not: {exc}") from exc
        raise EngineLost(await self._reason(driver))

    async def _handle(self, event: DriverEvent, desk: Desk, nursery: trio.Nursery) -> None:
        match event:
            case NodeOffered(name, slots, labels):
                await self._use(name, RayNode(slots, labels), desk, nursery)
            case NodeDraining(name, deadline) if name in self._nodes:
                self._nodes[name].is_draining = True
                desk.draining(name, deadline)
            case ProgramEnded(name, reason) if (node := self._nodes.get(name)) is not None:
                if node.is_draining:
                    node.is_returned = True
                    await self._send({"op": "free", "name": name})
                else:
                    node.delay = next_delay(node.delay, trio.current_time() - node.began)
                    if node.delay > _MIN_DELAY:  # not the first that has ended so early
                        desk.failed(name, engine=self.name, reason=reason)
                    nursery.start_soon(self._start_again, name, node, desk)
            case NodeGone(name):
                self._nodes.pop(name, None)
            case DriverLost(reason):
                raise EngineLost(reason)
            case _:
                return

    async def _start_again(self, name: str, node: RayNode, desk: Desk) -> None:
        await trio.sleep(node.delay)
        if self._nodes.get(name) is node and not node.is_draining:
            await self._start_program(name, node, desk)

    async def _use(self, name: str, node: RayNode, desk: Desk, nursery: trio.Nursery) -> None:
        self._nodes[name] = node
        await self._start_program(name, node, desk)
        if self._has_asked:
            nursery.start_soon(self._return_when_idle, name, node, desk)

    async def _return_when_idle(self, name: str, node: RayNode, desk: Desk) -> None:
        """Give the machine back once it has been idle for long."""
        left = float(self._settings.idle_node)
        while left > 0:
            await trio.sleep(left)
            left = self._settings.idle_node - desk.idle(name)
        if self._nodes.get(name) is node and not node.is_draining:
            node.is_draining = True
            desk.draining(name, None)

    async def _start_program(self, name: str, node: RayNode, desk: Desk) -> None:
        node.began = trio.current_time()
        secret = desk.invite(name, engine=self.name, labels=node.labels, slots=node.slots)
        await self._send({"op": "start", "name": name, "secret": secret})

    async def _read_stderr(self, driver: trio.Process) -> None:
        """Read it to its end, so that the driver never waits for that."""
        assert driver.stderr is not None  # noqa: S101  # opened as a pipe
        async for data in driver.stderr:
            self._tail.feed(bytes(data))

    async def _reason(self, driver: trio.Process) -> str:
        with trio.move_on_after(_LAST_WORDS_TIMEOUT):
            await driver.wait()
        lines = [line for line in self._tail.text().splitlines() if line.strip()]
        return f"the driver of Ray has ended ({driver.returncode}): {lines[-1] if lines else 'it said nothing'}"

    async def _end(self, driver: trio.Process) -> None:
        """Close its input, at which it ends; by force where that takes long. Actors end with it, programs do not."""
        self._driver = self._wish = None
        with trio.CancelScope(shield=True):
            assert driver.stdin is not None  # noqa: S101  # opened as a pipe
            await driver.stdin.aclose()
            with trio.move_on_after(_END_GRACE):
                await driver.wait()
            if driver.returncode is None:
                driver.kill()
            await driver.wait()


def next_delay(delay: float, lived: float) -> float:
    """Seconds before the next node program, ``delay`` being those before the last one, which lived for ``lived``."""
    return _MIN_DELAY if lived >= _MAX_DELAY else min(max(2 * delay, _MIN_DELAY), _MAX_DELAY)


def taken_back(
    nodes: Mapping[str, RayNode], wanted: Mapping[str, int], groups: Mapping[str, GroupSettings]
) -> tuple[list[str], dict[str, int]]:
    """Which machines that were given back serve what is wanted, and what is wanted beside them."""
    back, left = [], {group: slots for group, slots in wanted.items() if slots > 0}
    for name, node in nodes.items():
        fitting = (group for group in left if _labels(group, groups).items() <= node.labels.items())
        group = next(fitting, None) if node.is_returned else None
        if group is not None:
            back.append(name)
            left[group] -= node.slots
            if left[group] <= 0:
                del left[group]
    return back, left


def bundles(
    nodes: Iterable[RayNode], wanted: Mapping[str, int], groups: Mapping[str, GroupSettings], max_nodes: int
) -> Iterable[dict[str, str]]:
    """The labels of each slot that Ray is to have in all: those of its machines now, and those that are wanted.

    None where nothing is wanted: machines may go.

    A further machine has one slot at least: of ``max_nodes`` (0 = any number) those are left that it does not have yet.
    """
    present = list(nodes) if wanted else []
    for node in present:
        yield from ({} for _ in range(node.slots))
    left = max(0, max_nodes - len(present)) if max_nodes else sum(wanted.values())
    for group, slots in wanted.items():
        yield from (_labels(group, groups) for _ in range(min(slots, left)))
        left -= min(slots, left)


def _labels(group: str, groups: Mapping[str, GroupSettings]) -> dict[str, str]:
    return groups[group].labels if group in groups else {}


def _is_for_ray(name: str) -> bool:
    return name in _ENVIRONMENT or name.startswith(_RAY_PREFIX)
