"""Which workers are started for no request: what is to be kept warm, and what was lost."""

from collections.abc import Iterable

from pool.records import ProfileRecord
from pool.spawning import Spawner
from pool.state import PoolState
from pool.transitions import PoolMode
from profiles.profile import CapabilityProfile


class Prewarmer:
    """Runs after the scheduler, so that it only ever uses room that no waiter wants."""

    def __init__(self, state: PoolState, starts: Spawner) -> None:
        self._state = state
        self._spawner = starts

    def set_targets(self, targets: tuple[tuple[CapabilityProfile, int], ...]) -> None:
        """Replace the list of profiles to keep warm."""
        state = self._state
        old = state.prewarm_targets
        for kind in old:
            kind.prewarm_target = 0
        for profile, count in targets:
            state.profile_record(profile).prewarm_target = count
        state.prewarm_targets = tuple({state.profile_record(profile): None for profile, count in targets if count > 0})
        for kind in old:
            state.prune(kind)

    def drop(self, kinds: Iterable[ProfileRecord]) -> None:
        """Neither keep these kinds warm nor start again what was lost of them."""
        state = self._state
        for kind in kinds:
            kind.prewarm_target = 0
            self._spawner.add_restarts(kind, -kind.pending_restarts)
            state.prune(kind)
        state.prewarm_targets = tuple(kind for kind in state.prewarm_targets if kind.prewarm_target)

    def run(self) -> None:
        """Start what is owed and what is missing, as far as limits and budgets allow."""
        state = self._state
        if state.mode is not PoolMode.RUNNING:
            return
        if state.pending_restarts and self._spawner.slots_after_stops <= 0:
            self._spawner.cancel_restarts()
        if len(state.workers) >= state.places.limit:
            return
        for kind in list(state.pending_restarts):
            if kind.agent.place.is_full:
                self._spawner.add_restarts(kind, -kind.pending_restarts)
                state.prune(kind)
            while kind.pending_restarts and self._spawner.blocking_condition(kind) is None:
                self._spawner.spawn(kind)
        for kind in state.prewarm_targets:
            missing = kind.prewarm_target - len(kind.unbound) - len(kind.starts_unclaimed)
            while missing > 0 and self._spawner.blocking_condition(kind) is None:
                self._spawner.spawn(kind)
                missing -= 1
