"""Which nodes there are, and when nothing of one that was lost can run any more. Pure.

All times are of the supervisor's ``CLOCK_BOOTTIME``, in seconds.
"""

import msgspec

from cluster.messages import Hello


class NodeLife(msgspec.Struct, kw_only=True):
    """One link of a node, from its HELLO until nothing that it started can run: until it is *fenced*.

    ``fenced_at``: when its lease has surely ended, if nothing else is heard of it.
    """

    name: str
    machine: str
    boot: str
    instance: str
    fenced_at: float
    is_linked: bool = True


class NodeAdmission(msgspec.Struct, frozen=True):
    """The node is welcome. ``fenced``: the life before it, which is over."""

    fenced: NodeLife | None = None


class NodeRefusal(msgspec.Struct, frozen=True):
    """The node is not welcome; ``retry_after``: seconds after which it may be, None = as it is, never."""

    reason: str
    retry_after: float | None = None


class NodeRoster:
    """The last life of each node that may not be over.

    A node's name has one life at a time: while processes of one may run, no second link of that name is taken, and no
    session that was there may move. A life is over when the node says in its next HELLO that it has swept that
    instance, when the same machine was booted since, or when lease and ``margin`` have passed since it was last
    answered.
    """

    def __init__(self, *, lease: float, margin: float) -> None:
        self._until_fenced = lease + margin
        self._lives: dict[str, NodeLife] = {}

    def life_of(self, name: str) -> NodeLife | None:
        """The life of a node that may not be over."""
        return self._lives.get(name)

    def hello(self, hello: Hello, now: float) -> NodeAdmission | NodeRefusal:
        """A node presents itself; if it is admitted, WELCOME is sent in this step."""
        last = self._lives.get(hello.name)
        if last is not None:
            if hello.instance == last.instance:
                return NodeRefusal(f"the instance of node {hello.name} was used before")
            if not self._is_over(last, hello, now):
                wait = max(0.0, last.fenced_at - now)
                what = "is linked" if last.is_linked else "may still run workers"
                return NodeRefusal(f"node {hello.name} {what} since an earlier link", wait)
            last.is_linked = False
        self._lives[hello.name] = NodeLife(
            name=hello.name,
            machine=hello.machine,
            boot=hello.boot,
            instance=hello.instance,
            fenced_at=now + self._until_fenced,
        )
        return NodeAdmission(last)

    def _is_over(self, last: NodeLife, hello: Hello, now: float) -> bool:
        if last.instance in hello.swept:
            return True
        if hello.boot != last.boot and hello.machine and hello.machine == last.machine:
            return True  # of another machine, which took the name, the first may be alive
        return not last.is_linked and now >= last.fenced_at

    def answered(self, life: NodeLife, now: float) -> None:
        """A ping of the node is answered in this step, which extends its lease."""
        life.fenced_at = max(life.fenced_at, now + self._until_fenced)

    def unlinked(self, life: NodeLife) -> None:
        """The node's link has ended: nothing extends its lease any more."""
        life.is_linked = False

    def fence(self, now: float) -> list[NodeLife]:
        """The lost lives that are over by now; they are forgotten."""
        over = [life for life in self._lives.values() if not life.is_linked and now >= life.fenced_at]
        for life in over:
            del self._lives[life.name]
        return over

    def swept(self, life: NodeLife) -> None:
        """The node has ended the link in order, with nothing left running."""
        if self._lives.get(life.name) is life:
            del self._lives[life.name]

    def next_fence(self) -> float | None:
        """When ``fence`` has something to say next."""
        return min((life.fenced_at for life in self._lives.values() if not life.is_linked), default=None)
