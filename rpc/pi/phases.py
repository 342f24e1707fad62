"""Where a run of pi is, as far as its output has told: an enum and a transition table.

pi says ``agent_end`` also before a retry and before a compaction that goes on with the run; a prompt is accepted
before it runs, or is handled without a run. The run is over only when the table is back at ``IDLE``.
"""

from enum import Enum, auto

__all__ = ["Phase", "Sign", "after"]


class Phase(Enum):
    """Where the run is."""

    IDLE = auto()
    """No run."""
    STARTING = auto()
    """A prompt is on its way, or accepted, and no ``agent_start`` has come."""
    RUNNING = auto()
    """Between ``agent_start`` and ``agent_end``."""
    ENDING = auto()
    """After ``agent_end``; a question is out whose answer comes after anything that would continue the run."""
    RESTARTING = auto()
    """pi waits before a retry, or is about to continue after a compaction; ``agent_start`` will come."""
    COMPACTING = auto()
    """pi shortens the conversation after the run and may continue it."""
    DRAINING = auto()
    """The aborted run has left messages in pi's queue, which are being dropped before the run counts as over."""


class Sign(Enum):
    """What pi or we did that moves the run."""

    PROMPT = auto()
    AGENT_START = auto()
    AGENT_END = auto()
    RETRY = auto()
    RETRY_GIVEN_UP = auto()
    COMPACTION_START = auto()
    COMPACTION_END = auto()
    COMPACTION_CONTINUES = auto()
    DRAIN = auto()
    OVER = auto()


_MOVES: dict[Phase, dict[Sign, Phase]] = {
    Phase.IDLE: {Sign.PROMPT: Phase.STARTING, Sign.AGENT_START: Phase.RUNNING},
    Phase.STARTING: {Sign.AGENT_START: Phase.RUNNING, Sign.DRAIN: Phase.DRAINING},
    Phase.RUNNING: {Sign.AGENT_END: Phase.ENDING},
    Phase.ENDING: {
        Sign.PROMPT: Phase.STARTING,
        Sign.AGENT_START: Phase.RUNNING,
        Sign.RETRY: Phase.RESTARTING,
        Sign.RETRY_GIVEN_UP: Phase.ENDING,
        Sign.COMPACTION_START: Phase.COMPACTING,
        Sign.DRAIN: Phase.DRAINING,
    },
    Phase.RESTARTING: {
        Sign.PROMPT: Phase.STARTING,
        Sign.AGENT_START: Phase.RUNNING,
        Sign.DRAIN: Phase.DRAINING,
        Sign.RETRY_GIVEN_UP: Phase.ENDING,
    },
    Phase.COMPACTING: {
        Sign.AGENT_START: Phase.RUNNING,
        Sign.COMPACTION_END: Phase.ENDING,
        Sign.COMPACTION_CONTINUES: Phase.RESTARTING,
    },
    Phase.DRAINING: {},
}


def after(phase: Phase, sign: Sign) -> Phase:
    """The next phase. A sign that has no place in a phase changes nothing: a worker's output is not to be trusted."""
    if sign is Sign.OVER:
        return Phase.IDLE
    return _MOVES[phase].get(sign, phase)
