"""The supervisor's end of its nodes' links: who is let in, whose worker says what, when a lost node is fenced."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import trio

from cluster.engines.engine import DialTarget
from cluster.frames import FROM_NODE, FROM_STRANGER, Frame, FrameKind, LinkViolation
from cluster.invitations import Invitations
from cluster.link import Link
from cluster.messages import Beat, Bye, Hello, Welcome, decode_hello, decode_message
from cluster.nodes import NodeAdmission, NodeLife, NodeRoster
from cluster.proof import home_proof, is_same, node_proof
from cluster.remote_node import NodeOrigin, RemoteNode
from cluster.shared import SharedDirectory
from cluster.wire import LinkWire, WireClosed
from errors import PoolError
from pool.budget import TokenBucket
from pool.nodes import NodeStatus
from wire.procfs import boot_time

_HELLO_TIMEOUT = 5.0  # seconds
_MAX_STRANGERS = 16  # peers that are not known yet; a further one is turned away
_MAX_REFUSED = 32  # nodes whose refusal is remembered
_REFUSALS_AT_ONCE, _REFUSALS_A_SECOND = 20, 0.2  # that are reported
_NO_LABELS: Mapping[str, str] = MappingProxyType({})


class NodeWatcher(Protocol):
    """Who is to know which nodes take workers."""

    def joined(self, node: RemoteNode) -> None:
        """The node takes workers."""
        ...

    def drain(self, name: str, seconds: float | None, *, ends: bool) -> None:
        """A node is to be empty within ``seconds``; ``ends``: and to be dismissed then, and it may come later."""
        ...

    def idle(self, name: str) -> float:
        """Seconds for which a node that has joined has had no worker; 0 where it has some."""
        ...

    def lost(self, node: RemoteNode, reason: str) -> int:
        """A node that has joined is out of reach; what runs there runs until the fence. How many workers it had."""
        ...


class NodeDesk:
    """All nodes, by name; run ``run`` for as long as there may be any.

    Args:
        data_dir: the supervisor's, which is the nodes' too.
        lease, margin, silence: seconds; see ``cluster.nodes`` and ``Link.run``.
        watcher: hears of nodes that join and are lost.
        emit: called with an event's name and its facts: node_joined, node_refused, node_lost, node_fenced.
        read_token: the token of nodes that dial by themselves; "" = there is none. Raises PoolError.
        shared: where transcripts lie that are not sent; None: they are.

    Attributes:
        dial: where node programs dial; None where nowhere.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        lease: float,
        margin: float,
        silence: float,
        watcher: NodeWatcher,
        emit: Callable[[str, dict[str, Any]], None],
        read_token: Callable[[], str] = str,
        shared: SharedDirectory | None = None,
    ) -> None:
        self.dial: DialTarget | None = None
        self._data_dir = data_dir
        self._lease = lease
        self._silence = silence
        self._watcher = watcher
        self._emit = emit
        self._read_token = read_token
        self._shared = shared
        self._table = NodeRoster(lease=lease, margin=margin)
        self._invitations = Invitations()
        self._lives: dict[str, RemoteNode] = {}
        self._changed = trio.Event()
        self._strangers = 0
        self._refused: OrderedDict[str, tuple[str, str]] = OrderedDict()
        """Engine and reason of the nodes that were refused last."""
        self._refusals = TokenBucket(_REFUSALS_AT_ONCE, _REFUSALS_A_SECOND)

    # --- what engines do ----------------------------------------------------------------------------------------------

    def invite(self, name: str, *, engine: str = "", labels: Mapping[str, str] = _NO_LABELS, slots: int = 0) -> str:
        """See ``Desk``."""
        return self._invitations.invite(name, NodeOrigin(engine=engine, labels=labels, slots=slots))

    async def serve(
        self, wire: LinkWire, name: str, *, engine: str = "", labels: Mapping[str, str] = _NO_LABELS, slots: int = 0
    ) -> None:
        """See ``Desk``."""
        await self._serve(wire, name, NodeOrigin(engine=engine, labels=labels, slots=slots))

    async def serve_dialled(self, wire: LinkWire) -> None:
        """Serve a link that a node has opened, until it ends: its secret or its proof says whether it may."""
        await self._serve(wire, "", None)

    def draining(self, name: str, deadline: float | None) -> None:
        """See ``Desk``."""
        self._watcher.drain(name, deadline, ends=True)

    def failed(self, name: str, *, engine: str, reason: str) -> None:
        """See ``Desk``."""
        if self.linked(name) is None:
            self._note_refusal(name, engine, reason)

    def idle(self, name: str) -> float:
        """See ``Desk``."""
        return 0.0 if self.linked(name) is None else self._watcher.idle(name)

    def gone(self, name: str, reason: str) -> None:
        """See ``Desk``."""
        node = self.linked(name)
        if node is not None:
            node.end_reason = reason
            node.link.close()

    def dismiss(self, name: str, reason: str) -> None:
        """Send a node away, for good, on which nothing is left."""
        node = self.linked(name)
        if node is not None:
            node.is_dismissed = True
            self._invitations.revoke(name)
            node.link.send_message(FrameKind.BYE, Bye(reason))

    # --- figures ------------------------------------------------------------------------------------------------------

    def linked(self, name: str) -> RemoteNode | None:
        """The node of this name, if it is linked and ready."""
        return next(
            (node for node in self._lives.values() if node.name == name and node.is_linked and node.is_ready), None
        )

    async def wait_linked(self, name: str) -> RemoteNode:
        """Wait until a node is linked."""
        while (node := self.linked(name)) is None:
            await self.wait_changed()
        return node

    async def wait_changed(self) -> None:
        """Wait until a node is linked, or lost."""
        await self._changed.wait()

    def absent(self) -> Iterator[NodeStatus]:
        """Nodes that were lost and are not fenced, and those that were refused last."""
        now = boot_time()
        lost = [node for node in self._lives.values() if not node.is_linked]
        for node in lost:
            left = max(0.0, node.life.fenced_at - now)
            yield NodeStatus(
                name=node.name, group=node.group, engine=node.engine, state="lost", until=left, note=node.end_reason
            )
        for name, (engine, reason) in self._refused.items():
            if not name:
                continue  # a stranger that has not even said its name is no node
            yield NodeStatus(name=name, engine=engine, state="refused", note=reason)

    # --- links --------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Fence the nodes that were lost, each in its time, until cancelled."""
        while True:
            for life in self._table.fence(boot_time()):
                self._fence(life)
            due, changed = self._table.next_fence(), self._changed
            with trio.move_on_after(float("inf") if due is None else max(0.0, due - boot_time())):
                await changed.wait()

    async def _serve(self, wire: LinkWire, name: str, origin: NodeOrigin | None) -> None:
        node: RemoteNode | None = None
        reason, link = "", Link(wire)
        try:
            node = self._admit(await self._meet(wire, link, is_known=origin is not None), link, name, origin)
            if node is not None:
                await self._run_link(node, link)
        except (WireClosed, LinkViolation) as exc:
            reason = exc.message
            if node is None and isinstance(exc, LinkViolation):
                link.send_message(FrameKind.BYE, Bye(reason))  # so that its program can say what is wrong
        finally:
            wire.close()
            if node is not None:
                self._end(node, reason)
            elif reason:
                self._note_refusal(name, "" if origin is None else origin.engine, reason)

    async def _meet(self, wire: LinkWire, link: Link, *, is_known: bool) -> Hello:
        """What a peer says of itself; one that is known by the way it came is no stranger.

        Raises WireClosed, LinkViolation.
        """
        if not is_known and self._strangers >= _MAX_STRANGERS:
            raise WireClosed("too many peers at once that have not said who they are")
        self._strangers += not is_known
        try:
            with trio.move_on_after(_HELLO_TIMEOUT):
                await wire.shake_hands()
                return decode_hello((await link.receive_first(FROM_STRANGER, _HELLO_TIMEOUT)).payload)
        finally:
            self._strangers -= not is_known
        raise WireClosed(f"it did not say who it is within {_HELLO_TIMEOUT:g} s")

    def _admit(self, hello: Hello, link: Link, name: str, origin: NodeOrigin | None) -> RemoteNode | None:
        """The node, welcome; None: it was refused."""
        if origin is not None and name != hello.name:
            self._refuse(link, name, origin.engine, Bye(f"it calls itself {hello.name}"))
            return None
        token = ""
        if origin is None:
            try:
                token = self._read_token() if hello.proof else ""
            except PoolError as exc:
                self._refuse(link, hello.name, "join", Bye(exc.message, _HELLO_TIMEOUT))
                return None
            origin = self._origin_of(hello, token)
        if origin is None:
            self._refuse(link, hello.name, "", Bye("its name, secret or token is not the right one"))
            return None
        if hello.instance in self._lives:  # which the node chooses
            self._refuse(link, hello.name, origin.engine, Bye("its instance was used before"))
            return None
        answer = self._table.hello(hello, boot_time())
        if not isinstance(answer, NodeAdmission):
            self._refuse(link, hello.name, origin.engine, Bye(answer.reason, answer.retry_after))
            return None
        if answer.fenced is not None:
            if (before := self._lives.get(answer.fenced.instance)) is not None:
                self._end(before, "it came back over another link")  # which may be noticed there later
            self._fence(answer.fenced)
        life = self._table.life_of(hello.name)
        if life is None:
            raise LinkViolation(f"node {hello.name} has no life")
        node = self._lives[hello.instance] = RemoteNode(hello, link, life, self._data_dir / "sessions", origin)
        proof = home_proof(token, self._fingerprint, hello.instance) if token else ""
        node.is_shared = self._shared is not None
        welcome = Welcome(lease=self._lease, data_dir=str(self._data_dir), proof=proof, shared=node.is_shared)
        link.send_message(FrameKind.WELCOME, welcome)
        return node

    def _origin_of(self, hello: Hello, token: str) -> NodeOrigin | None:
        if self._invitations.is_invited(hello.name):
            return self._invitations.origin_of(hello.name, hello.secret)
        is_known = token and is_same(node_proof(token, self._fingerprint, hello.instance), hello.proof)
        return NodeOrigin(engine="join") if is_known else None

    @property
    def _fingerprint(self) -> str:
        return "" if self.dial is None else self.dial.fingerprint

    def _refuse(self, link: Link, name: str, engine: str, why: Bye) -> None:
        link.send_message(FrameKind.BYE, why)
        self._note_refusal(name, engine, why.reason)

    def _note_refusal(self, name: str, engine: str, reason: str) -> None:
        known = self._refused.pop(name, None)
        self._refused[name] = (engine, reason)
        if len(self._refused) > _MAX_REFUSED:
            self._refused.popitem(last=False)
        now = trio.current_time()
        if known != (engine, reason) and self._refusals.has_token(now):
            self._refusals.consume(now)
            self._emit("node_refused", {"node": name, "reason": reason})

    async def _run_link(self, node: RemoteNode, link: Link) -> None:
        def handle(frame: Frame) -> None:
            if frame.kind is FrameKind.PING:
                beat = decode_message(frame.payload, Beat)
                self._table.answered(node.life, boot_time())
                link.reply(FrameKind.PONG, Beat(beat.seq))
                if not node.is_ready:  # it has come so far that it can start workers
                    self._check_shared(link, beat.proof)
                    self._join(node)
            else:
                node.handle(frame)

        await link.run(FROM_NODE, self._silence, handle)

    def _check_shared(self, link: Link, proof: str) -> None:
        if self._shared is not None and not self._shared.is_seen(proof):
            text = f"it does not see the supervisor's {self._data_dir} (cluster.transcripts is shared)"
            link.send_message(FrameKind.BYE, Bye(text, _HELLO_TIMEOUT))
            raise WireClosed(text)

    def _join(self, node: RemoteNode) -> None:
        node.is_ready = True
        self._invitations.use(node.name)
        self._refused.pop(node.name, None)
        self._watcher.joined(node)
        facts = {"node": node.name, "group": node.group, "engine": node.engine, "slots": node.slots}
        self._emit("node_joined", facts)
        self._notify()

    def _end(self, node: RemoteNode, reason: str) -> None:
        """The link has ended; without a reason because everything ends. Once: another link may have ended it before."""
        if not node.is_linked:
            return
        node.end_reason = node.end_reason or reason
        self._table.unlinked(node.life)
        node.lost(node.end_reason)
        if node.is_ready:
            workers = self._watcher.lost(node, node.end_reason)
            if reason and not node.is_dismissed:
                self._emit("node_lost", {"node": node.name, "reason": node.end_reason, "workers": workers})
        elif reason:
            self._note_refusal(node.name, node.engine, reason)
        if node.is_dismissed or node.has_swept:
            self._table.swept(node.life)
            self._fence(node.life, silently=node.is_dismissed)
        self._notify()

    def _fence(self, life: NodeLife, *, silently: bool = False) -> None:
        node = self._lives.pop(life.instance, None)
        if node is not None:
            node.link.close()
            node.fenced()
            if node.is_ready and not silently:
                self._emit("node_fenced", {"node": life.name})

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
