"""A real ``pool run`` that exports traces: to a collector that takes them, and to one that never answers."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from fixtures.otlp_collector import OtlpCollector, collecting
from tests.acceptance.supervisor import Supervisor, running_supervisor, tool

pytestmark = pytest.mark.process

TOKEN = "of-good-hope-0123456789"
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SETTINGS = """
[http]
bind = "127.0.0.1:0"
token_file = "token"

[telemetry]
traces = true

[agents.main]
permission_mode = "auto"
"""


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")


@contextmanager
def traced(place: Path, collector: OtlpCollector, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    (place / "pool.toml").write_text(SETTINGS)
    (place / "token").write_text(TOKEN)
    (place / "token").chmod(0o600)
    with running_supervisor(place / "data", "--config", str(place / "pool.toml")) as supervisor:
        yield supervisor


@contextmanager
def http(supervisor: Supervisor) -> Iterator[httpx.Client]:
    url = supervisor.status()["supervisor"]["http"]["url"]
    headers = {"authorization": f"Bearer {TOKEN}", "traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "a=1"}
    with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
        yield client


def test_the_spans_of_requests_arrive_below_their_callers_and_commands_find_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting() as collector, traced(tmp_path, collector, monkeypatch) as supervisor, http(supervisor) as client:
        body = {"session": "alice", "text": tool("echo is=$TRACEPARENT $TRACESTATE") + " TELL"}
        answer = client.post("/api/prompt", json=body).json()
        messages = [{"role": "user", "content": "ECHO:hello"}]
        client.post("/v1/chat/completions", json={"model": "main", "messages": messages}).raise_for_status()
        roots = collector.wait_for("invoke_agent main", 2)
        turns = collector.wait_for("turn", 2)
        (call,) = collector.wait_for("execute_tool exec", 1)
    assert [(span["trace"], span["above"], span["kind"]) for span in roots] == [(TRACE, SPAN, 2)] * 2
    (root,) = [span for span in roots if span["attributes"]["gen_ai.conversation.id"] == "alice"]
    (turn,) = [span for span in turns if span["above"] == root["id"]]
    assert call["above"] == turn["id"]
    assert f"is=00-{TRACE}-{turn['id']}-01 a=1" in answer["text"]
    below = {span["name"]: span for span in collector.spans if span["above"] == root["id"]}
    assert below.keys() == {"accept", "wait", "lease", "turn"}
    assert all(root["start"] <= span["start"] <= span["end"] <= root["end"] for span in below.values())
    assert {span["service"] for span in collector.spans} == {"pool"}
    assert root["attributes"]["pool.run"] == answer["run_id"]


def test_a_collector_that_never_answers_delays_no_turn_and_the_end_by_seconds_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    with collecting(answers=False) as collector:
        with traced(tmp_path, collector, monkeypatch) as supervisor:
            supervisor.prompt("alice", "ECHO:hello")
            assert collector.asked.wait(60)
            for number in range(20):
                assert supervisor.prompt("alice", f"ECHO:{number}") == str(number)
            began = time.monotonic()
        assert time.monotonic() - began < 20, "a request waits a minute for its answer"
