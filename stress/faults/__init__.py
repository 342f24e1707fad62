"""Faults that are injected while the load goes on, by name."""

from errors import UsageError
from stress.faults.base import Fault, FaultEvent, FaultSetup, FaultTarget
from stress.faults.peers import FaultyOutput, FrontEndKills, UnstoppableWorkers, WorkerKills
from stress.faults.supervisor import ClockAndPidFaults, ResourceShortages, SupervisorKills

__all__ = ["Fault", "FaultEvent", "FaultSetup", "FaultTarget", "faults_of"]

_FAULTS: tuple[type[Fault], ...] = (
    *(
        WorkerKills,
        FaultyOutput,
        UnstoppableWorkers,
        ResourceShortages,
        SupervisorKills,
        FrontEndKills,
        ClockAndPidFaults,
    ),
)


def faults_of(names: tuple[str, ...]) -> list[Fault]:
    """A fault for each name. Raises UsageError for one that there is not."""
    kinds = {kind.name: kind for kind in _FAULTS}
    unknown = [name for name in names if name not in kinds]
    if unknown:
        raise UsageError(f"there is no fault {unknown[0]!r}; there are {', '.join(sorted(kinds))}")
    return [kinds[name]() for name in names]
