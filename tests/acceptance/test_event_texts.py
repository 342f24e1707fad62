"""What the list of event types says of their data is what a real supervisor publishes."""

import json
import re
from pathlib import Path

import pytest

from settings.description import texts_of
from tests.acceptance.supervisor import running_supervisor, tool
from wire.events import EVENT_TYPES, EventType

_SETTINGS = '[agents.main]\n[agents.careful]\npermission_mode = "approval"\n'
_LAST = "session_deleted"


@pytest.mark.process
def test_every_fact_of_an_event_is_named_where_its_type_is_listed(tmp_path: Path) -> None:
    texts = texts_of(EventType)
    seen: dict[str, set[str]] = {}
    with running_supervisor(tmp_path, "--max", "2", settings=_SETTINGS) as supervisor:
        supervisor.prompt("ada", tool("echo hello; echo x > made"))
        with supervisor.following("exec_exit") as exits:
            supervisor.prompt("ada", tool("echo built", background=True))
            next(exits)
        with supervisor.following("permission_required") as questions:
            supervisor.pool("prompt", "-s", "carl", "-a", "careful", "--detach", tool("date"))
            call = next(questions)["data"]["call"]["id"]
        with supervisor.following("permission_decided", since=None) as decisions:
            supervisor.pool("deny", call, "--note", "not today")
            next(decisions)
        for words in (
            ("events", "inject", "-s", "ada", "the build machine is back"),
            ("delegate", "-s", "ada", "-a", "careful", "ECHO:done"),
            ("heartbeat", "run"),
            ("sessions", "reset", "ada", "--force"),
            ("sessions", "delete", "ada", "--yes"),
        ):
            done = supervisor.pool(*words)
            assert done.returncode == 0, (words, done.stderr)
        events = supervisor.start("events", "follow", "--since", "0")
        assert events.stdout is not None
        for line in events.stdout:
            event = json.loads(line)
            seen.setdefault(event["type"], set()).update(event.get("data") or {})
            if event["type"] == _LAST:
                break
        events.terminate()
        events.communicate(timeout=20)
    known = {kind: facts for kind, facts in seen.items() if kind in EVENT_TYPES}
    assert {"done", "tool:end", "permission_decided", "exec_exit", "heartbeat", "system_event"} <= known.keys()
    named = {kind: set(re.findall(r"``(\w+)``", texts[EVENT_TYPES[kind].name])) for kind in known}
    assert {kind: facts - named[kind] for kind, facts in known.items() if facts - named[kind]} == {}
