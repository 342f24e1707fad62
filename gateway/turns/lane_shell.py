"""The lanes' async shell: it tells the machine what happened, keeps its time, and has its decisions performed."""

import math
from collections import deque
from collections.abc import Callable
from typing import Any

import trio

from gateway.lanes import LaneMachine
from gateway.lanes.messages import LaneAction, LaneStimulus, Reconfigure, Tick
from gateway.settings import QueueSettings
from wire.timers import Timer, Timers


class LaneShell:
    """One ``LaneMachine`` and its clock.

    Stimuli are handled one after the other, also those that performing an action leads to: the actions of one are
    performed before the next is looked at.
    """

    def __init__(self, settings: QueueSettings, perform: Callable[[LaneAction], None]) -> None:
        """``perform`` must neither block nor raise."""
        self.lanes = LaneMachine(settings)
        self._perform = perform
        self._stimuli: deque[LaneStimulus] = deque()
        self._is_handling = False
        self._timers = Timers()
        self._wake = trio.Event()
        self._armed_for = math.inf

    def handle(self, stimulus: LaneStimulus) -> None:
        """Handle a stimulus now, or right after the one that is being handled."""
        self._stimuli.append(stimulus)
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._stimuli:
                for action in self.lanes.handle(self._stimuli.popleft(), trio.current_time()):
                    self._perform(action)
        finally:
            self._is_handling = False
            self._rearm()

    def set_timer(self, at: float, call: Callable[[Any], None], subject: object) -> Timer:
        """Have ``call(subject)`` called at that time on the event loop's clock, unless it is cancelled before."""
        timer = self._timers.at(at, call, subject)
        self._rearm()
        return timer

    def cancel_timer(self, timer: Timer | None) -> None:
        """Call off an alarm."""
        self._timers.cancel(timer)

    def reconfigure(self, settings: QueueSettings) -> None:
        """New limits; nobody who waits is lost."""
        self.handle(Reconfigure(settings))

    async def run(self) -> None:
        """Keep time until cancelled; sleeps without any polling in between."""
        while True:
            self._armed_for = self._next_wakeup()
            self._wake = trio.Event()
            with trio.move_on_at(self._armed_for):
                await self._wake.wait()
                continue
            self._timers.fire(trio.current_time())
            self.handle(Tick())

    def _next_wakeup(self) -> float:
        due = self.lanes.next_wakeup()
        alarm = self._timers.next_at()
        return min(math.inf if due is None else due, math.inf if alarm is None else alarm)

    def _rearm(self) -> None:
        if self._next_wakeup() < self._armed_for:
            self._wake.set()
