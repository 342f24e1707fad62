"""What a node over ssh answers: whether its program runs there, of which version, with the data directory of here."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import trio

from cluster.engines.ssh import run_ssh
from cluster.engines.ssh_command import SshNode
from cluster.frames import FROM_NODE, FROM_STRANGER, FrameKind, LinkViolation
from cluster.link import Link
from cluster.messages import Bye, Hello, Welcome, decode_hello, decode_message
from cluster.settings import NodeSettings
from cluster.wire import LinkWire, WireClosed

_NAME = "doctor.{}"  # not the node's own, which may run
_LEASE = 30.0
_TIMEOUT = 10.0  # seconds for each answer
_AT_ONCE = 16


class NodeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has answered: its HELLO, within ``seconds``, or the ``problem`` and what to do about it."""

    hello: Hello | None = None
    seconds: float = 0.0
    problem: str = ""
    fix: str = ""


async def probe_nodes(nodes: Mapping[str, NodeSettings], data_dir: Path) -> dict[str, NodeAnswer]:
    """Start the program of each node once, up to where it would start workers. It makes the data directory there."""
    found: dict[str, NodeAnswer] = {}
    room = trio.CapacityLimiter(_AT_ONCE)

    async def probe(node: SshNode) -> None:
        async with room:
            began = trio.current_time()

            async def ask(wire: LinkWire) -> None:
                found[node.name] = await _ask(wire, data_dir, began)

            await run_ssh(node, _NAME.format(node.name)[:64], ask)

    async with trio.open_nursery() as nursery:
        for name, settings in nodes.items():
            nursery.start_soon(probe, SshNode(name, settings))
    return found


async def _ask(wire: LinkWire, data_dir: Path, began: float) -> NodeAnswer:
    link = Link(wire)
    hello = None
    try:
        hello = decode_hello((await link.receive_first(FROM_STRANGER, _TIMEOUT)).payload)
        link.send_message(FrameKind.WELCOME, Welcome(lease=_LEASE, data_dir=str(data_dir)))
        first = await link.receive_first(FROM_NODE, _TIMEOUT)
        if first.kind is FrameKind.BYE:
            return NodeAnswer(hello=hello, problem=decode_message(first.payload, Bye).reason)
    except (WireClosed, LinkViolation) as exc:
        fix = str(exc.details.get("fix", ""))
        return NodeAnswer(hello=hello, problem=exc.message.removesuffix(f"; {fix}"), fix=fix)
    return NodeAnswer(hello=hello, seconds=trio.current_time() - began)
