"""Transcripts of the pool's machine: a stimulus a step, and behind ``=>`` the actions that it must cause.

    pool max=1              the settings; the first step
    ask r1 s b priority=9   a request r1 of session s for the profile b; `hold`: and every process does what it is told
    free r1 => stop w1 retired
    held r1@w2 / open r1 / error r1 ProfileBroken some words / workers w1 w2 / stopping w1 / opens w1 s file
    ! forget s in use       a step that is refused with these words

``nothing`` stands for no action; a profile is ``agent:name/model+skill+skill``, of which only the name is needed. The
machine's own audit follows every step.
"""

import ast
import re
from typing import Any

import msgspec
import pytest

from errors import UsageError, WorkerError
from pool import stimuli
from pool import stimuli as actions
from pool.stimuli import Action, FailureKind
from profiles.profile import CapabilityProfile
from tests.pool.world import World, make_profile


def play(transcript: str) -> "Player":
    """Do what a transcript says, in a world whose books object to what must not be."""
    player = Player()
    for step in filter(None, map(str.strip, re.split(r";|\n", transcript))):
        player.step(step)
    return player


def profile_of(text: str) -> CapabilityProfile:
    agent, _, rest = str(text).rpartition(":")
    base, *skills = rest.split("+")
    name, _, model = base.partition("/")
    return make_profile(name, model=None if model == "-" else model or "m", skills=skills, agent=agent or "main")


class Player:
    """One world, and the verbs of a transcript."""

    def __init__(self) -> None:
        self.world = World()

    def step(self, step: str) -> None:
        stimulus, arrow, expected = (part.strip() for part in step.partition("=>"))
        begin = len(self.world.happened)
        if stimulus.startswith("! "):
            call, _, words = stimulus[2:].partition(": ")
            with pytest.raises(UsageError, match=words or None):
                self._call(call)
            return
        self._call(stimulus)
        self.world.machine.validate()
        happened = ", ".join(map(said, self.world.happened[begin:])) or "nothing"
        assert not arrow or happened == expected, f"{stimulus} => {happened}"

    def _call(self, text: str) -> None:
        verb, *words = text.split()
        if verb == "error":
            self.error(*words)
            return
        options = dict(word.split("=", 1) for word in words if "=" in word)
        method = getattr(self, verb, None) or getattr(self.world, verb)
        method(*(_value(word) for word in words if "=" not in word), **{k: _value(v) for k, v in options.items()})

    # --- stimuli ----------------------------------------------------------------------------------------------------

    def pool(self, **settings: Any) -> None:
        self.world = World(**settings)

    def ask(self, request: str, session: str, profile: str = "a", **options: Any) -> None:
        self.world.acquire(session, profile_of(profile), request=request, **options)

    def hold(self, request: str, session: str, profile: str = "a", **options: Any) -> None:
        self.world.held(session, profile_of(profile), request=request, **options)

    def use(self, session: str, profile: str = "a", **options: Any) -> None:
        """A whole turn."""
        request = f"turn {self.world.request_count}"
        self.world.release(self.world.held(session, profile_of(profile), request=request, **options))

    def free(self, request: str, turns: int = 1) -> None:
        self.world.release(request, turns)

    def settle(self) -> None:
        self.world.run_until_settled()

    def ready(self, worker: str, node: str = "") -> None:
        self.world.ready(worker, node)

    def reset(self, worker: str, *transcript: str | None) -> None:
        self.world.reset_done(worker, *transcript)

    def fail(self, worker: str, kind: str, **details: Any) -> None:
        self.world.fail(worker, FailureKind[kind.upper()], **details)

    def fail_start(self, **details: Any) -> None:
        """The one that starts fails, and is gone."""
        (worker,) = (name for name, paper in self.world.workers.items() if not paper.ready and not paper.stopping)
        self.world.fail(worker, FailureKind.START, **details)
        self.world.exit(worker)

    def wait(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    def sleep(self, seconds: float) -> None:
        """Time passes in which the machine is not called, although it asked to be."""
        self.world.now += seconds

    def busy(self, session: str) -> None:
        self.world.set_busy(session)

    def quiet(self, session: str) -> None:
        self.world.set_quiet(session)

    def background(self, worker: str, running: int) -> None:
        self.world.run_in_background(worker, running)

    def prewarm(self, **targets: int) -> None:
        self.world.tell(stimuli.SetPrewarm(tuple((profile_of(name), count) for name, count in targets.items())))

    def stop(self, worker: str) -> None:
        self.world.tell(stimuli.StopWorker(worker))

    def recycle(self, worker: str) -> None:
        self.world.tell(stimuli.RecycleWorker(worker))

    def empty(self, *workers: str) -> None:
        """The node of these workers is to be empty."""
        for worker in workers:
            self.world.tell(stimuli.RecycleWorker(worker, replace=False))

    def change(self, worker: str) -> None:
        self.world.tell(stimuli.WorkerModified(worker))

    def know(self, session: str, transcript: str) -> None:
        self.world.tell(stimuli.SessionKnown(session, transcript))

    def asks(self, session: str, call: str | None = None) -> None:
        """Its turn waits for a person."""
        self.world.tell(stimuli.SessionAsks(session, call))

    def forgets(self, agent: str, forgets: bool = True) -> None:  # noqa: FBT001, FBT002  # a word of a transcript
        """Whether a conversation is lost to that agent with its process."""
        self.world.tell(stimuli.AgentLearned(agent, forgets=forgets))

    def memory(self, **rss: int) -> None:
        self.world.tell(stimuli.MemoryUsage(rss))

    def current(self, *profiles: str) -> None:
        """The settings yield these profiles now, and no others."""
        self.world.tell(stimuli.ProfilesChanged(frozenset(profile_of(name).signature for name in profiles)))

    def settings(self, **changes: Any) -> None:
        world = self.world
        settings = msgspec.structs.replace(world.settings, **changes)
        world.limit = max(settings.max, len(world.workers), world.limit)
        world.tell(stimuli.SettingsChanged(settings))
        world.settings, world.limit = settings, max(settings.max, len(world.workers))

    def capacity(self, *, here: int = 0, starters: int = 1, start_rate: float | None = None, **slots: int) -> None:
        """Slots by group; ``here`` are those of this machine."""
        self.world.set_capacity({"": here, **slots}, starters=starters, start_rate=start_rate)

    def pause(self) -> None:
        self.world.tell(stimuli.Pause())

    def resume(self) -> None:
        self.world.tell(stimuli.Resume())

    def drain(self) -> None:
        self.world.tell(stimuli.Drain())

    def close(self) -> None:
        self.world.tell(stimuli.Close())

    def news(self, kind: str, worker: str, *rest: Any) -> None:
        """What a worker says without having been asked."""
        error = (FailureKind.RECONCILE, WorkerError("x")) if kind == "WorkerFailed" else ()
        self.world.tell(getattr(stimuli, kind)(worker, *rest, *error))

    # --- what must be so --------------------------------------------------------------------------------------------

    def held(self, *requests: str) -> None:
        for request, _, worker in (str(each).partition("@") for each in requests):
            assert request in self.world.holds, self.world.errors.get(request, f"{request} waits")
            assert not worker or self.world.worker_of(request) == worker

    def open(self, *requests: str) -> None:
        assert set(requests) <= set(self.world.open_requests)

    def error(self, request: str, kind: str, *words: str) -> None:
        error = self.world.errors[request]
        assert type(error).__name__ == kind
        assert " ".join(words) in str(error)

    def level(self, request: str, level: str) -> None:
        assert self.world.levels[request].label == level

    def workers(self, *names: str) -> None:
        assert list(self.world.workers) == list(names)

    def stopping(self, *names: str) -> None:
        assert [name for name, paper in self.world.workers.items() if paper.stopping] == list(names)

    def opens(self, worker: str, *conversation: str) -> None:
        """Which session's transcript it is being given, and from which file; none = it is not being reset."""
        resetting = self.world.workers[worker].resetting
        assert [part for part in resetting or () if part is not None] == list(conversation)

    def spawned(self, count: int) -> None:
        assert len(self.world.spawn_times) == count

    def next(self, seconds: float | None) -> None:
        due = self.world.machine.next_wakeup()
        assert (due if due is None else due - self.world.now) == (
            seconds if seconds is None else pytest.approx(seconds)
        )

    def most(self, count: int) -> None:
        """Workers that may live now."""
        assert self.world.machine.snapshot(self.world.now).counts.max == count

    def reason(self, request: str, *words: str) -> None:
        """What the request waits for, by the status."""
        (found,) = [each for each in self.world.machine.snapshot(self.world.now).waiters if each.request == request]
        assert found.why == " ".join(map(str, words))

    def needs(self, session: str, *words: str) -> None:
        """What would have to happen, as it is explained."""
        wait = self.world.machine.explain(session).wait
        assert wait is not None
        assert wait.needs == " ".join(words)

    def counter(self, name: str, count: int) -> None:
        counters = self.world.machine.snapshot(self.world.now).counters
        assert (counters.exits.get(name[6:], 0) if name.startswith("exits.") else getattr(counters, name)) == count

    def session(self, key: str, state: str, *transcript: str) -> None:
        found = [each for each in self.world.machine.snapshot(self.world.now).sessions if each.key == key]
        assert [each.state for each in found] == ([] if state == "unknown" else [state])
        assert not transcript or [each.transcript for each in found] == list(transcript)

    def breaker(self, profile: str, state: str) -> None:
        short = profile_of(profile).short
        found = [each for each in self.world.machine.snapshot(self.world.now).profiles if each.profile == short]
        assert (found[0].breaker if found else "closed") == state

    def event(self, name: str, **data: Any) -> None:
        assert any(event == name and data.items() <= found.items() for event, found in self.world.events)


def said(action: Action) -> str:
    words: tuple[str | None, ...] = ()
    match action:
        case actions.Spawn():
            words = ("spawn", action.worker, _label(action.profile), f"near {action.near}" if action.near else None)
        case actions.Reset():
            words = ("reset", action.worker, action.session, action.resume_from, "fresh" if action.is_fresh else None)
        case actions.Reconcile():
            words = ("reconcile", action.worker, action.soft.model)
        case actions.Grant():
            words = ("grant", action.request, action.hold.worker)
        case actions.Reject():
            words = ("reject", action.request, action.error.code)
        case actions.Stop():
            words = ("kill" if action.force else "stop", action.worker, action.reason.value)
    return " ".join(filter(None, words))


def _label(profile: CapabilityProfile) -> str:
    agent = "" if profile.agent == "main" else f"{profile.agent}:"
    model = {"m": "", None: "/-"}.get(profile.soft.model, f"/{profile.soft.model}")
    return f"{agent}{profile.cwd[1:]}{model}{''.join(f'+{skill}' for skill in profile.resources.skills)}"


def _value(word: str) -> Any:
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError):
        return word
