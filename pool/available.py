"""The available workers, found by what they can do and by how long ago they were used."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

from pool.records import ProfileRecord, WorkerRecord
from profiles.matching import MatchLevel

EvictionOrder = Callable[[Iterable[WorkerRecord]], Iterator[WorkerRecord]]
"""Takes the pool's workers as its collections keep them, the one used longest ago first; yields the first to stop."""


def least_recently_used(workers: Iterable[WorkerRecord]) -> Iterator[WorkerRecord]:
    """The worker whose last turn is longest ago goes first; those go last whose conversation would be lost to them."""
    kept: list[WorkerRecord] = []
    for worker in workers:
        if worker.is_irreplaceable:
            kept.append(worker)
        else:
            yield worker
    yield from kept


EVICTION_ORDER: EvictionOrder = least_recently_used
"""The order in which workers stop where others need their places."""


class AvailableIndex:
    """Idle workers: *unbound* ones, and *quiescent* ones, bound to a quiescent session.

    Every lookup costs O(kinds of the hard group) at worst, and nothing where the group has no such worker.
    """

    __slots__ = ("lru",)

    def __init__(self) -> None:
        self.lru: OrderedDict[WorkerRecord, None] = OrderedDict()
        """All of them, least recently used first."""

    def __len__(self) -> int:
        return len(self.lru)

    def add(self, worker: WorkerRecord) -> None:
        """Add a worker that has just become idle; a drifted one can be evicted, but matches no waiter."""
        kind = worker.profile_record
        self.lru[worker] = None
        kind.agent.available[worker] = None
        if worker.drifted:
            return
        if worker.session is None:
            kind.unbound[worker] = None
            kind.group.unbound += 1
        else:
            kind.quiescent[worker] = None
            kind.group.quiescent += 1

    def discard(self, worker: WorkerRecord) -> None:
        """Remove a worker, if it is here, before its session changes."""
        if worker in self.lru:
            del self.lru[worker]
            del worker.profile_record.agent.available[worker]
            self.withdraw(worker)

    def withdraw(self, worker: WorkerRecord) -> None:
        """Let a worker match no waiter any more; it keeps its place in the order of eviction."""
        kind = worker.profile_record
        if worker in kind.unbound:
            del kind.unbound[worker]
            kind.group.unbound -= 1
        elif worker in kind.quiescent:
            del kind.quiescent[worker]
            kind.group.quiescent -= 1

    def unbind(self, worker: WorkerRecord) -> None:
        """Turn a quiet worker into a free one; it keeps its age, and is the coldest of the free ones."""
        kind = worker.profile_record
        if worker not in kind.quiescent:
            return
        del kind.quiescent[worker]
        kind.group.quiescent -= 1
        kind.unbound[worker] = None
        kind.unbound.move_to_end(worker, last=False)
        kind.group.unbound += 1

    def match_unbound(self, wanted: ProfileRecord) -> WorkerRecord | None:
        """The best free worker: exact, hard, superset with the fewest surplus resources; then most recently used."""
        if wanted.unbound:
            return next(reversed(wanted.unbound))
        if not wanted.group.unbound:
            return None
        return _best_match(wanted, lambda kind: next(reversed(kind.unbound), None), newest=True)

    def match_quiescent(self, wanted: ProfileRecord) -> WorkerRecord | None:
        """The best quiet worker: by level and surplus in the same order, then least recently used."""
        if wanted.quiescent:
            return next(iter(wanted.quiescent))
        if not wanted.group.quiescent:
            return None
        return _best_match(wanted, lambda kind: next(iter(kind.quiescent), None), newest=False)


def _best_match(
    wanted: ProfileRecord, pick: Callable[[ProfileRecord], WorkerRecord | None], *, newest: bool
) -> WorkerRecord | None:
    """The picked worker of the group's kind that fits best; ties go to the newest or the oldest in use."""
    best: tuple[MatchLevel, int, float] | None = None
    found: WorkerRecord | None = None
    for kind in wanted.group.profiles.values():
        worker = pick(kind)
        if worker is None or not kind.serves(wanted):
            continue
        age = -worker.idle_since if newest else worker.idle_since
        score = (kind.match_level(wanted), kind.resource_count - wanted.resource_count, age)
        if best is None or score < best:
            best, found = score, worker
    return found
