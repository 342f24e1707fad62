"""Whatever comes in whatever order: each request is answered once, no question stays open, no phase is impossible."""

import json
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.doors.acp.talk import OPENED, Talk, text

KEYS = ("acp-1", "acp-2")
ANSWERS: dict[str, Any] = {
    "sessions.history": {"messages": []},
    "sessions.list": [],
    "agent.wait": {"status": "ok", "reason": "completed"},
    "approvals.show": {"page": {"parts": []}},
}
STEPS = (
    *("new", "load", "resume", "close", "prompt", "prompt", "steer", "cancel", "option", "list"),
    *("answer", "answer", "answer", "answer", "refuse", "lose", "connect", "done", "done", "text", "ask", "decided"),
    *("behind", "deleted", "choose", "patched"),
)


class World:
    """A machine with an editor and a pool that do anything."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.talk = Talk()
        self.talk.open(subscription="s0")
        self.sent: list[int] = []
        self.answered: Counter[int] = Counter()
        self.questions: set[int] = set()
        self.runs: list[str] = []
        self.open: list[tuple[str, str, dict[str, Any]]] = []
        self.subscriptions = ["s0"]
        self.is_up = True

    def step(self, name: str) -> None:
        key = self.data.draw(st.sampled_from(KEYS))
        talk, prompt = self.talk, [text("hello")]
        match name:
            case "new":
                self.sent.append(talk.send("session/new", cwd="/p", mcpServers=[]))
            case "load" | "resume":
                self.sent.append(talk.send(f"session/{name}", sessionId=key, cwd="/p", mcpServers=[]))
            case "close":
                self.sent.append(talk.send("session/close", sessionId=key))
            case "prompt":
                self.sent.append(talk.send("session/prompt", sessionId=key, prompt=prompt))
            case "steer":
                self.sent.append(talk.send("_session/steering", sessionId=key, prompt=prompt))
            case "option":
                self.sent.append(talk.send("session/set_config_option", sessionId=key, configId="model", value="m"))
            case "list":
                self.sent.append(talk.send("session/list"))
            case "cancel":
                talk.notify("session/cancel", sessionId=key)
            case "choose" if self.questions:
                number = self.data.draw(st.sampled_from(sorted(self.questions)))
                self.questions.discard(number)
                outcome = {"outcome": {"outcome": "selected", "optionId": "allow"}}
                talk.line({"jsonrpc": "2.0", "id": number, "result": outcome})
            case _:
                self.pool(name)
        self.look()

    def pool(self, name: str) -> None:
        talk = self.talk
        subscription = self.data.draw(st.sampled_from(self.subscriptions))
        match name:
            case "answer" | "refuse" if self.open:
                identity, method, params = self.open.pop(self.data.draw(st.integers(0, len(self.open) - 1)))
                error = {"code": self.data.draw(st.sampled_from(["usage", "saturated"])), "message": "no"}
                body = {"error": error} if name == "refuse" else {"result": self.result(method, params)}
                talk._message({"id": identity, **body})
            case "lose":
                self.open.clear()
                self.is_up = False
                talk.lose("gone")
            case "connect" if not self.is_up:
                self.is_up = True
                talk.machine.on_connected()
            case "done" if self.runs:
                run = self.data.draw(st.sampled_from(self.runs))
                talk.event("done", run, subscription=subscription, reason="completed", text="")
            case _:
                self.tell(name, subscription)

    def tell(self, name: str, subscription: str) -> None:
        talk = self.talk
        match name:
            case "text":
                talk.event("text_chunk", "r", subscription=subscription, delta="x")
            case "ask":
                call = {"id": self.data.draw(st.sampled_from(["c1", "c2"])), "name": "exec"}
                talk.event("permission_required", "r", subscription=subscription, call=call)
            case "decided":
                talk.event("permission_decided", "r", subscription=subscription, call_id="c1", decision="allow")
            case "behind":
                talk.push("subscription_ended", subscription=subscription, bookmark=5, reason="behind")
            case "deleted":
                talk.event("session_deleted", subscription=subscription)
            case "patched":
                talk.event("session_patched", subscription=subscription, changed=["model"])

    def result(self, method: str, params: dict[str, Any]) -> Any:
        if method == "sessions.open":
            key = params.get("session") or self.data.draw(st.sampled_from(KEYS))
            return {**OPENED, "session": key, "head": 1, "pending": [{"id": "c2", "name": "exec"}]}
        if method == "subscribe":
            self.subscriptions.append(f"s{len(self.subscriptions)}")
            return {"subscription": self.subscriptions[-1], "complete": self.data.draw(st.booleans())}
        return ANSWERS.get(method, {})

    def look(self) -> None:
        for raw in self.talk.machine.take_pool_lines():
            line = json.loads(raw)
            if line["method"] == "agent":
                self.runs.append(line["params"]["run"])
            self.open.append((line["id"], line["method"], line.get("params", {})))
        if not self.is_up and self.open:  # the program would have tried to connect
            self.pool("lose")
        for told in self.talk.told():
            match told:
                case {"method": "session/request_permission", "id": number}:
                    self.questions.add(number)
                case {"method": "$/cancel_request", "params": {"requestId": number}}:
                    assert number in self.questions, "it was asked, and not answered"
                    self.questions.discard(number)
                case {"id": identity}:
                    self.answered[identity] += 1


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(STEPS), max_size=60), st.data())
def test_each_request_is_answered_once_and_every_question_ends(steps: list[str], data: st.DataObject) -> None:
    world = World(data)
    for step in steps:
        world.step(step)
    assert max(world.answered.values(), default=1) == 1
    world.pool("lose")
    world.look()
    assert world.answered == Counter(world.sent)
    assert world.questions == set()
