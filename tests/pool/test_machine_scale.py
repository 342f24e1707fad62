"""What the machine does for one event does not grow with the pool: counted in instructions and bytes, not in time."""

import sys
import tracemalloc
from types import FrameType
from typing import Any

import pytest

from pool.stimuli import Action, Stimulus
from tests.pool.transcript import Player, profile_of

FEW, MANY = 40, 400
ROUNDS = 4
"""The cheapest counts: a table that is enlarged just then is nothing that every event pays for."""
INSTRUCTIONS, BYTES = 300, 2000
"""So much more may be by chance: one for each of the workers would be more, in Python or in a copied list."""


class Meter:
    """Counts what ``handle`` takes: Python's instructions, and the bytes it needs at the same time."""

    def __init__(self, player: Player) -> None:
        self._handle = player.world.machine.handle
        player.world.machine.handle = self._measure  # type: ignore[method-assign]
        self.instructions = self.peak = 0

    def _measure(self, stimulus: Stimulus, now: float) -> list[Action]:
        before = sys.gettrace()
        tracemalloc.start()
        sys.settrace(self._count)
        try:
            return self._handle(stimulus, now)
        finally:
            sys.settrace(before)
            self.peak = max(self.peak, tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()

    def _count(self, frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.instructions += event == "opcode"
        return self._count


# --- crowds -----------------------------------------------------------------------------------------------------------


def starting(count: int, **asked: Any) -> Player:
    """Every worker is being started for a request; two profiles of one agent, and one of another."""
    player = Player()
    player.pool(max=count, spawn_burst=2 * count, spawn_rate=1e6, waiting_capacity=10**6, waiting_timeout=1e6)
    for number in range(1, count + 1):
        profile = ("a", "b", "other:o")[number % 3]
        player.world.acquire(f"s{number}", profile_of(profile), request=f"h{number}", **asked)
    return player


def in_use(count: int) -> Player:
    """Every worker is held by a session of its own: ``s1`` by ``h1`` on ``w1``, and so on."""
    player = starting(count)
    for number in range(1, count + 1):
        player.world.ready(f"w{number}")
        player.world.reset_done(f"w{number}")
    return player


def idle(count: int) -> Player:
    """The same after their turns."""
    player = in_use(count)
    for number in range(1, count + 1):
        player.world.release(f"h{number}")
    return player


def kept(count: int) -> Player:
    """The same, and all workers but one run a command in the background."""
    player = in_use(count)
    for number in range(1, count):
        player.world.run_in_background(f"w{number}", 1)
        player.world.release(f"h{number}")
    return player


def stopping(count: int) -> Player:
    """Nearly every worker is being stopped for a request of another profile."""
    player = idle(count)
    for number in range(1, count - 2 * ROUNDS):
        player.world.acquire(f"t{number}", profile_of(f"c{number}"), request=f"t{number}")
    return player


def growing(count: int) -> Player:
    """The same, and there is room for as many again."""
    player = starting(count)
    player.settings(max=2 * count)
    return player


def placed(count: int) -> Player:
    """Every worker is idle, on the nodes of one group, which is full; the pool is not."""
    player = Player()
    player.pool(max=2 * count, spawn_burst=2 * count, spawn_rate=1e6, waiting_capacity=10**6, waiting_timeout=1e6)
    player.capacity(gpu=count, here=count)
    for number in range(1, count + 1):
        player.use(f"s{number}", f"{'xy'[number % 2]}@gpu:a")
    return player


def nested(count: int) -> Player:
    """Every worker is being started for a nested request."""
    return starting(count, nested=True)


def room_only(count: int) -> Player:
    """Every worker is being started for a request that takes only room."""
    return starting(count, spawn="room")


CROWDS = {each.__name__: each for each in (starting, in_use, idle, kept, stopping, growing, placed, nested, room_only)}
EVENTS = {
    "idle": (
        *("ask x{n} s{a}", "hold x{n} s{a}; free x{n}", "pause; ask x{n} s{a}; resume"),
        *("ask x{n} new{n}", "ask x{n} new{n}; reset w{a}", "ask x{n} new{n} other:o"),
        *("ask x{n} new{n} c{n}", "ask x{n} new{n} c{n}; exit w{n}", "ask x{n} new{n} spawn=False"),
        *("busy s{n}", "busy s{n}; quiet s{n}", "background w{n} 1", "background w{n} 1; background w{n} 0"),
        *("memory w{n}=5", "recycle w{n}", "change w{n}", "exit w{n}", "stop w{n}", "forget s{n}", "know new{n} file"),
        *(
            "prewarm a={n}",
            "prewarm a={n}; busy s{n}",
            "current a b other:o",
            "ask x{n} new{n} c{n}; current a b other:o",
        ),
        *("settings start_timeout=1{n}.0", "settings max_turns=1{n}", "settings max={more}", "settings max={fewer}"),
        *("settings reserve=1{n}", "settings spawn_rate={n}.0", "wait 1.0"),
    ),
    "in_use": (
        *("ask x{n} new{n}", "ask x{n} new{n} priority=10", "ask x{n} new{n} c", "ask x{n} new{n} spawn=False"),
        *("ask x{n} new{n} nested=True", "ask x{n} s{a}", "ask x{n} new{n}; cancel x{n}", "ask x{n} new{n}; free h{a}"),
        *("ask x{n} new{n} timeout=1.0; wait 1.0", "exit w{n}", "settings max={more}", "settings max={fewer}"),
        "prewarm a={n}",
    ),
    "starting": ("ask x{n} new{n}", "ready w{n}", "cancel h{n}", "exit w{n}", "prewarm a={n}; know new{n} file"),
    "kept": (
        *("ask x{n} new{n}", "ask x{n} new{n} timeout=1.0; wait 1.0", "ask x{n} new{n} spawn=False", "ask x{n} s{a}"),
        *("ask x{n} new{n} nested=True",),
    ),
    "stopping": (
        "ask x{n} new{n} d{n}",
        "ask x{n} new{n}",
        "exit w{n}",
        "settings max_per_agent=9; ask x{n} new{n} d{n}",
    ),
    "growing": ("ask x{n} new{n}", "ask x{n} new{n} spawn=room", "ask x{n} new{n} nested=True", "prewarm a={n}"),
    "placed": (
        *("ask x{n} new{n} x@gpu:c{n}", "ask x{n} new{n} y@gpu:a", "ask x{n} new{n} other:o", "fail w{n} lost"),
        *("fail w{n} lost; exit w{n}", "empty w{n}", "capacity gpu={more} here={more}", "capacity here={more}"),
        "ask x{n} new{n} x@gpu:c{n}; capacity gpu={more} here={more}",
    ),
    "nested": ("know new{n} file", "ready w{n}"),
    "room_only": ("know new{n} file", "ready w{n}"),
}


def cheapest(crowd: str, count: int, event: str) -> tuple[int, int]:
    """Instructions and bytes of the event's last step, in the cheapest of some rounds."""
    player = CROWDS[crowd](count)
    meter = Meter(player)
    found = []
    for number in range(1, ROUNDS + 1):
        for step in event.format(n=number, a=3 * number, more=count + number, fewer=count - number).split(";"):
            meter.instructions = meter.peak = 0
            player._call(step.strip())
        found.append((meter.instructions, meter.peak))
    instructions, peaks = zip(*found, strict=True)
    return min(instructions), min(peaks)


@pytest.mark.parametrize(("crowd", "event"), [(crowd, event) for crowd, events in EVENTS.items() for event in events])
def test_an_event_costs_the_same_beside_few_and_beside_many_workers(crowd: str, event: str) -> None:
    few, many = cheapest(crowd, FEW, event), cheapest(crowd, MANY, event)
    assert many[0] - few[0] < INSTRUCTIONS, f"{few[0]} instructions beside {FEW} workers, {many[0]} beside {MANY}"
    assert many[1] - few[1] < BYTES, f"{few[1]} bytes beside {FEW} workers, {many[1]} beside {MANY}"
