"""Limits of the HTTP port: which connection is evicted, requests per second, CPU time without a token.

Connections without a token take fair, metered turns within a small share of a CPU. The one that has cost least is next,
so a new one, which may show a token, never waits behind old ones that have shown none. A token refunds the cost.
"""

import heapq
import itertools
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator
from enum import Enum, auto
from types import coroutine
from typing import Any, Generic, TypeVar

import trio

C = TypeVar("C")


class Rank(Enum):
    """How a connection stands."""

    ANONYMOUS = auto()
    """It has shown no token, whatever it does: the one that came first gives way first."""
    IDLE = auto()
    """Its last request had one; it waits for the next: after them, the one that has rested longest."""
    BUSY = auto()
    """A request with a token is on: it stays."""


class ConnectionLimiter(Generic[C]):
    """Connections by rank, each rank in the order in which they came to it."""

    def __init__(self) -> None:
        self._ranks: dict[Rank, dict[C, None]] = {rank: {} for rank in Rank}
        self._rank_of: dict[C, Rank] = {}

    def __len__(self) -> int:
        return len(self._rank_of)

    def set_rank(self, member: C, rank: Rank) -> None:
        """It stands so from now on; keeps its place where that is no news."""
        before = self._rank_of.get(member)
        if before is not rank:
            self.remove(member)
            self._rank_of[member] = rank
            self._ranks[rank][member] = None

    def remove(self, member: C) -> None:
        """It has gone."""
        rank = self._rank_of.pop(member, None)
        if rank is not None:
            del self._ranks[rank][member]

    def members(self) -> list[C]:
        """All of them."""
        return list(self._rank_of)

    def eviction_candidate(self) -> C | None:
        """Who is to give way; None where all are busy."""
        for rank in (Rank.ANONYMOUS, Rank.IDLE):
            found = next(iter(self._ranks[rank]), None)
            if found is not None:
                return found
        return None


_MOST_KEYS = 4096


class RateLimiter:
    """``rate`` requests a second and key; a key that was quiet may have ``2 * rate`` at once. 0 = as many as come."""

    def __init__(self) -> None:
        self._full_at: OrderedDict[str, float] = OrderedDict()
        """When a bucket is full again: all that there is to know of it."""

    def acquire(self, key: str, rate: int, now: float) -> float:
        """Count a request of ``key``; the seconds after which it may be made, 0.0 = now. Else it is not counted."""
        if not rate:
            return 0.0
        full_at = max(self._full_at.get(key, now), now) + 1 / rate
        excess = full_at - now - 2.0
        if excess > 0:
            return excess
        self._full_at[key] = full_at
        self._full_at.move_to_end(key)
        if len(self._full_at) > _MOST_KEYS:
            self._full_at.popitem(last=False)
        return 0.0


class CpuBudget:
    """``share`` CPU seconds a second, of which ``burst`` seconds at most are saved up. It may be overdrawn."""

    def __init__(self, share: float, burst: float, now: float) -> None:
        self._share = share
        self._burst = burst
        self._balance = burst
        self._at = now

    def spend(self, seconds: float, now: float) -> None:
        """Take CPU seconds off; a negative number gives them back."""
        self._advance(now)
        self._balance = min(self._balance - seconds, self._burst)

    def delay(self, now: float) -> float:
        """After how many seconds something may be spent again; 0.0 = now."""
        self._advance(now)
        return max(0.0, -self._balance / self._share)

    def _advance(self, now: float) -> None:
        self._balance = min(self._balance + (now - self._at) * self._share, self._burst)
        self._at = now


# --- connections without a token --------------------------------------------------------------------------------------

CPU_SHARE = 0.04
"""Of a CPU. What the kernel and the event loop do for a step is estimated by ``_STEP_COST_SECONDS``."""
BURST_SECONDS = 0.1
"""CPU seconds saved up while nothing happens: a browser that loads the dashboard takes 40 ms."""
ACCEPT_COST_SECONDS = 200e-6
_STEP_COST_SECONDS = 80e-6
_WAKEUP_COST_SECONDS = 80e-6
"""For a turn that is waited for: the steps of the task that gives it."""
FREE_READS = 16
"""Pieces read of a connection as they arrive. A request that shows a token is one, or some."""
READ_PAUSE_SECONDS = 0.05
"""Before each further one: meanwhile the kernel collects what the peer sends in many small pieces."""


class AnonymousThrottle:
    """The turns of one server's connections without a token. ``run`` gives them."""

    def __init__(self) -> None:
        self._budget = CpuBudget(CPU_SHARE, BURST_SECONDS, trio.current_time())
        self._waiting: list[tuple[float, int, trio.Event]] = []
        self._numbers = itertools.count()
        self._has_waiters = trio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._has_waiters.wait()
            await trio.sleep(self._budget.delay(trio.current_time()))
            if self._waiting:
                heapq.heappop(self._waiting)[-1].set()
                self.charge(_WAKEUP_COST_SECONDS)
            else:
                self._has_waiters = trio.Event()

    async def acquire(self, spent: float) -> None:
        """Wait until something may be done for a connection on which ``spent`` CPU seconds were spent."""
        if not self._waiting and not self._budget.delay(trio.current_time()):
            return
        waiter = (spent, next(self._numbers), trio.Event())
        heapq.heappush(self._waiting, waiter)
        self._has_waiters.set()
        try:
            await waiter[-1].wait()
        except trio.Cancelled:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
                heapq.heapify(self._waiting)
            raise

    def charge(self, seconds: float) -> None:
        """CPU seconds were spent; a negative number gives them back."""
        self._budget.spend(seconds, trio.current_time())


class ConnectionCost:
    """What one connection has cost. Nothing is counted any more once it is ``settled``."""

    __slots__ = ("_pieces", "_strangers", "is_settled", "spent")

    def __init__(self, strangers: AnonymousThrottle) -> None:
        self._strangers = strangers
        self._pieces = 0
        self.spent = 0.0
        self.is_settled = False

    async def pause(self, seconds: float = READ_PAUSE_SECONDS) -> None:
        """Wait before the next piece is looked for: not for the first ones, nor once it is settled."""
        if not self.is_settled:
            self._pieces += 1
            if self._pieces > FREE_READS:
                await trio.sleep(seconds)

    async def acquire(self) -> None:
        """Wait until something may be done for it."""
        if not self.is_settled:
            await self._strangers.acquire(self.spent)

    def add(self, seconds: float) -> None:
        """CPU seconds were spent on it."""
        if not self.is_settled:
            self.spent += seconds
            self._strangers.charge(seconds)

    def refund(self) -> None:
        """It has shown a token: what was spent is given back."""
        if not self.is_settled:
            self.is_settled = True
            self._strangers.charge(-self.spent)


@coroutine
def run_metered(doing: Awaitable[None], expense: ConnectionCost) -> Generator[Any, Any, None]:
    """Do it, and add the CPU time of its own steps to ``expense``: not that of other tasks between them."""
    steps = doing.__await__()
    step: Callable[[Any], Any] = steps.send
    value: Any = None
    while True:
        began = 0.0 if expense.is_settled else time.thread_time()
        try:
            trap = step(value)
        except StopIteration:
            return
        finally:
            if not expense.is_settled:
                expense.add(time.thread_time() - began + _STEP_COST_SECONDS)
        try:
            value, step = (yield trap), steps.send
        except BaseException as exc:  # noqa: BLE001  # whatever is thrown in is its own affair
            value, step = exc, steps.throw
