"""Whatever order clients, pi and the pipe between them take: one answer each, nothing lost, nothing left behind."""

import json
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rpc.dialect import Step
from rpc.pi import PiDialect
from rpc.settings import RpcSettings
from tests.rpc.pi.model_pi import ModelPi


def _few_wait(machine: Any) -> bool:
    """Clients that only ask would keep the rest from happening."""
    return len(machine.asked) - len(machine.answers) < 3


class AnyOrder(RuleBasedStateMachine):
    """Clients ask, pi works, the pipe delivers, in any order."""

    @initialize(keeps_transcript=st.booleans(), calm=st.booleans())
    def boot(self, keeps_transcript: bool, calm: bool) -> None:  # noqa: FBT001 - hypothesis passes them by name
        self.calm = calm  # nobody aborts anything: the case in which nothing may be lost
        self.pi = ModelPi(keeps_transcript=keeps_transcript)
        self.dialect = PiDialect(RpcSettings(), allow_bash=False)
        self.now = 0.0
        self.asked: dict[str, str] = {}
        self.answers: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self.disturbed = False
        self.last_seq = 0
        self.runs = 0
        self.take(self.dialect.open(self.now))
        self.settle()

    # --- clients ---

    @precondition(_few_wait)
    @rule(run=st.sampled_from([None, "steer", "follow_up"]))
    def prompt(self, run: str | None) -> None:
        self.ask("prompt", text=f"text {len(self.asked)}", **({"streaming_behavior": run} if run else {}))

    @precondition(_few_wait)
    @rule(method=st.sampled_from(["steer", "follow_up"]))
    def join(self, method: str) -> None:
        self.ask(method, text=f"text {len(self.asked)}")

    @precondition(lambda self: _few_wait(self) and not self.calm)
    @rule(keep=st.booleans())
    def abort(self, keep: bool) -> None:  # noqa: FBT001 - as above
        self.disturbed = True
        self.ask("abort", keep_queue=keep)

    @precondition(lambda self: _few_wait(self) and not self.calm)
    @rule()
    def new_session(self) -> None:
        self.disturbed = True
        self.ask("new_session")

    @precondition(_few_wait)
    @rule(method=st.sampled_from(["ping", "get_state"]))
    def look(self, method: str) -> None:
        self.ask(method)

    # --- pi and the pipe ---

    @precondition(lambda self: self.pi.inbox)
    @rule(commands=st.integers(1, 3))
    def pi_works(self, commands: int) -> None:
        for _ in range(min(commands, len(self.pi.inbox))):
            self.pi.work()

    @precondition(lambda self: self.pi.can_go_on)
    @rule(fails=st.booleans())
    def pi_goes_on(self, fails: bool) -> None:  # noqa: FBT001 - as above
        self.pi.go_on(fails=fails)

    @precondition(lambda self: self.pi.said)
    @rule(lines=st.integers(1, 8))
    def pipe_delivers_again(self, lines: int) -> None:
        """The same once more: a run needs many of these steps and one request."""
        self.pipe_delivers(lines)

    @precondition(lambda self: self.pi.said)
    @rule(lines=st.integers(1, 8))
    def pipe_delivers(self, lines: int) -> None:
        said = [self.pi.said.popleft() for _ in range(min(lines, len(self.pi.said)))]
        self.take(self.dialect.receive(b"".join(json.dumps(line).encode() + b"\n" for line in said), self.now))

    @precondition(lambda self: self.dialect.next_deadline() is not None)
    @rule(seconds=st.sampled_from([0.1, 2.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        due = self.dialect.next_deadline()
        if due is not None and due <= self.now:
            self.take(self.dialect.expire(self.now))

    # --- what must hold ---

    @invariant()
    def pi_never_loses_a_text(self) -> None:
        if not self.disturbed:
            assert self.pi.lost == []

    def teardown(self) -> None:
        if not hasattr(self, "pi"):
            return
        self.settle()
        assert self.answers.keys() == self.asked.keys(), "every request has its answer"
        assert not self.dialect.is_running
        assert self.runs == 0, "every run that began has ended"
        if not self.disturbed:
            accepted = [self.texts[key] for key in self.texts if not self.answers[key].startswith("error")]
            assert sorted(self.pi.heard) == sorted(accepted), "what was accepted was heard, once, and nothing else"
            assert self.pi.queued == 0
        assert len(self.pi.heard) == len(set(self.pi.heard)), "nothing is heard twice"

    # --- inside ---

    def ask(self, method: str, **params: object) -> None:
        request_id = f"q{len(self.asked)}"
        self.asked[request_id] = method
        if "text" in params:
            self.texts[request_id] = str(params["text"])
        self.take(self.dialect.request(request_id, method, msgspec.Raw(msgspec.json.encode(params)), self.now))

    def take(self, step: Step) -> None:
        for line in step.outgoing:
            self.pi.take(line)
        for message in step.messages:
            if message.event is None:
                assert str(message.id) not in self.answers, "one answer each"
                self.answers[str(message.id)] = f"error {message.error.code}" if message.error else "good"
                continue
            seq = json.loads(bytes(message.data)).get("seq")
            assert seq is None or seq > self.last_seq, "events are numbered upwards"
            self.last_seq = seq or self.last_seq
            self.runs += {"run_start": 1, "done": -1}.get(message.event, 0)
            assert self.runs in (0, 1), "one run at a time"

    def settle(self) -> None:
        for _ in range(2000):
            if self.pi.inbox:
                self.pi.work()
            elif self.pi.said:
                self.pipe_delivers(1)
            elif not self.pi.is_quiet:
                self.pi.go_on()
            elif (due := self.dialect.next_deadline()) is not None:
                self.now = max(self.now, due)
                self.take(self.dialect.expire(self.now))
            else:
                return
        raise AssertionError("it never comes to rest")


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
