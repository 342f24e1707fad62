"""Answers of a real supervisor to each method, taken while the pages are made, and what its ``/metrics`` says."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from app.child import SupervisorProcess
from doors.control.client import ControlClient, read_envelopes

_SETTINGS = """
[pool]
max = 3

[http]
bind = "127.0.0.1:0"

[agents.main]
[agents.reviewer]
permission_mode = "approval"
"""
_LIMIT = 30.0
_JOB = {"id": "standup", "text": "Prepare the stand-up.", "cron": "0 9 * * mon-fri", "tz": "UTC"}
_BEFORE_APPROVAL: tuple[tuple[str, dict[str, Any]], ...] = (
    ("ping", {}),
    ("status", {}),
    ("prompt", {"session": "alice", "text": "ECHO:hello"}),
    ("agent", {"session": "alice", "text": "ECHO:again", "run": "report"}),
    ("agent.wait", {"run_id": "report"}),
    ("abort", {"session": "alice", "clear": True}),
    ("route", {"source": {"channel": "telegram", "chat_type": "dm", "chat_id": "42", "sender_id": "42"}}),
    ("sessions.open", {"cwd": "/opt", "session": "project"}),
    ("sessions.list", {}),
    ("sessions.get", {"session": "alice"}),
    ("sessions.options", {"session": "alice"}),
    ("sessions.patch", {"session": "alice", "label": "Alice", "thinking": "low"}),
    ("sessions.history", {"session": "alice", "limit": 2}),
    ("agents.list", {}),
    ("events.inject", {"session": "bob", "text": "the build machine is back"}),
    ("events.peek", {"session": "carol"}),
    ("process", {"session": "alice", "action": "list"}),
    ("delegate", {"session": "alice", "agent": "reviewer", "task": "ECHO:reviewed"}),
    ("heartbeat.status", {}),
    ("heartbeat.run", {"agent": "main"}),
    ("cron.add", _JOB),
    ("cron.list", {}),
    ("cron.get", {"id": "standup"}),
    ("cron.disable", {"id": "standup"}),
    ("cron.enable", {"id": "standup"}),
    ("cron.run", {"id": "standup"}),
    ("cron.delete", {"id": "standup"}),
    ("workers.list", {}),
    ("waiting.list", {}),
    ("explain", {"session": "alice"}),
    ("acquire", {"session": "alice"}),
)
_AFTER_APPROVAL: tuple[tuple[str, dict[str, Any]], ...] = (
    ("sessions.reset", {"session": "alice"}),
    ("sessions.delete", {"session": "alice"}),
    ("logs.tail", {"limit": 1}),
    ("logs.list", {}),
    ("logs.read", {"log": "w1", "limit": 2}),
    ("pause", {}),
    ("resume", {}),
    ("reload", {}),
    ("drain", {"timeout": 5}),
    ("shutdown", {}),
)
_CALL = 'TOOL:exec {"command": "date -u +%F"} ECHO:done'


class Example(NamedTuple):
    """A call and its answer."""

    params: dict[str, Any]
    result: Any


class Answers(NamedTuple):
    """What one supervisor has answered."""

    examples: dict[str, Example]
    metrics: str


def collect_answers() -> Answers:
    """Start a supervisor, call the methods, end it. Raises PoolError where a call fails."""
    with tempfile.TemporaryDirectory(prefix="pool-") as folder:
        place = Path(folder)
        with SupervisorProcess(place, _SETTINGS) as supervisor, supervisor.connect() as client:
            examples: dict[str, Example] = {}
            recorder = _Recorder(client, place, examples)
            for method, params in _BEFORE_APPROVAL:
                recorder.call(method, params)
            recorder.call("release", {"hold": examples["acquire"].result["hold"]})
            recorder.follow()
            with _running_turn(supervisor, "dave", "PIECES=40 DELAY=20", "text_chunk"):
                recorder.call("steer", {"session": "dave", "text": "and be brief"})
            with _running_turn(supervisor, "rita", _CALL, "permission_required"):
                (pending,) = recorder.call("approvals.list", {})
                call = pending["call"]["id"]
                recorder.call("approvals.show", {"call_id": call})
                recorder.call("decide", {"call_id": call, "decision": "allow"})
            metrics = _read_metrics(client, place)
            for method, params in _AFTER_APPROVAL:
                recorder.call(method, params)
            supervisor.wait(_LIMIT)
    return Answers(examples, metrics)


class _Recorder:
    """Calls methods; keeps what was asked and answered, without the paths of this machine."""

    def __init__(self, client: ControlClient, place: Path, examples: dict[str, Example]) -> None:
        self._client = client
        self._place = place
        self._examples = examples

    def call(self, method: str, params: dict[str, Any]) -> Any:
        """The result."""
        result = self._client.call(method, params, timeout=_LIMIT)
        self._examples[method] = Example(params, self._cleaned(result))
        return result

    def follow(self) -> None:
        """Subscribe, and end that."""
        params = {"session": "alice", "channels": ["progress"]}
        result = self.call("subscribe", params)
        self.call("unsubscribe", {"subscription": result["subscription"]})

    def _cleaned(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._cleaned(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._cleaned(item) for item in value]
        if isinstance(value, str):
            return value.replace(f"{self._place}/data", "~/.local/state/pool").replace(str(self._place), "~")
        return value


@contextmanager
def _running_turn(supervisor: SupervisorProcess, session: str, text: str, event: str) -> Iterator[None]:
    """A turn from its first event of that type on; the block must see to its end."""
    agent = {"agent": "reviewer"} if event == "permission_required" else {}
    with supervisor.connect() as client:
        stream = client.stream("prompt", {"session": session, "text": text, **agent}, timeout=_LIMIT)
        for batch in stream:
            if any(each.type == event for pushed in batch for each in read_envelopes(pushed.data.events)):
                break
        yield
        for _ in stream:
            pass


def _read_metrics(client: ControlClient, place: Path) -> str:
    token = (place / "data" / "http-token").read_text().strip()
    url = client.call("status")["supervisor"]["http"]["url"]
    with httpx.Client(headers={"authorization": f"Bearer {token}"}, timeout=_LIMIT) as http:
        http.get(f"{url}/metrics").raise_for_status()  # so that the next answer counts a request
        return http.get(f"{url}/metrics").raise_for_status().text
