from pool.available import AvailableIndex
from pool.records import AgentWorkers, HardGroup, ProfileRecord, SessionRecord, WorkerRecord
from profiles.profile import CapabilityProfile
from tests.pool.world import make_profile


class Shelf:
    """An index with workers of one agent, added in the order of their use."""

    def __init__(self) -> None:
        self.index = AvailableIndex()
        self.agent = AgentWorkers("main")
        self.groups: dict[str, HardGroup] = {}
        self.kinds: dict[str, ProfileRecord] = {}
        self.count = 0

    def kind(self, profile: CapabilityProfile) -> ProfileRecord:
        if profile.signature not in self.kinds:
            group = self.groups.setdefault(profile.hard_signature, HardGroup())
            kind = ProfileRecord(profile, group, self.agent)
            self.kinds[profile.signature] = group.profiles[profile.signature] = kind
        return self.kinds[profile.signature]

    def add(self, profile: CapabilityProfile, session: str | None = None) -> WorkerRecord:
        self.count += 1
        worker = WorkerRecord(f"w{self.count}", self.kind(profile), 0.0)
        worker.idle_since = float(self.count)
        worker.session = SessionRecord(session) if session else None
        self.index.add(worker)
        return worker

    def free(self, profile: CapabilityProfile) -> WorkerRecord | None:
        return self.index.match_unbound(self.kind(profile))

    def quiet(self, profile: CapabilityProfile) -> WorkerRecord | None:
        return self.index.match_quiescent(self.kind(profile))


def test_an_exact_free_worker_beats_a_hard_one_and_that_a_superset() -> None:
    shelf = Shelf()
    superset = shelf.add(make_profile(skills=("x", "y")))
    hard = shelf.add(make_profile(model="other", skills=("x",)))
    exact = shelf.add(make_profile(skills=("x",)))
    shelf.add(make_profile("elsewhere", skills=("x",)))
    wanted = make_profile(skills=("x",))
    for expected in (exact, hard, superset):
        assert shelf.free(wanted) is expected
        shelf.index.discard(expected)
    assert shelf.free(wanted) is None


def test_a_worker_that_lacks_a_resource_does_not_match() -> None:
    shelf = Shelf()
    shelf.add(make_profile(skills=("x",)))
    assert shelf.free(make_profile(skills=("x", "y"))) is None


def test_among_supersets_the_fewest_surplus_resources_win() -> None:
    shelf = Shelf()
    shelf.add(make_profile(skills=("x", "a", "b", "c")))
    slim = shelf.add(make_profile(skills=("x", "a")))
    shelf.add(make_profile(skills=("x", "a", "b")))
    assert shelf.free(make_profile(skills=("x",))) is slim


def test_among_equals_the_most_recently_used_free_worker_is_taken() -> None:
    shelf = Shelf()
    shelf.add(make_profile())
    warm = shelf.add(make_profile())
    assert shelf.free(make_profile()) is warm
    shelf = Shelf()
    shelf.add(make_profile(model="one"))
    warm = shelf.add(make_profile(model="two"))
    assert shelf.free(make_profile(model="three")) is warm


def test_among_quiet_ones_the_least_recently_used_is_rebound() -> None:
    shelf = Shelf()
    cold = shelf.add(make_profile(model="one"), session="a")
    shelf.add(make_profile(model="two"), session="b")
    shelf.add(make_profile(model="two"))
    assert shelf.quiet(make_profile(model="three")) is cold
    exact = shelf.add(make_profile(model="three"), session="c")
    shelf.add(make_profile(model="three"), session="d")
    assert shelf.quiet(make_profile(model="three")) is exact


def test_a_changed_default_cannot_be_restored_so_such_a_worker_matches_nobody_else() -> None:
    shelf = Shelf()
    worker = WorkerRecord("w1", shelf.kind(make_profile(model=None)), 0.0)
    worker.soft = make_profile(model="set").soft
    shelf.index.add(worker)
    assert shelf.free(make_profile(model=None)) is None
    assert shelf.free(make_profile(model="set")) is None
    assert list(shelf.index.lru) == [worker]
    assert shelf.index.unbound == 1
    shelf.index.discard(worker)
    assert shelf.index.unbound == 0


def test_a_profile_that_wants_the_default_is_not_served_by_a_worker_started_with_something_else() -> None:
    shelf = Shelf()
    shelf.add(make_profile(model="set"))
    assert shelf.free(make_profile(model=None)) is None
    shelf.add(make_profile(model=None))
    assert shelf.free(make_profile(model="other")) is not None


def test_an_unbound_worker_keeps_its_age_and_is_the_coldest_of_the_free_ones() -> None:
    shelf = Shelf()
    parked = shelf.add(make_profile(), session="a")
    fresh = shelf.add(make_profile())
    shelf.index.unbind(parked)
    parked.session = None
    assert list(shelf.index.lru) == [parked, fresh]
    assert shelf.free(make_profile()) is fresh
    assert shelf.quiet(make_profile()) is None
    assert shelf.index.unbound == 2
    shelf.index.discard(parked)
    shelf.index.discard(parked)
    assert len(shelf.index) == 1
