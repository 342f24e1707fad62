"""Whatever order callers, an ACP agent and time take: one answer each, one prompt at a time, no id loaded twice."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.rpc.acp.agent import Agent, piece, update, user_message

SESSIONS = st.sampled_from(["s1", "s2", "s3", "old"])
CALLS = st.sampled_from(["t1", "t2"])


class AnyOrder(RuleBasedStateMachine):
    """An agent that answers what it was asked, or not, and says what it likes in between."""

    @initialize(mode=st.sampled_from(["approval", "auto", "readonly"]), closes=st.booleans())
    def boot(self, *, mode: str, closes: bool) -> None:
        sessions: dict[str, Any] = {"close": {}} if closes else {}
        abilities = {"loadSession": True, "sessionCapabilities": {**sessions, "resume": {}}}
        self.agent = Agent(abilities=abilities, permission_mode=mode)
        self.questions: list[int] = []
        self.begun = 1
        self.seen = 0
        self.held = {"s1"}
        self.asked: list[str] = []

    # --- callers ---

    def ask(self, method: str, **params: Any) -> None:
        self.asked.append(self.agent.ask(method, **params))

    @rule(behavior=st.sampled_from([None, "steer"]))
    def prompt(self, behavior: str | None) -> None:
        self.ask("prompt", text=f"text {len(self.asked)}", streaming_behavior=behavior)

    @precondition(lambda self: not self.agent.dialect.is_running)
    @rule()
    def whole_turn(self) -> None:
        before = len(self.agent.sent)
        self.ask("prompt", text="known")
        for line in self.agent.sent[before:]:
            self.agent.written.remove(line)
            self.agent.say({"jsonrpc": "2.0", "id": line["id"], "result": {"stopReason": "end_turn"}})

    @rule(method=st.sampled_from(["abort", "new_session", "get_state", "ping"]))
    def request(self, method: str) -> None:
        self.ask(method)

    @rule()
    def probe(self) -> None:
        self.ask("probe_resume", nonce=f"{len(self.asked):032x}")  # each its own, as random ones are

    @rule(session=SESSIONS, turns=st.integers(0, 2), clean=st.booleans(), honest=st.booleans())
    def switch(self, *, session: str, turns: int, clean: bool, honest: bool) -> None:
        facts: dict[str, Any] = {
            "turns": turns,
            "last_user_text": "known",
            "tail": "user:known",
            "closed_cleanly": clean,
        }
        self.asked.append(self.agent.switch(session, honest=honest, **facts))

    @rule(call=CALLS, decision=st.sampled_from(["allow", "deny"]))
    def decide(self, call: str, decision: str) -> None:
        self.ask("decide", call_id=call, decision=decision, note="because")

    # --- the agent and time ---

    @precondition(lambda self: any("id" in line for line in self.agent.written))
    @rule(refuses=st.booleans(), data=st.data())
    def answer(self, *, refuses: bool, data: Any) -> None:
        line = data.draw(st.sampled_from([line for line in self.agent.written if "id" in line]))
        self.agent.written.remove(line)
        reply: dict[str, Any] = {"result": self.result_of(line)}
        refused = refuses and line["method"] != "session/new"
        if refused:
            reply = {"error": {"code": -32603, "message": "no"}}
        is_load = line["method"] in ("session/load", "session/resume")
        if (is_load and refused) or (line["method"] == "session/close" and not refused):
            self.held.discard(line["params"]["sessionId"])
        self.agent.say({"jsonrpc": "2.0", "id": line["id"], **reply})

    def result_of(self, line: dict[str, Any]) -> dict[str, Any]:
        if line["method"] == "session/new":
            self.begun += 1
            self.held.add(f"s{self.begun}")
            return {"sessionId": f"s{self.begun}"}
        return {"stopReason": "end_turn"} if line["method"] == "session/prompt" else {}

    @rule(session=SESSIONS, kind=st.integers(0, 3), call=CALLS)
    def say(self, session: str, kind: int, call: str) -> None:
        line = (
            piece("x", session=session),
            user_message("known", session=session),
            update("tool_call", session=session, toolCallId=call, title="x"),
            update("tool_call_update", session=session, toolCallId=call, status="completed"),
        )[kind]
        self.agent.say(line)

    @rule(session=SESSIONS, call=CALLS)
    def question(self, session: str, call: str) -> None:
        identity = 1000 + len(self.questions)
        self.questions.append(identity)
        self.agent.ask_permission(identity, call, session=session)

    @rule(seconds=st.sampled_from([0.5, 3.0, 40.0]))
    def wait(self, seconds: float) -> None:
        self.agent.wait(seconds)

    # --- what holds ---

    @invariant()
    def a_prompt_waits_for_the_answer_to_the_one_before(self) -> None:
        if not hasattr(self, "agent"):
            return
        open_prompts = [line for line in self.agent.written if line["method"] == "session/prompt"]
        given_up = sum("did not answer the cancelled prompt" in line for line in self.agent.reported)
        assert len(open_prompts) <= 1 + given_up

    @invariant()
    def nothing_is_answered_twice(self) -> None:
        if not hasattr(self, "agent"):
            return
        answered = [message.id for message in self.agent.messages if message.event is None]
        assert len(answered) == len(set(answered))
        questions = [line["id"] for line in self.agent.sent if "method" not in line]
        assert len(questions) == len(set(questions))

    @invariant()
    def no_id_is_loaded_twice_without_a_close(self) -> None:
        if not hasattr(self, "agent"):
            return
        for line in self.agent.sent[self.seen :]:
            if line.get("method") in ("session/load", "session/resume"):
                session = line["params"]["sessionId"]
                assert session not in self.held
                self.held.add(session)
        self.seen = len(self.agent.sent)

    @invariant()
    def every_turn_that_began_is_kept_before_it_is_sent(self) -> None:
        if not hasattr(self, "agent"):
            return
        prompts = [line for line in self.agent.sent if line.get("method") == "session/prompt"]
        users = [entry for entry in self.agent.journal if entry.message and entry.message.role == "user"]
        ends = [entry for entry in self.agent.journal if entry.message and entry.message.role == "assistant"]
        assert len(prompts) == len(users)
        assert len(ends) == len(users) - self.agent.dialect.is_running

    def teardown(self) -> None:
        """Once the agent answers everything, every request has its answer."""
        if not hasattr(self, "agent"):
            return
        self.agent.ask("abort")
        for _ in range(100):
            open_lines = [line for line in self.agent.written if "id" in line]
            self.agent.written = []
            for line in open_lines:
                self.agent.say({"jsonrpc": "2.0", "id": line["id"], "result": self.result_of(line)})
            if not open_lines:
                break
        self.agent.wait(200)
        reported = {message.id for message in self.agent.messages if message.event is None}
        refused = {line.split(":")[0] for line in self.agent.reported if ": usage " in line}
        assert set(self.asked) <= reported | refused
        assert not self.agent.dialect.is_running


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestAnyOrder = AnyOrder.TestCase
