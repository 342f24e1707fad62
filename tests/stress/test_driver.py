"""How fast and how long requests are made: no faster than they are answered, and not for ever."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trio
from trio.testing import MockClock

from stress.driver import LoadDriver
from stress.facts import DirectViolation, Fact, Journal, RequestAsked, WaitingEnded
from stress.plan import StressOptions, make_plan
from stress.request_tracker import Nonces, RequestTracker
from stress.schedule import all_arrivals
from wire.messages import ErrorBody


class Soak:
    """A driver that no supervisor ever answers; requests can be refused in its place."""

    def __init__(self, **wish: Any) -> None:
        self.facts: list[Fact] = []
        self.plan = make_plan(StressOptions(load="L5", sessions=2, workers=2, **wish))
        self._ledger = RequestTracker(Nonces(7), Journal(trio.current_time, self.facts.append), prefix="mine")
        self._driver = LoadDriver(
            self.plan, self._ledger, ready=self._absent, journal=Journal(trio.current_time, self.facts.append)
        )

    async def drive(self) -> None:
        await self._driver.run(all_arrivals(self.plan, []), lambda _session: None)

    async def refuse_one_each(self, seconds: float) -> None:
        while True:
            await trio.sleep(seconds)
            for number in list(self._ledger.open)[:1]:
                self._driver._on_error(self._ledger.on_refused, number, ErrorBody("pool_saturated"))

    def asked(self) -> Iterator[float]:
        return (fact.t for fact in self.facts if isinstance(fact, RequestAsked))

    async def _absent(self) -> Path:
        await trio.sleep_forever()
        raise AssertionError


async def test_without_answers_no_more_requests_are_sent_and_the_run_ends(autojump_clock: MockClock) -> None:
    soak = Soak(requests=100, rate=1000.0)
    with trio.fail_after(600):
        await soak.drive()
    assert len(list(soak.asked())) == soak.plan.most_open == 16
    assert [fact.what for fact in soak.facts if isinstance(fact, DirectViolation)] == [
        "no more requests are sent: 16 had no outcome for 75 s"
    ]
    assert isinstance(soak.facts[-1], WaitingEnded)


async def test_when_its_time_is_up_no_more_is_asked_whatever_still_waits(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    soak = Soak(seconds=10.0, rate=1000.0)
    nursery.start_soon(soak.refuse_one_each, 0.5)
    await soak.drive()
    assert 8.0 < max(soak.asked()) <= 10.0
    assert isinstance(soak.facts[-1], WaitingEnded)
