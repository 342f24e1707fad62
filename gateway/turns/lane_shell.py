"""The lanes' async shell: it tells the machine what happened, keeps its time, and has its decisions performed."""

import math
from collections import deque
from collections.abc import Callable
from typing import Any

import trio

from gateway.lanes import LaneMachine
from gateway.lanes.messages import Action, Reconfigure, Stimulus, Tick
from gateway.settings import QueueSettings
from wire.timers import Timer, Timers


class Scheduler:
    """One ``LaneMachine`` and its clock.

    Stimuli are handled one after the other, also those that performing an action leads to: the actions of one are
    performed before the next is looked at.
    """

    def __init__(self, settings: QueueSettings, perform: Callable[[Action], None]) -> None:
        """``perform`` must neither block nor raise."""
        self.lanes = LaneMachine(settings)
        self._perform = perform
        self._stimuli: deque[Stimulus] = deque()
        self._is_handling = False
        self._alarms = Timers()
        self._wake = trio.Event()
        self._armed_for = math.inf

    def tell(self, stimulus: Stimulus) -> None:
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

    def alarm(self, at: float, call: Callable[[Any], None], subject: object) -> Timer:
        """Have ``call(subject)`` called at that time on the event loop's clock, unless it is cancelled before."""
        timer = self._alarms.at(at, call, subject)
        self._rearm()
        return timer

    def cancel(self, timer: Timer | None) -> None:
        """Call off an alarm."""
        self._alarms.cancel(timer)

    def reconfigure(self, settings: QueueSettings) -> None:
        """New limits; nobody who waits is lost."""
        self.tell(Reconfigure(settings))

    async def run(self) -> None:
        """Keep time until cancelled; sleeps without any polling in between."""
        while True:
            self._armed_for = self._next()
            self._wake = trio.Event()
            with trio.move_on_at(self._armed_for):
                await self._wake.wait()
                continue
            self._alarms.fire(trio.current_time())
            self.tell(Tick())

    def _next(self) -> float:
        due = self.lanes.next_wakeup()
        alarm = self._alarms.next_at()
        return min(math.inf if due is None else due, math.inf if alarm is None else alarm)

    def _rearm(self) -> None:
        if self._next() < self._armed_for:
            self._wake.set()
