"""All doors at once, in one session: whoever watches, and whoever speaks, takes the same things to have happened."""

import os
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from openai import APIError, OpenAI
from playwright.sync_api import Browser, expect

from tests.acceptance.front_ends import event_reader, gateway_socket, said
from tests.acceptance.supervisor import POOL, Supervisor, running_supervisor
from tests.commands.attached import AttachedProgram
from tests.doors.dashboard.chromium import chromium
from tests.doors.dashboard.site import TOKEN, Site, Visit

pytestmark = [pytest.mark.process, pytest.mark.browser]

SETTINGS = f"""
[pool]
min = 1
max = 3
worker_memory = "100MB"
[gateway.queue]
mode = "followup"
[http]
bind = "127.0.0.1:0"
token = "{TOKEN}"
[agents.careful]
permission_mode = "approval"
[rpc]
abort_grace = "20s"
"""


@pytest.fixture(scope="module")
def supervisor() -> Iterator[Supervisor]:
    with tempfile.TemporaryDirectory(prefix="pool-") as folder:
        config = Path(folder, "pool.toml")
        config.write_text(SETTINGS)
        with running_supervisor(Path(folder, "data"), "--config", str(config)) as running:
            yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as launched:
        yield launched


class Company:
    """Four front ends in one session, and one that only listens."""

    def __init__(self, supervisor: Supervisor, browser: Browser, session: str, agent: str, stack: ExitStack) -> None:
        self.session = session
        self._agent = agent
        self.url = str(supervisor.status()["supervisor"]["http"]["url"])
        command = [*POOL, "attach", "--mode", "rpc", "--session", session, "--agent", agent]
        self.program = stack.enter_context(AttachedProgram(command, POOL_SOCKET=str(supervisor.socket)))
        self.program.until(lambda line: line.get("event") == "ready")  # it is told only what happens from here on
        self.events = stack.enter_context(event_reader(self.url, TOKEN, session))
        self.socket = stack.enter_context(gateway_socket(self.url, TOKEN))
        self.openai = stack.enter_context(OpenAI(base_url=f"{self.url}/v1", api_key=TOKEN, max_retries=0, timeout=20))
        self._threads = stack.enter_context(ThreadPoolExecutor())
        visit = Visit(browser, cast("Site", SimpleNamespace(url=self.url)), sign_in=True)
        stack.callback(visit.close)
        self.page = visit.page
        self.send_from_page = visit.send
        self.page.locator("#new-session").click()
        self.page.locator("#begin-key").fill(session)
        self.page.locator("#begin-key").press("Enter")
        expect(self.page.locator("#prompt")).to_be_focused()

    # --- speaking -----------------------------------------------------------------------------------------------------

    def begin_attached(self, identity: str, text: str) -> None:
        """Returns when the turn has begun."""
        self.program.say({"id": identity, "method": "prompt", "params": {"text": text}})
        self.program.until(lambda line: line.get("event") == "run_start")

    def complete(self, text: str) -> Future[str]:
        """What the official client gets for an answer."""
        return self._threads.submit(lambda: str(self._ask(text).choices[0].message.content))

    def stream(self, text: str) -> Any:
        """What it gets in pieces."""
        return self._ask(text, stream=True)

    def _ask(self, text: str, **options: Any) -> Any:
        messages: Any = [{"role": "user", "content": text}]
        return self.openai.chat.completions.create(model=self._agent, messages=messages, user=self.session, **options)

    def send_from_socket(self, text: str) -> str:
        """The id of the request."""
        return self.socket.ask("agent", message=text, sessionKey=self.session, idempotencyKey=text)

    def wait_until_written(self, text: str) -> None:
        """Until the transcript has what somebody said: from then on it outlives the worker."""
        while ("user", text) not in said(self.socket.call("chat.history", sessionKey=self.session)["messages"]):
            continue

    # --- what each of them takes to have happened ---------------------------------------------------------------------

    def wait_for_turns(self, count: int) -> None:
        """Until everybody has heard so many turns end."""
        for _ in range(count - len(self.of_events("done"))):
            self.events.until(lambda event: event["type"] == "done")
        self.socket.until("chat", lambda chat: chat["state"] in ("final", "aborted", "error"), count)
        while sum(line.get("event") == "done" for line in self.program.seen) < count:
            self.program.until(lambda line: line.get("event") == "done")

    def of_events(self, kind: str) -> list[Any]:
        return [event["data"] for event in self.events.seen if event["type"] == kind]

    def history(self) -> list[tuple[str, str]]:
        """Who said what, on which all must agree."""
        body: Any = {"session": self.session}
        over_http: Any = self.openai.post(f"{self.url}/api/sessions.history", body=body, cast_to=object)
        history = said(over_http["messages"])
        assert said(self.socket.call("chat.history", sessionKey=self.session)["messages"]) == history
        assert said(self.program.ask({"id": "all", "method": "get_messages"})["result"]["messages"]) == history
        for who in ("user", "assistant"):
            shown = self.page.locator(f"#history .said.{who} .text:not(:empty)")
            expect(shown).to_have_text([text for speaker, text in history if speaker == who])
        return history


@contextmanager
def company(supervisor: Supervisor, browser: Browser, session: str, agent: str = "main") -> Iterator[Company]:
    with ExitStack() as stack:
        yield Company(supervisor, browser, session, agent, stack)


def test_four_front_ends_speak_at_the_same_time_and_agree_on_every_turn(
    supervisor: Supervisor, browser: Browser
) -> None:
    with company(supervisor, browser, "team") as them:
        wanted = []
        for number in range(2):
            them.begin_attached(f"a{number}", f"DELAY=300 ECHO:attach {number}")
            completed = them.complete(f"ECHO:openai {number}")
            asked = them.send_from_socket(f"ECHO:socket {number}")
            them.send_from_page(f"ECHO:page {number}")
            assert them.program.answer(f"a{number}")["result"]["text"] == f"attach {number}"
            assert completed.result() == f"openai {number}"
            assert them.socket.answer(asked, 2)["result"]["payloads"] == [{"text": f"socket {number}"}]
            wanted += [f"{door} {number}" for door in ("attach", "openai", "socket", "page")]
            them.wait_for_turns(len(wanted))
        answers = [text for who, text in them.history() if who == "assistant"]
        assert sorted(answers) == sorted(wanted)
        assert [done["text"] for done in them.of_events("done")] == answers
        finals = [chat["message"] for chat in them.socket.payloads("chat") if chat["state"] == "final"]
        assert [text for _, text in said(finals)] == answers
        pieces = [line["data"]["partial"] for line in them.program.seen if line.get("event") == "assistant_message"]
        assert pieces == answers
        told = [run["seq"] for run in them.socket.payloads("chat") if run["state"] == "final"]
        assert told == [event["seq"] for event in them.events.seen if event["type"] == "done"]


def test_a_turn_that_one_begins_is_watched_by_all_and_ended_by_another(
    supervisor: Supervisor, browser: Browser
) -> None:
    with company(supervisor, browser, "watched") as them:
        pieces: list[str] = []
        stream = them.stream("PIECES=1000 DELAY=20")
        pieces += [next(text for chunk in stream if (text := chunk.choices[0].delta.content))]
        expect(them.page.locator("#history [data-live] .text")).to_contain_text("piece 9 ")
        them.socket.until("chat", lambda chat: chat["state"] == "delta")
        assert them.socket.call("chat.abort", sessionKey="watched")["aborted"] is True
        with pytest.raises(APIError, match="was aborted"):
            pieces.extend(chunk.choices[0].delta.content or "" for chunk in stream)
        them.wait_for_turns(1)
        expect(them.page.locator("#conversation-state")).to_have_text("idle")
        (done,) = them.of_events("done")
        assert (done["reason"], done["error"]["code"]) == ("interrupted", "aborted")
        text = done["text"]
        assert "".join(pieces) == text
        assert "".join(piece["delta"] for piece in them.of_events("text_chunk")) == text
        told = [line["data"]["partial"] for line in them.program.seen if line.get("event") == "assistant_message"]
        assert "".join(told) == text
        (last,) = [chat for chat in them.socket.payloads("chat") if chat["state"] == "aborted"]
        assert last["message"]["content"] == [{"type": "text", "text": text}]
        assert them.history() == [("user", "PIECES=1000 DELAY=20"), ("assistant", text.strip())]


def test_what_a_killed_worker_leaves_is_the_same_to_all_and_each_goes_on_from_it(
    supervisor: Supervisor, browser: Browser
) -> None:
    with company(supervisor, browser, "bereft") as them:
        asked = them.send_from_socket("remember-this")
        assert them.socket.answer(asked, 2)["status"] == "ok"
        them.wait_for_turns(1)  # else the begin of that turn is taken for that of the next
        them.begin_attached("lost", "HANG")
        them.wait_until_written("HANG")
        os.kill(supervisor.wait_for_turn("bereft")["pid"], signal.SIGKILL)
        assert them.program.answer("lost")["error"]["code"] == "worker_exited"
        expect(them.page.locator("#history .trouble")).to_contain_text("killed by signal 9")
        assert them.socket.until("chat", lambda chat: chat["state"] == "error")
        assert them.complete("RECALL").result() == 'Earlier you said: ["remember-this","HANG"]'
        them.send_from_page("RECALL")
        them.wait_for_turns(4)
        assert them.history()[-1] == ("assistant", 'Earlier you said: ["remember-this","HANG","RECALL"]')
        assert [done["reason"] for done in them.of_events("done")] == ["completed", "error", "completed", "completed"]


def test_a_call_that_the_official_client_led_to_is_approved_on_the_page_before_the_eyes_of_all(
    supervisor: Supervisor, browser: Browser
) -> None:
    with company(supervisor, browser, "asking", agent="careful") as them:
        completed = them.complete('TOOL:exec {"command": "echo it-was-done"} TELL')
        them.page.locator(".approval").get_by_role("button", name="Approve").click()
        assert completed.result().strip() == "it-was-done"
        them.wait_for_turns(1)
        (required,), (decided,) = them.of_events("permission_required"), them.of_events("permission_decided")
        assert (decided["call_id"], decided["decision"], decided["by"]) == (required["call"]["id"], "allow", "http")
        (resolved,) = them.socket.payloads("exec.approval.resolved")
        assert (resolved["id"], resolved["decision"]) == (decided["call_id"], "allow-once")
        asked = [line["event"] for line in them.program.seen if "permission" in line.get("event", "")]
        assert asked == ["permission_required", "permission_decided"]
        too_late = {"id": "late", "method": "decide", "params": {"call_id": decided["call_id"], "decision": "deny"}}
        assert "error" in them.program.ask(too_late)
        assert them.history()[-1] == ("assistant", "it-was-done")
