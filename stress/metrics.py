"""Figures of each second, and the outcomes of all requests. Pure."""

from collections import Counter
from collections.abc import Sequence

from stress.checker import quantile
from stress.facts import (
    Fact,
    FaultInjected,
    MachineDelay,
    ProcessSample,
    RequestAccepted,
    RequestAnswered,
    RequestAsked,
    RequestFact,
    RequestForgotten,
    RequestRefused,
    RequestStarted,
    SupervisorEnded,
    SupervisorStarted,
)
from stress.outcome import LatencyQuantiles, SecondMetrics

_MAX_SAMPLES = 200_000
_MAX_FAULTS = 10_000


class _OpenRequest:
    __slots__ = ("asked", "has_begun", "is_accepted", "turn")

    def __init__(self, asked: RequestAsked) -> None:
        self.asked = asked.t
        self.turn = asked.turn
        self.is_accepted = False
        self.has_begun = False


class RunMetrics:
    """``series``: complete seconds; ``fates``: requests by outcome; ``faulty``: those to faulty workers."""

    def __init__(self, ramp: float, calm: float) -> None:
        """Between ``ramp`` and ``calm`` seconds the load is full and without faults."""
        self.series: list[SecondMetrics] = []
        self.fates: Counter[str] = Counter()
        self.faults: list[FaultInjected] = []
        self.lives = 0
        self.faulty = 0
        self._ramp, self._calm = ramp, calm
        self._open: dict[int, _OpenRequest] = {}
        self._waiting = self._running = 0
        self._workers = self._rss = self._fds = 0
        self._samples: list[float] = []
        self._calm_samples: list[float] = []
        self._second = 0
        self._clear()

    def _clear(self) -> None:
        self._asked = self._answered = self._failed = self._injected = 0
        self._second_latencies: list[float] = []
        self._delayed = 0.0

    @property
    def latencies(self) -> LatencyQuantiles:
        """Latencies of the latest completed requests."""
        return _latencies(self._samples)

    @property
    def calm_latencies(self) -> LatencyQuantiles:
        """Latencies of requests completed before any fault."""
        return _latencies(self._calm_samples)

    def observe(self, fact: Fact) -> None:
        """Count the next fact."""
        while fact.t >= self._second + 1:
            self._close_second()
        match fact:
            case RequestFact():
                self._observe_request(fact)
            case ProcessSample():
                self._workers = len(fact.workers)
                self._rss, self._fds = fact.rss or self._rss, fact.fds or self._fds
            case FaultInjected():
                self._injected += 1
                if len(self.faults) < _MAX_FAULTS:
                    self.faults.append(fact)
            case MachineDelay():
                self._delayed = max(self._delayed, fact.seconds)
            case SupervisorStarted():
                self.lives = fact.life
            case SupervisorEnded():
                self._workers = self._rss = self._fds = 0
            case _:
                pass

    def finish(self) -> None:
        """No more facts come."""
        self._close_second()

    def _observe_request(self, fact: RequestFact) -> None:
        if isinstance(fact, RequestAsked):
            self._asked += 1
            self.faulty += fact.faulty
            self._open[fact.number] = _OpenRequest(fact)
            return
        request = self._open.get(fact.number)
        if request is None:
            return
        if isinstance(fact, RequestAccepted):
            self._waiting += not (request.is_accepted or request.has_begun)
            request.is_accepted = True
        elif isinstance(fact, RequestStarted):
            self._waiting -= request.is_accepted and not request.has_begun
            self._running += not request.has_begun
            request.has_begun = True
        elif isinstance(fact, RequestAnswered | RequestRefused | RequestForgotten):
            self._end(fact, request)

    def _end(self, fact: RequestAnswered | RequestRefused | RequestForgotten, request: _OpenRequest) -> None:
        del self._open[fact.number]
        self._running -= request.has_begun
        self._waiting -= request.is_accepted and not request.has_begun
        fate = f"{fact.reason}: {fact.code}" if fact.code else fact.reason
        self.fates[fate] += 1
        if fate != "completed":
            self._failed += 1
            return
        self._answered += 1
        took = max(0.0, fact.t - request.asked - request.turn)
        self._second_latencies.append(took)
        if len(self._samples) == _MAX_SAMPLES:
            del self._samples[: _MAX_SAMPLES // 2]
        self._samples.append(took)
        if self._ramp <= request.asked and fact.t < self._calm:
            self._calm_samples.append(took)

    def _close_second(self) -> None:
        self.series.append(
            SecondMetrics(
                second=self._second,
                asked=self._asked,
                answered=self._answered,
                failed=self._failed,
                waiting=self._waiting,
                running=self._running,
                workers=self._workers,
                rss=self._rss,
                fds=self._fds,
                p50=quantile(self._second_latencies, 0.5),
                p99=quantile(self._second_latencies, 0.99),
                faults=self._injected,
                delayed=self._delayed,
            )
        )
        self._second += 1
        self._clear()


def _latencies(values: Sequence[float]) -> LatencyQuantiles:
    return LatencyQuantiles(
        count=len(values), p50=quantile(values, 0.5), p99=quantile(values, 0.99), max=max(values, default=0.0)
    )
