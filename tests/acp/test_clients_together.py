"""Every client of the door at once on one session: the official SDK's, acpx, one written by hand, and other doors."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from fixtures.acp_real import ACPX, SDK, SDK_NODE, private_environment
from tests.acceptance.front_ends import EventReader, GatewaySocket, event_reader, gateway_socket
from tests.acceptance.supervisor import POOL, Supervisor, running_supervisor, tool
from tests.acp.client import Client, Json, select_option
from tests.acp.conftest import unavailable

pytestmark = [pytest.mark.real_acp, pytest.mark.process]

SESSION, TOKEN = "together", "a-token-of-the-tests-0123456789"
SETTINGS = f"""
[pool]
min = 1
max = 2
[gateway.queue]
mode = "followup"
[http]
bind = "127.0.0.1:0"
token = "{TOKEN}"
[agents.careful]
permission_mode = "approval"
"""
BRIDGE = Path(__file__).resolve().parents[2] / "fixtures" / "acp_sdk_client.mjs"
AGENT = ["acp", "--session", SESSION, "--agent", "careful"]


class Editor(Client):
    """A client of the door; a question stays open until the test answers it."""

    def decided(self, message: Json) -> None:
        """Not yet."""

    def open(self, project: Path) -> "Editor":
        self.start()
        assert self.new(project) == SESSION
        return self

    def send_prompt(self, text: str) -> int:
        return self.begin("session/prompt", sessionId=SESSION, prompt=[{"type": "text", "text": text}])

    def question(self) -> Json:
        return dict(self.until(lambda: self.asked.pop() if self.asked else None))

    def completed(self) -> list[Json]:
        return [update for update in self.updates if update.get("status") == "completed"]

    def has_turns(self, count: int) -> bool:
        return len(self.answers_of_turns()) == count

    def answers_of_turns(self) -> list[str]:
        """What was said in each turn, in order; a piece of text names its turn."""
        chunks = [update for update in self.updates if update["sessionUpdate"] == "agent_message_chunk"]
        turns = groupby(chunks, lambda chunk: chunk["messageId"].rpartition(".")[0])
        return ["".join(chunk["content"]["text"] for chunk in turn) for _, turn in turns]


class Company:
    """All of them, in one session and one directory."""

    def __init__(self, supervisor: Supervisor, project: Path, stack: ExitStack) -> None:
        self.supervisor, self.project = supervisor, project
        env = {**os.environ, "POOL_SOCKET": str(supervisor.socket), "ACP_SDK": str(SDK)}
        by_sdk = [str(SDK_NODE), str(BRIDGE), *POOL, *AGENT]
        self.hand: Editor = stack.enter_context(Editor([*POOL, *AGENT], env=env)).open(project)
        self.sdk: Editor = stack.enter_context(Editor(by_sdk, env=env)).open(project)
        url = str(supervisor.status()["supervisor"]["http"]["url"])
        self.socket: GatewaySocket = stack.enter_context(gateway_socket(url, TOKEN))
        self.events: EventReader = stack.enter_context(event_reader(url, TOKEN, SESSION))
        self._home = project.parent / "home"
        self._env = {**private_environment(self._home), "POOL_SOCKET": str(supervisor.socket)}

    def acpx(self, text: str, *flags: str) -> "subprocess.Popen[str]":
        """``acpx pool exec``, which starts the program ``pool`` of its PATH with ``acp``."""
        program = self._home / "bin" / "pool"
        program.parent.mkdir(exist_ok=True)
        words = " ".join([*POOL, *AGENT])
        program.write_text(f'#!/bin/sh\n[ "$*" = acp ] && exec {words}\necho "unexpected: $*" >&2\nexit 2\n')
        program.chmod(0o755)
        path = f"{program.parent}:{self._env['PATH']}"
        command = [str(ACPX), *flags, "--cwd", str(self.project), "pool", "exec", text]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, env={**self._env, "PATH": path}, cwd=self.project, stdout=pipe, stderr=pipe, text=True
        )

    def wait_for_turns(self, count: int) -> list[Json]:
        """The runs that have ended, in order, once there are ``count`` of them."""
        for _ in range(count - len(self.of_events("done"))):
            self.events.until(lambda event: event["type"] == "done")
        return self.of_events("done")

    def of_events(self, kind: str) -> list[Json]:
        return [event["data"] for event in self.events.seen if event["type"] == kind]


@pytest.fixture
def company(tmp_path: Path) -> Iterator[Company]:
    for program in (ACPX, SDK_NODE):
        if not program.exists():
            unavailable(f"{program} does not exist")
    project = tmp_path / "project"
    project.mkdir()
    with ExitStack() as stack:
        supervisor = stack.enter_context(running_supervisor(tmp_path / "d", settings=SETTINGS))
        yield Company(supervisor, project, stack)


def ended(process: "subprocess.Popen[str]") -> str:
    said, complaints = process.communicate(timeout=90)
    assert process.returncode == 0, complaints
    return said


def test_all_see_all_turns_in_one_order_one_at_a_time_and_none_twice(company: Company) -> None:
    hand = company.hand.send_prompt("ECHO:by hand")
    acpx = company.acpx("ECHO:by acpx")
    prompt = company.supervisor.start("prompt", "-s", SESSION, "ECHO:by prompt")
    sdk = company.sdk.send_prompt("ECHO:by sdk")
    company.socket.ask("agent", message="ECHO:by socket", sessionKey=SESSION, idempotencyKey="k1")
    ends = company.wait_for_turns(5)
    order = [end["text"] for end in ends]
    assert sorted(order) == ["by acpx", "by hand", "by prompt", "by sdk", "by socket"]
    assert "by acpx" in ended(acpx)
    assert ended(prompt).strip() == "by prompt"
    assert company.hand.answer(hand)["result"] == {"stopReason": "end_turn"}
    assert company.sdk.answer(sdk)["result"]["stopReason"] == "end_turn"
    kinds = [event["type"] for event in company.events.seen if event["type"] in ("run:start", "done")]
    assert kinds == ["run:start", "done"] * 5, "one turn at a time"
    for editor, own in ((company.hand, "by hand"), (company.sdk, "by sdk")):
        editor.until(partial(editor.has_turns, 5))
        assert editor.answers_of_turns() == order
        heard = [each["content"]["text"] for each in editor.updates if each["sessionUpdate"] == "user_message_chunk"]
        assert heard == [f"ECHO:{text}" for text in order if text != own], "what others have asked"
    company.socket.until("chat", lambda chat: chat["state"] == "final", 5)
    chats = [chat for chat in company.socket.payloads("chat") if chat["state"] == "final"]
    assert [text_of(chat["message"]) for chat in chats] == order


@pytest.mark.parametrize("decider", ["hand", "sdk", "acpx", "approve"])
def test_a_question_is_put_to_all_and_decided_by_the_first(company: Company, decider: str) -> None:
    words = f"{tool('echo x >> made')} TELL"
    if decider == "acpx":
        asking = company.acpx(words, "--approve-all")
    else:
        asking = company.supervisor.start("prompt", "-s", SESSION, words)
    editors = {"hand": company.hand, "sdk": company.sdk}
    questions = {name: editor.question() for name, editor in editors.items()}
    calls = {question["params"]["toolCall"]["toolCallId"] for question in questions.values()}
    assert len(calls) == 1
    if decider in editors:
        allow(editors[decider], questions[decider])
    elif decider == "approve":
        assert company.supervisor.pool("approve", *calls, "-s", SESSION).returncode == 0
    ended(asking)
    company.wait_for_turns(1)
    assert (company.project / "made").read_text() == "x\n", "run once"
    for name, editor in editors.items():
        updates = editor.until(editor.completed)
        assert [update["toolCallId"] for update in updates] == list(calls)
        withdrawn = [json.loads(line)["params"]["requestId"] for line in editor.others if b"$/cancel" in line]
        assert withdrawn == ([] if name == decider else [questions[name]["id"]])
    assert len(company.of_events("permission_decided")) == 1


def allow(editor: Editor, question: Json) -> None:
    result = select_option("allow_once")(question)
    editor.send(json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": result}).encode())


def text_of(message: Any) -> str:
    return "".join(part.get("text", "") for part in message["content"])
