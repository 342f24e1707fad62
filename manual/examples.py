"""Answers of a real supervisor to each method, taken while the pages are made, and what its ``/metrics`` says."""

import json
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from app.child import SupervisorProcess
from doors.control.client import ControlClient, read_envelopes
from errors import PoolError

_SETTINGS = """
[pool]
max = 3

[cluster]
listen = "127.0.0.1:0"
local_slots = 3
token_file = "node-token"
[cluster.groups.gpu]
labels = {{ gpu = "yes" }}

[http]
bind = "127.0.0.1:0"

[agents.main]
[agents.reviewer]
permission_mode = "approval"
[agents.asking]
command = [{python}, {asking}]
"""
_ASKING = Path(__file__).with_name("asking_agent.py")
_LIMIT = 30.0
_JOB = {"id": "standup", "text": "Prepare the stand-up.", "cron": "0 9 * * mon-fri", "tz": "UTC"}
_BEFORE_APPROVAL: tuple[tuple[str, dict[str, Any]], ...] = (
    ("ping", {}),
    ("status", {}),
    ("config.get", {}),
    ("scale", {"max": 4}),
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
    ("nodes.list", {}),
    ("nodes.drain", {"node": "gpu-1", "timeout": 60}),
    ("nodes.resume", {"node": "gpu-1"}),
    ("waiting.list", {}),
    ("explain", {"session": "alice"}),
    ("acquire", {"session": "alice"}),
)
_AFTER_APPROVAL: tuple[tuple[str, dict[str, Any]], ...] = (
    ("metrics", {}),
    ("sessions.reset", {"session": "alice"}),
    ("sessions.delete", {"session": "alice"}),
    ("logs.tail", {"limit": 1}),
    ("logs.list", {}),
    ("logs.read", {"log": "w1", "limit": 2}),
    ("pause", {}),
    ("resume", {}),
    ("reload", {}),
    ("drain", {"timeout": 5}),
)
_CALL = 'TOOL:exec {"command": "date -u +%F"} ECHO:done'
_BACKGROUND = 'TOOL:exec {"command": "read word; echo $word", "background": true} ECHO:started'


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
        token = place / "node-token"
        token.touch(0o600)
        token.write_text(secrets.token_hex(16))
        settings = _SETTINGS.format(python=json.dumps(sys.executable), asking=json.dumps(str(_ASKING)))
        with SupervisorProcess(place, settings) as supervisor, _node(supervisor, place):
            examples: dict[str, Example] = {}
            with supervisor.connect() as client:
                metrics = _record(supervisor, _Recorder(client, place, examples))
            with supervisor.connect() as client:
                _Recorder(client, place, examples).call("shutdown", {})
                supervisor.wait(_LIMIT)
    return Answers(examples, metrics)


def _record(supervisor: SupervisorProcess, recorder: "_Recorder") -> str:
    """Call everything but ``shutdown``; the metrics. The supervisor has been restarted then."""
    for method, params in _BEFORE_APPROVAL:
        recorder.call(method, params)
    recorder.call("release", {"hold": recorder.examples["acquire"].result["hold"]})
    recorder.follow()
    with _running_turn(supervisor, "dave", "PIECES=40 DELAY=20", "text_chunk"):
        recorder.call("steer", {"session": "dave", "text": "and be brief"})
    with _running_turn(supervisor, "rita", _CALL, "permission_required", agent="reviewer"):
        (pending,) = recorder.call("approvals.list", {})
        call = pending["call"]["id"]
        recorder.call("approvals.show", {"call_id": call})
        recorder.call("decide", {"call_id": call, "decision": "allow"})
    with _running_turn(supervisor, "quinn", "deploy", "ui_request", agent="asking"):
        recorder.call("ui.respond", {"session": "quinn", "id": "q1", "value": "yes"})
    recorder.write_to_process()
    recorder.attach()
    recorder.watch_logs()
    workers = [each["id"] for each in recorder.client.call("workers.list")]
    recorder.call("workers.recycle", {"worker": workers[0]})
    recorder.call("workers.stop", {"worker": workers[-1]})
    metrics = _read_metrics(recorder.client, recorder.place)
    for method, params in _AFTER_APPROVAL:
        recorder.call(method, params)
    recorder.call("restart", {})
    if not supervisor.wait_for_event("ready", 2, timeout=_LIMIT):
        raise PoolError(f"the supervisor did not restart: {supervisor.log_tail()}")
    return metrics


@contextmanager
def _node(supervisor: SupervisorProcess, place: Path) -> Iterator[None]:
    """A node program beside the supervisor, from its joining on. Raises PoolError."""
    ready = next(line for line in supervisor.log if '"event":"cluster_ready"' in line)
    options = ["--dial", json.loads(ready)["address"], "--token-file", str(place / "node-token"), "--name", "gpu-1"]
    options += ["--label", "gpu=yes", "--slots", "8", "--state-dir", str(place / "node")]
    command = [sys.executable, "-m", "cli", "node", *options]
    program = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        if not supervisor.wait_for_event("node_joined", timeout=_LIMIT):
            raise PoolError(f"the node did not join: {supervisor.log_tail()}")
        yield
    finally:
        program.terminate()
        program.wait()


class _Recorder:
    """Calls methods; keeps what was asked and answered, without the paths of this machine."""

    def __init__(self, client: ControlClient, place: Path, examples: dict[str, Example]) -> None:
        self.client = client
        self.place = place
        self.examples = examples
        self._shown = {f"{place}/data": "~/.local/state/pool", str(place): "~", str(_ASKING.parent): "~/agents"}
        self._shown[sys.executable] = "python3"

    def call(self, method: str, params: dict[str, Any]) -> Any:
        """The result."""
        result = self.client.call(method, params, timeout=_LIMIT)
        self._keep(method, params, result)
        return result

    def _keep(self, method: str, params: dict[str, Any], result: Any) -> None:
        self.examples[method] = Example(params, self._cleaned(result))

    def follow(self) -> None:
        """Subscribe, and end that."""
        params = {"session": "alice", "channels": ["progress"]}
        result = self.call("subscribe", params)
        self.call("unsubscribe", {"subscription": result["subscription"]})

    def write_to_process(self) -> None:
        """Have a command of the background read a word."""
        self.client.call("prompt", {"session": "erin", "text": _BACKGROUND}, timeout=_LIMIT)
        (process,) = self.call("process", {"session": "erin", "action": "list"})["sessions"]
        written = {"session": "erin", "id": process["session_id"], "data": "hello", "enter": True}
        self.call("process.write", written)

    def attach(self) -> None:
        """Send a line to a worker as a front end, which is answered by a push."""
        with _open_lines(self.client.path) as lines:
            wish: dict[str, Any] = {"session": "frank", "cwd": "/opt"}
            opened = lines.ask("attach.open", wish)["result"]
            self._keep("attach.open", wish, opened)
            line = {"attachment": opened["attachment"], "line": {"id": "1", "method": "ping", "params": {}}}
            self._keep("attach.send", line, lines.ask("attach.send", line, push="attach"))
            end = {"attachment": opened["attachment"]}
            self._keep("attach.end", end, lines.ask("attach.end", end)["result"])

    def watch_logs(self) -> None:
        """The first push; there is no answer while the client stays."""
        with _open_lines(self.client.path) as lines:
            self._keep("logs.watch", {}, lines.ask("logs.watch", {}, push="logs_changed"))

    def _cleaned(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._cleaned(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._cleaned(item) for item in value]
        if isinstance(value, str):
            for here, shown in self._shown.items():
                value = value.replace(here, shown)
        return value


class _Lines(NamedTuple):
    """A connection on which pushes are read too."""

    stream: Any

    def ask(self, method: str, params: dict[str, Any], push: str | None = None) -> Any:
        """The answer, or the first push of that name, as the supervisor has written it."""
        request = {"id": method, "method": method, "params": params}
        self.stream.write(json.dumps(request).encode() + b"\n")
        self.stream.flush()
        for line in self.stream:
            message = json.loads(line)
            if message.get("event") == push if push else message.get("id") == method:
                return message
        raise PoolError(f"the connection has ended before {method} was answered")


@contextmanager
def _open_lines(path: Path) -> Iterator[_Lines]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_LIMIT)
        connection.connect(str(path))
        with connection.makefile("rwb") as stream:
            yield _Lines(stream)


@contextmanager
def _running_turn(
    supervisor: SupervisorProcess, session: str, text: str, event: str, agent: str = "main"
) -> Iterator[None]:
    """A turn from its first event of that type on; the block must see to its end."""
    with supervisor.connect() as client:
        stream = client.stream("prompt", {"session": session, "text": text, "agent": agent}, timeout=_LIMIT)
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
