"""From the options on the command line to the plan of a run: loads, faults, sizes, seed. Pure."""

import math
import shlex
from decimal import Decimal
from fractions import Fraction
from typing import Literal

import msgspec

from errors import UsageError
from stress.agents import AGENTS, AgentsName

LoadName = Literal["L1", "L2", "L3", "L4", "L5", "L6"]
LOADS: dict[LoadName, str] = {
    "L1": "steady: 10,000 sessions, 64 workers, 8 profiles, 3 priorities, utilisation 0.8",
    "L2": "overload: 1.5 times the workers' capacity",
    "L3": "a burst: 0 to 3,200 waiters at once, and again when all are served",
    "L4": "500 front ends that disconnect and reconnect",
    "L5": "soak: L1 for any time, 1,000,000 requests, no faster than they are answered",
    "L6": "500 front ends of which 50 read 1 KB a second",
}
FAULTS = {
    "F1": "workers killed (SIGKILL) and suspended (SIGSTOP)",
    "F2": "workers that write invalid messages",
    "F3": "workers that refuse to end",
    "F4": "no more files, processes or disk space",
    "F5": "the supervisor killed, or stopped twice",
    "F6": "front ends killed between grant and answer",
    "F7": "the wall clock moved by an hour, pids reused",
}
_MAX_REQUESTS_PER_SECOND = 40.0
"""Capacity of two CPUs without a bottleneck: a turn costs some 12 ms in all, and starts of workers a whole CPU."""
_OVERHEAD = 0.1
"""Seconds of a worker's time that a turn costs beyond its requested length."""
_SHORTEST_TURN = 0.3
_UTILISATION: dict[LoadName, float] = {"L1": 0.8, "L2": 1.5, "L3": 0.8, "L4": 0.6, "L5": 0.8, "L6": 0.6}
_TIMEOUT = 60.0
_TIMEOUTS: dict[LoadName, float] = {"L2": 10.0, "L3": 300.0}
_MIN_WORKERS = 4
_PROFILES = 8
_FRONT_ENDS = 500
_MIN_FRONT_ENDS = 10
_RAMP_PER_WORKER = 0.4
"""Seconds; four workers are started a second, and all of them compete for the CPUs."""
_BURST_PER_WORKER = 50  # 3,200 waiters for 64 workers
_RAMP_SHARE = 0.2
_LONGEST_CALM = 30.0
_BURSTS = 2
_WITH_FRONT_ENDS = ("L4", "L6")
_REQUESTS_PER_FRONT_END = 10
_SOAK_REQUESTS = 1_000_000
_OPEN_PER_WORKER = 8
_SLOWDOWN = 3
_MIN_SCALE = 1e-6
_MAX_REQUESTS = 1_000_000_000
_BOUNDS: dict[str, tuple[float, float]] = {
    "scale": (_MIN_SCALE, 1),
    "seed": (-(2**63), 2**63 - 1),
    "sessions": (1, 1_000_000),
    "workers": (1, 1_000_000),
    "seconds": (0.001, 10_000_000),
    "requests": (1, _MAX_REQUESTS),
    "rate": (0.001, 1_000_000),
}
"""Range of each option: wider than any sensible value, narrow enough that every figure of a plan stays finite. The
memory of the machine limits the workers further."""
_SHOWN_CHARACTERS = 24


class StressOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a run; None = as the load says. ``seconds``: how long new requests are sent.

    ``scale`` shrinks the sessions, and the workers by its square root: a pool of three workers would prove little.
    """

    load: LoadName = "L1"
    faults: tuple[str, ...] = ()
    agents: AgentsName = "native"
    scale: float = 1.0
    seed: int = 7
    sessions: int | None = None
    workers: int | None = None
    seconds: float | None = None
    requests: int | None = None
    rate: float | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One run. ``roles``: names of the profiles; ``turn``: mean seconds of a turn; ``timeout``: of each request.

    ``seconds``: expected time for all ``requests``, or with ``is_timed`` the limit. Until ``ramp`` the rate grows from
    0, as the pool does; until ``calm`` there is no fault.
    """

    load: LoadName
    faults: tuple[str, ...]
    agents: AgentsName
    seed: int
    sessions: int
    workers: int
    roles: tuple[str, ...]
    front_ends: int
    burst: int
    requests: int
    seconds: float
    is_timed: bool
    rate: float
    turn: float
    timeout: float
    ramp: float
    calm: float
    most_open: int = 0
    """Maximum of requests without an outcome, 0 = unlimited. A soak asks no faster than it is answered."""
    attached_to: str = ""
    """Socket of the supervisor to drive; empty = start one."""

    @property
    def longest(self) -> float:
        """Seconds until which new requests may be sent: those that wait for outcomes come later than planned."""
        return _SLOWDOWN * self.seconds if self.most_open and not self.is_timed else self.seconds

    @property
    def command(self) -> str:
        """The command that repeats the same choices."""
        faults = f" --faults {','.join(self.faults)}" if self.faults else ""
        agents = "" if self.agents == "native" else f" --agents {self.agents}"
        has_all = self.front_ends == _front_ends(self.load, 1.0, self.sessions)
        scale = "" if has_all else f" --scale {self.front_ends}/{_FRONT_ENDS}"  # other options name the rest
        workers = "" if self.attached_to else f" --workers {self.workers}"
        seconds = f" --seconds {_shortest_decimal(self.seconds)}" if self.is_timed else ""
        where = f" --attach {shlex.quote(self.attached_to)}" if self.attached_to else ""
        return (
            f"pool stress --load {self.load}{faults}{agents}{scale} --seed {self.seed} --sessions {self.sessions}"
            f"{workers} --rate {_shortest_decimal(self.rate)}{seconds} --requests {self.requests}{where}"
        )


def make_plan(wish: StressOptions) -> Plan:
    """The plan for a wish. Raises UsageError that names the option at fault."""
    _check(wish)
    workers = wish.workers or max(_MIN_WORKERS, round(64 * math.sqrt(wish.scale)))
    sessions = wish.sessions or _front_ends(wish.load, wish.scale) or max(2 * workers, round(10_000 * wish.scale))
    burst = _BURST_PER_WORKER * workers
    rate, turn = _pace(wish, workers)
    ramp = 0.0 if wish.load == "L3" else _RAMP_PER_WORKER * workers
    most = _default_requests(wish, sessions, burst)
    if wish.seconds:
        most = min(math.ceil(1.5 * rate * wish.seconds), _MAX_REQUESTS)
    requests = min(wish.requests or most, most) if wish.seconds else wish.requests or most
    seconds = wish.seconds or round(requests / rate + ramp / 2, 3)
    ramp = min(ramp, _RAMP_SHARE * seconds)
    return Plan(
        load=wish.load,
        faults=wish.faults,
        agents=wish.agents,
        seed=wish.seed,
        sessions=sessions,
        workers=workers,
        roles=tuple(f"p{number}" for number in range(min(_PROFILES, max(2, workers // 2)))),
        front_ends=_front_ends(wish.load, wish.scale, sessions),
        burst=burst,
        requests=requests,
        seconds=seconds,
        is_timed=wish.seconds is not None,
        rate=rate,
        turn=turn,
        timeout=_TIMEOUTS.get(wish.load, _TIMEOUT),
        most_open=_OPEN_PER_WORKER * workers if wish.load == "L5" else 0,
        ramp=ramp,
        calm=ramp + min(_LONGEST_CALM, _RAMP_SHARE * seconds) if wish.faults else 0.0,
    )


def _front_ends(load: LoadName, scale: float, sessions: int = _FRONT_ENDS) -> int:
    """Number of front ends, each with a session of its own."""
    return min(sessions, max(_MIN_FRONT_ENDS, round(_FRONT_ENDS * scale))) if load in _WITH_FRONT_ENDS else 0


def _shortest_decimal(value: float) -> str:
    """The shortest text that reads back as the same number."""
    return f"{Decimal(repr(value)).normalize():f}"


def _pace(wish: StressOptions, workers: int) -> tuple[float, float]:
    """Requests a second, and the mean turn at which the workers are as busy as the load says."""
    busy = _UTILISATION[wish.load] * workers
    shortest = busy / (_SHORTEST_TURN + _OVERHEAD)
    rate = wish.rate or round(min(shortest, _MAX_REQUESTS_PER_SECOND), 3)
    return rate, round(max(0.0, busy / rate - _OVERHEAD), 3)


def read_scale(text: str) -> float:
    """``1/20``, ``0.05``. Raises ValueError that shows the accepted spelling."""
    try:
        scale = Fraction(text.strip()) if "/" in text else float(text)  # as a fraction 1e999999999 would take for ever
    except (ValueError, ZeroDivisionError) as exc:
        raise ValueError(f'{_truncated(text)} is no share; write it as "1/20" or "0.05"') from exc
    if not _MIN_SCALE <= scale <= 1:
        raise ValueError(f"{_truncated(text)} is not between {_MIN_SCALE:g} and 1")
    return float(scale)


def _truncated(value: object) -> str:
    """Cut off after some digits."""
    text = str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _default_requests(wish: StressOptions, sessions: int, burst: int) -> int:
    match wish.load:
        case "L3":
            return _BURSTS * burst
        case "L5":
            return max(1, round(_SOAK_REQUESTS * wish.scale))
        case "L4" | "L6":
            return _REQUESTS_PER_FRONT_END * sessions
        case _:
            return 2 * sessions


def _check(wish: StressOptions) -> None:
    unknown = [name for name in wish.faults if name not in FAULTS]
    if unknown:
        raise UsageError(f"there is no fault {unknown[0]!r}; --faults takes some of {', '.join(FAULTS)}")
    if wish.load not in LOADS:
        raise UsageError(f"there is no load {wish.load!r}; --load takes one of {', '.join(LOADS)}")
    if wish.agents not in AGENTS:
        raise UsageError(f"there are no agents {wish.agents!r}; --agents takes one of {', '.join(AGENTS)}")
    for name, (least, most) in _BOUNDS.items():
        value = getattr(wish, name)
        if value is not None and not least <= value <= most:
            raise UsageError(
                f"--{name} {_truncated(value)} is not between {_format_bound(least)} and {_format_bound(most)}"
            )


def _format_bound(value: float) -> str:
    return f"{value:g}" if 0 < value < 1 else f"{value:,}"
