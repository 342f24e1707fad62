"""Workers for nobody in particular: what was lost is started again, and what is to be kept warm is kept warm."""

from collections.abc import Iterable

from pool.records import Kind
from pool.starts import Starts
from pool.state import State
from pool.tables import Mode
from profiles.profile import CapabilityProfile

__all__ = ["Upkeep"]


class Upkeep:
    """Runs after the pump, so that it only ever uses room that no waiter wants."""

    def __init__(self, state: State, starts: Starts) -> None:
        self._state = state
        self._starts = starts

    def set_targets(self, targets: tuple[tuple[CapabilityProfile, int], ...]) -> None:
        """Replace the list of profiles to keep warm."""
        state = self._state
        old = state.targets
        for kind in old:
            kind.target = 0
        for profile, count in targets:
            state.kind_of(profile).target = count
        state.targets = tuple({state.kind_of(profile): None for profile, count in targets if count > 0})
        for kind in old:
            state.prune(kind)

    def give_up(self, kinds: Iterable[Kind]) -> None:
        """Neither keep these kinds warm nor start again what was lost of them."""
        state = self._state
        for kind in kinds:
            kind.target = 0
            self._starts.forgive_kind(kind)
            state.prune(kind)
        state.targets = tuple(kind for kind in state.targets if kind.target)

    def run(self) -> None:
        """Start what is owed and what is missing, as far as limits and budgets allow."""
        state = self._state
        if not (state.owed or state.targets) or state.mode is not Mode.RUNNING:
            return
        if self._starts.slots_coming <= 0:
            self._starts.forgive()
        if len(state.workers) >= state.settings.max:
            return
        for kind in list(state.owed):
            while kind.owed and self._starts.gate_for(kind) is None:
                self._starts.spawn(kind)
        for kind in state.targets:
            missing = kind.target - len(kind.free) - _spare_starts(kind)
            while missing > 0 and self._starts.gate_for(kind) is None:
                self._starts.spawn(kind)
                missing -= 1


def _spare_starts(kind: Kind) -> int:
    """Starting workers of the kind that nobody waits for."""
    return sum(worker.kind is kind and worker.covers is None for worker in kind.group.starting)
