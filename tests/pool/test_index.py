import pytest

from pool.available import AvailableIndex
from pool.places import Place
from pool.records import AgentWorkers, HardGroup, ProfileRecord, SessionRecord, WorkerRecord
from profiles.profile import CapabilityProfile
from tests.pool.transcript import profile_of
from tests.pool.world import make_profile


class Shelf:
    """An index with workers of one agent, added in the order of their use."""

    def __init__(self) -> None:
        self.index = AvailableIndex()
        self.agent = AgentWorkers("main", Place("", 9))
        self.groups: dict[str, HardGroup] = {}
        self.kinds: dict[str, ProfileRecord] = {}
        self.count = 0

    def kind(self, profile: CapabilityProfile) -> ProfileRecord:
        if profile.signature not in self.kinds:
            group = self.groups.setdefault(profile.hard_signature, HardGroup())
            kind = ProfileRecord(profile, group, self.agent)
            self.kinds[profile.signature] = group.profiles[profile.signature] = kind
        return self.kinds[profile.signature]

    def add(self, profile: CapabilityProfile, session: str = "") -> WorkerRecord:
        self.count += 1
        worker = WorkerRecord(f"w{self.count}", self.kind(profile), 0.0)
        worker.idle_since = float(self.count)
        worker.session = SessionRecord(session) if session else None
        self.index.add(worker)
        return worker

    def free(self, profile: CapabilityProfile) -> WorkerRecord | None:
        return self.index.match_unbound(self.kind(profile))


FREE = {
    "an exact free worker beats one of another model, and that a superset": (
        *("a+x+y a/other+x a+x elsewhere+x", "a+x", "w3 w2 w1"),
    ),
    "a worker that lacks a resource does not match": ("a+x", "a+x+y", ""),
    "among supersets the fewest surplus resources win": ("a+x+1+2+3 a+x+1 a+x+1+2", "a+x", "w2 w3 w1"),
    "among equals the most recently used free worker is taken": ("a a", "a", "w2 w1"),
    "among those of other models too": ("a/one a/two", "a/three", "w2 w1"),
    "who wants the default is not served by a worker started with something else": ("a/set", "a/-", ""),
    "a worker of the default serves another model": ("a/-", "a/other", "w1"),
}
QUIET = {
    "among quiet ones the least recently used is rebound": ("a/one@s a/two@t a/two", "a/three", "w1 w2"),
    "an exact quiet worker comes before those of other models": (
        *("a/one@s a/two@t a/three@u a/three@v", "a/three", "w3 w4 w1 w2"),
    ),
}


@pytest.mark.parametrize(("workers", "wanted", "order"), [*FREE.values(), *QUIET.values()], ids=[*FREE, *QUIET])
def test_workers_are_matched_in_their_order(workers: str, wanted: str, order: str) -> None:
    """Workers in the order of their use, as PROFILE or PROFILE@SESSION."""
    shelf = Shelf()
    for worker in workers.split():
        profile, _, session = worker.partition("@")
        shelf.add(profile_of(profile), session)
    match = shelf.index.match_quiescent if "@" in workers else shelf.index.match_unbound
    taken = []
    while (found := match(shelf.kind(profile_of(wanted)))) is not None:
        taken.append(found.id)
        shelf.index.discard(found)
    assert taken == order.split()


def test_a_changed_default_cannot_be_restored_so_such_a_worker_matches_nobody_else() -> None:
    shelf = Shelf()
    worker = WorkerRecord("w1", shelf.kind(make_profile(model=None)), 0.0)
    worker.soft = make_profile(model="set").soft
    shelf.index.add(worker)
    assert shelf.free(make_profile(model=None)) is None
    assert shelf.free(make_profile(model="set")) is None
    assert list(shelf.index.lru) == [worker]
    shelf.index.discard(worker)
    assert not len(shelf.index)


def test_an_unbound_worker_keeps_its_age_and_is_the_coldest_of_the_free_ones() -> None:
    shelf = Shelf()
    parked = shelf.add(make_profile(), session="a")
    fresh = shelf.add(make_profile())
    shelf.index.unbind(parked)
    parked.session = None
    assert list(shelf.index.lru) == [parked, fresh]
    assert shelf.free(make_profile()) is fresh
    assert shelf.index.match_quiescent(shelf.kind(make_profile())) is None
    shelf.index.discard(parked)
    shelf.index.discard(parked)
    assert len(shelf.index) == 1
