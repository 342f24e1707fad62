"""The lanes' rules once more, as plainly as they can be said: lists that are searched and sorted from end to end."""

import math

from gateway.lanes import messages as stimuli
from gateway.lanes.messages import LaneStimulus, Submit, merge_messages, summary_line
from gateway.settings import Overflow, QueueSettings
from wire.messages import QueueMode

Told = tuple[object, ...]
"""An action without the names of turns: ("start", session, lane, priority, runs, text), ("refuse", run, reason) ..."""


class Message:
    def __init__(self, submit: Submit, number: int, now: float) -> None:
        self.run, self.submit, self.number, self.arrived = submit.run, submit, number, now
        self.text = submit.text
        self.short = False
        self.merges = submit.mode is QueueMode.COLLECT and not submit.exclusive

    @property
    def rank(self) -> tuple[int, int]:
        return -self.submit.priority, self.number


class Gathering:
    """Who goes next at one priority of one session, once the session has looked for its next turn."""

    def __init__(self, first: Message) -> None:
        self.members = {first.run}
        self.since = self.last = first.arrived
        self.ripe = False


class Talk:
    """One session."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.gatherings: dict[int, Gathering] = {}
        self.prompted: list[Message] = []
        self.steered: list[Message] = []
        self.lane: str | None = None
        """Of the turn that runs."""
        self.aborting = False

    def whole(self, priority: int | None = None) -> list[Message]:
        found = [each for each in self.messages if not each.short and priority in (None, each.submit.priority)]
        return sorted(found, key=lambda each: each.rank)

    def shortened(self) -> list[Message]:
        return [each for each in self.messages if each.short]

    def gathering(self, priority: int) -> Gathering | None:
        gathering = self.gatherings.get(priority)
        if gathering is not None:
            gathering.members &= {each.run for each in self.whole(priority)}
        return gathering if gathering is not None and gathering.members else None


class Model:
    def __init__(self, settings: QueueSettings) -> None:
        self.settings = settings
        self.now = 0.0
        self.talks: dict[str, Talk] = {}
        self.number = 0
        self.told: list[Told] = []

    def handle(self, stimulus: LaneStimulus, now: float, session: str = "") -> list[Told]:
        """``session``: whose turn is meant by a stimulus that names a turn."""
        self.now, self.told = now, []
        self._settle()
        talk = self.talks.get(session, Talk())
        match stimulus:
            case Submit():
                self._submit(stimulus)
            case stimuli.SteerRejected():
                self._take_back(talk, stimulus.run)
            case stimuli.TurnEnded():
                self._turn_ended(talk, stimulus.unconsumed)
            case stimuli.Withdraw():
                for each in self.talks.values():
                    each.messages = [message for message in each.messages if message.run != stimulus.run]
            case stimuli.Clear():
                self._clear(stimulus.session)
            case stimuli.Reconfigure():
                self.settings = stimulus.settings
        self._settle()
        return sorted(self.told, key=repr)

    def _turn_ended(self, talk: Talk, unconsumed: tuple[str, ...]) -> None:
        for run in unconsumed:
            self._take_back(talk, run)
        talk.prompted, talk.steered, talk.lane = [], [], None
        talk.aborting = False

    def _clear(self, session: str) -> None:
        for message in list(self.talks.get(session, Talk()).messages):
            self._refuse(message, "cleared")

    def next_due(self) -> float | None:
        """When the first session's debounce is over."""
        idle = [talk for talk in self.talks.values() if talk.lane is None and talk.messages]
        return min((due for talk in idle if (due := self._due(talk)) > self.now), default=None)

    # --- arrivals ---------------------------------------------------------------------------------------------------

    def _submit(self, submit: Submit) -> None:
        talk = self.talks.get(submit.session)
        self.number += 1
        message = Message(submit, self.number, self.now)
        if talk is None:
            if self._lane_is_full(submit.lane) and not self._room_for(message):
                return
            talk = self.talks[submit.session] = Talk()
            self._add(talk, message)
            gathering = talk.gatherings[submit.priority] = Gathering(message)
            gathering.ripe = True
        elif self._can_steer(talk, submit):
            talk.steered.append(message)
            self.told.append(("steer", submit.run))
        elif submit.mode is QueueMode.INTERRUPT and not any(each.submit.exclusive for each in talk.prompted):
            self._interrupt(talk, message)
        else:
            self._queue(talk, message)

    @staticmethod
    def _can_steer(talk: Talk, submit: Submit) -> bool:
        return (
            submit.mode is QueueMode.STEER
            and talk.lane is not None
            and submit.may_steer
            and not talk.aborting
            and not submit.exclusive
            and not any(each.submit.exclusive for each in talk.prompted)
            and all(each.submit.priority < submit.priority for each in talk.messages)
        )

    def _interrupt(self, talk: Talk, message: Message) -> None:
        if not talk.messages and not self._room_for(message):
            return
        if talk.lane is not None and not talk.aborting:
            talk.aborting = True
            self.told.append(("abort", message.submit.session))
        for each in list(talk.messages):
            self._refuse(each, "interrupted")
        self._add(talk, message)

    def _queue(self, talk: Talk, message: Message) -> None:
        full = len(talk.whole()) >= self.settings.cap
        if full and self.settings.overflow is Overflow.NEW:
            self.told.append(("refuse", message.run, "full"))
            return
        if not (full and self.settings.overflow is Overflow.OLD) and not self._room_for(message):
            return
        self._add(talk, message)
        if len(talk.whole()) > self.settings.cap:
            victim = min(talk.whole(), key=lambda each: (each.submit.priority, each.number))
            if self.settings.overflow is Overflow.OLD or victim.submit.exclusive:
                self._refuse(victim, "dropped")
            else:
                victim.short, victim.text = True, summary_line(victim.text)
                talk.messages.remove(victim)
                talk.messages.append(victim)

    def _room_for(self, message: Message) -> bool:
        waiting = [each for talk in self.talks.values() for each in talk.messages]
        if len(waiting) < self.settings.pending:
            return True
        lowest = min([*waiting, message], key=lambda each: (each.submit.priority, -each.number))
        self._refuse(lowest, "evicted")
        return lowest is not message

    def _add(self, talk: Talk, message: Message) -> None:
        tier = talk.whole(message.submit.priority)
        gathering = talk.gathering(message.submit.priority)
        talk.messages.append(message)
        if gathering and len(gathering.members) == len(tier) and self._merge(tier[0], message):
            gathering.members.add(message.run)
            gathering.last = message.arrived

    def _refuse(self, message: Message, reason: str) -> None:
        self.told.append(("refuse", message.run, reason))
        messages = self.talks.get(message.submit.session, Talk()).messages
        if message in messages:
            messages.remove(message)

    def _take_back(self, talk: Talk, run: str) -> None:
        message = next(each for each in talk.steered if each.run == run)
        talk.steered.remove(message)
        talk.messages.append(message)
        if talk.aborting:
            self._refuse(message, "interrupted")

    # --- turns ------------------------------------------------------------------------------------------------------

    @staticmethod
    def _merge(first: Message, other: Message) -> bool:
        return first.merges and other.merges and first.submit.lane == other.submit.lane

    def _lane_is_full(self, lane: str) -> bool:
        limit = self.settings.lanes.get(lane, 0)
        return 0 < limit <= sum(talk.lane == lane for talk in self.talks.values())

    def _front(self, talk: Talk) -> list[Message]:
        """The whole messages that go next."""
        waiting = talk.whole()
        if not waiting:
            return []
        tier = talk.whole(waiting[0].submit.priority)
        gathering = talk.gathering(tier[0].submit.priority)
        if gathering is None:
            gathering = talk.gatherings[tier[0].submit.priority] = Gathering(tier[0])
        front = []
        for message in tier:
            if message.run not in gathering.members and not self._merge(tier[0], message):
                break
            if message.run not in gathering.members:
                gathering.members.add(message.run)
                gathering.last = message.arrived
            front.append(message)
        return front

    def _lead(self, talk: Talk) -> Message:
        front, short = self._front(talk), talk.shortened()
        if not front:
            return short[0]
        if short and all(each.submit.exclusive for each in talk.whole()):
            return min(front[0], short[0], key=lambda each: each.rank)
        return front[0]

    def _due(self, talk: Talk) -> float:
        lead, front = self._lead(talk), self._front(talk)
        if lead.short or not lead.merges:
            return -math.inf
        gathering = talk.gatherings[lead.submit.priority]
        if gathering.ripe or len(talk.whole(lead.submit.priority)) > len(front):
            return -math.inf
        return min(gathering.last + self.settings.debounce, gathering.since + 4 * self.settings.debounce)

    def _settle(self) -> None:
        self.talks = {key: talk for key, talk in self.talks.items() if talk.lane is not None or talk.messages}
        in_line = {}
        for key, talk in self.talks.items():
            if talk.lane is None and self._due(talk) <= self.now:
                lead = self._lead(talk)
                if not lead.short:
                    talk.gatherings[lead.submit.priority].ripe = True
                in_line[key] = lead
        for key, lead in sorted(in_line.items(), key=lambda item: item[1].rank):
            if not self._lane_is_full(lead.submit.lane):
                self._begin(key, self.talks[key], lead)

    def _begin(self, key: str, talk: Talk, lead: Message) -> None:
        taken = [] if lead.submit.exclusive else talk.shortened()
        if not lead.short:
            taken += self._front(talk)
        talk.prompted = sorted(taken, key=lambda each: each.number)
        talk.messages = [each for each in talk.messages if each not in taken]
        talk.lane = lead.submit.lane
        whole = [each.text for each in talk.prompted if not each.short]
        short = [each.text for each in talk.prompted if each.short]
        priority = max(each.submit.priority for each in talk.prompted)
        runs = tuple(each.run for each in talk.prompted)
        text = merge_messages(whole, short) if short or len(whole) > 1 else whole[0]
        self.told.append(("start", key, talk.lane, priority, runs, text))
