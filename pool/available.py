"""The available workers, found by what they can do and by how long ago they were used."""

from collections import OrderedDict
from collections.abc import Callable

from pool.records import Kind, Worker
from profiles.matching import MatchLevel


class AvailableIndex:
    """Idle workers: *free* ones are bound to nobody, *quiet* ones to a quiescent session.

    Every lookup costs O(kinds of the hard group) at worst, and nothing where the group has no such worker.
    """

    __slots__ = ("free", "lru")

    def __init__(self) -> None:
        self.lru: OrderedDict[Worker, None] = OrderedDict()
        """All of them, least recently used first."""
        self.free = 0
        """How many of them are bound to nobody."""

    def __contains__(self, worker: Worker) -> bool:
        return worker in self.lru

    def __len__(self) -> int:
        return len(self.lru)

    def add(self, worker: Worker) -> None:
        """Add a worker that has just become idle; a drifted one can be evicted, but matches nobody."""
        kind = worker.kind
        self.lru[worker] = None
        kind.agent.available[worker] = None
        self.free += worker.session is None
        if worker.drifted:
            return
        if worker.session is None:
            kind.free[worker] = None
            kind.group.free += 1
        else:
            kind.quiet[worker] = None
            kind.group.quiet += 1

    def discard(self, worker: Worker) -> None:
        """Remove a worker, if it is here, before its session changes."""
        if worker not in self.lru:
            return
        kind = worker.kind
        del self.lru[worker]
        del kind.agent.available[worker]
        self.free -= worker.session is None
        if worker in kind.free:
            del kind.free[worker]
            kind.group.free -= 1
        elif worker in kind.quiet:
            del kind.quiet[worker]
            kind.group.quiet -= 1

    def unbind(self, worker: Worker) -> None:
        """Turn a quiet worker into a free one; it keeps its age, and is the coldest of the free ones."""
        kind = worker.kind
        self.free += 1
        if worker not in kind.quiet:
            return
        del kind.quiet[worker]
        kind.group.quiet -= 1
        kind.free[worker] = None
        kind.free.move_to_end(worker, last=False)
        kind.group.free += 1

    def match_free(self, wanted: Kind) -> Worker | None:
        """The best free worker: exact, hard, superset with the fewest surplus resources; then most recently used."""
        if wanted.free:
            return next(reversed(wanted.free))
        if not wanted.group.free:
            return None
        return _closest(wanted, _warmest_free, newest=True)

    def match_quiet(self, wanted: Kind) -> Worker | None:
        """The best quiet worker: by level and surplus in the same order, then least recently used."""
        if wanted.quiet:
            return next(iter(wanted.quiet))
        if not wanted.group.quiet:
            return None
        return _closest(wanted, _coldest_quiet, newest=False)


def _warmest_free(kind: Kind) -> Worker | None:
    return next(reversed(kind.free), None)


def _coldest_quiet(kind: Kind) -> Worker | None:
    return next(iter(kind.quiet), None)


def _closest(wanted: Kind, pick: Callable[[Kind], Worker | None], *, newest: bool) -> Worker | None:
    """The picked worker of the group's kind that fits best; ties go to the newest or the oldest in use."""
    best: tuple[MatchLevel, int, float] | None = None
    found: Worker | None = None
    for kind in wanted.group.kinds.values():
        worker = pick(kind)
        if worker is None or not kind.serves(wanted):
            continue
        age = -worker.idle_since if newest else worker.idle_since
        score = (kind.level(wanted), kind.size - wanted.size, age)
        if best is None or score < best:
            best, found = score, worker
    return found
