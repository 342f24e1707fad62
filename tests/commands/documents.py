"""What a supervisor answers, as the views and commands get it: documents for tests."""

import json
from typing import Any

WORKER: dict[str, Any] = json.loads("""
{"id": "w1", "pid": 100001, "profile": "a1b2c3d4", "agent": "main", "role": "default", "state": "idle",
"session": null, "holds": 0, "turn_age": null, "turns": 12, "age": 3723.0, "background": 0, "rss": 100663296,
"cpu": 3.2, "suspended": false, "last_ping": 4.2, "stray_lines": 0, "retiring": null, "node": ""}
""")
WAITER: dict[str, Any] = json.loads("""
{"request": "r1", "session": "grace", "priority": 5, "priority_now": 6.5, "waited": 4.6, "position": 1,
"profile": "a1b2c3d4", "expires_in": null, "state": "queued", "why": "all 4 workers are busy"}
""")
DOCUMENT: dict[str, Any] = json.loads("""
{"pool": {"total": 4, "idle": 1, "leased": 2, "starting": 1, "stopping": 0, "waiting": 1, "max": 4, "min": 1,
"mode": "paused", "limits": {}}, "counters": {"spawned": 9, "exits": {"evicted": 2, "crashed": 1}, "evicted": 2,
"parked": 3, "resumed": 4, "grants": {"bound": 120, "hard": 0}, "releases": 118, "lost": 1, "active": 1,
"enqueued": 20, "served": 17, "expired": 1, "refused": 0, "cancelled": 2, "stalled": 1}, "workers": [],
"waiting": [], "groups": [], "sessions": [{"key": "ada", "state": "active", "worker": "w1", "holds": 1, "busy": false,
"waiting": 0, "transcript": "/t", "failed": null}, {"key": "bob", "state": "parked", "worker": null, "holds": 0,
"busy": false, "waiting": 0, "transcript": null, "failed": "x"}], "profiles": [{"profile": "a1b2c3d4",
"agent": "main", "role": "default", "live": 3, "starting": 0, "warm": 1, "min": 1, "waiting": 1, "breaker": "open",
"restarts": 2, "retry_in": 4.0, "last_error": "boom"}],
"latency": {"acquire": {"count": 3, "p50": 0.0004, "p99": 0.12, "max": 3.2},
"reset": {"count": 0, "p50": 0.0, "p99": 0.0, "max": 0.0}, "spawn": {"count": 0, "p50": 0.0, "p99": 0.0, "max": 0.0},
"turn": {"count": 0, "p50": 0.0, "p99": 0.0, "max": 0.0}}, "guarantee": {"level": "cgroup",
"text": "nothing survives"}, "gateway": {"runs": 3, "sessions": 2, "lanes": {"running": 2, "waiting": 1,
"lanes": [{"name": "cron", "limit": 1, "running": 1, "waiting": 4}, {"name": "main", "limit": null, "running": 1,
"waiting": 0}], "sessions": []}, "permissions": [{"session": "ada", "call": {"id": "c1", "name": "exec",
"input_preview": "ls"}}], "holds": {"granted": 1, "waiting": 22, "oldest": [{"session": "ada", "principal": "uid:7",
"worker": "w3", "age": 61.0, "expires_in": null}, {"session": "bob", "principal": "uid:7", "worker": null,
"age": 5.0, "expires_in": 25.0}]}, "system_events": {"pending": 0, "sessions": 0, "injected": 0, "ignored": 0,
"evicted": 0, "expired": 0}, "events": {"last_seq": 0, "ring_floor": 0, "ring_bytes": 0, "ring_sessions": 0,
"unseen": 0, "handlers": 0, "handler_failures": 0, "events": 0, "text_pieces": 0, "snapshots": 0, "head": 10234,
"sleeping": 5}, "autonomy": {"heartbeats": 3, "beating": 1, "cron": {"jobs": 5, "running": 1, "waiting": 0,
"failing": 2, "next_due": 1700000000.0, "problems": ["job old of the settings cannot be used"]},
"alerts": {"accepted": 7, "delivered": 5, "waiting": 1, "places": [{"to": "webhook:ops", "waiting": 1,
"in_flight": false, "next_try": 1.0, "error": "status 500"}], "undeliverable": [{"id": "a1", "agent": "main",
"session": "ada", "to": "webhook:old", "reason": "interval", "ts": 1700000000.0, "text": "The disk is full.",
"attempts": 12, "error": "gone"}], "forgotten": 0}}, "store": {"rows_waiting": 2, "bytes_waiting": 100,
"rows_written": 77, "degraded": false, "lost": 0, "last_error": null}}, "supervisor": {"pid": 4242,
"uptime": 93784.0, "version": "0.1.0", "socket": "/run/p.sock", "data_dir": "/x"}}
""")


def worker(name: str, **others: Any) -> dict[str, Any]:
    return WORKER | {"id": name} | others


def waiter(**others: Any) -> dict[str, Any]:
    return WAITER | others


def session(key: str, **others: Any) -> dict[str, Any]:
    base = {"key": key, "state": "parked", "worker": None, "holds": 0, "busy": False, "waiting": 0, "transcript": None}
    return base | {"failed": None} | others


DOCUMENT["workers"] = [
    worker("w1", state="leased", session="ada", turn_age=12.0),
    worker("w2", suspended=True, stray_lines=3),
]
DOCUMENT["waiting"] = [waiter()]
GROUPS: list[dict[str, Any]] = json.loads("""
[{"group": "", "nodes": {"up": 1, "refused": 1}, "slots": 4, "used": 1},
{"group": "gpu", "nodes": {"up": 1, "draining": 1, "lost": 1}, "slots": 9, "used": 3}]
""")
NODE: dict[str, Any] = json.loads("""
{"name": "", "group": "", "engine": "", "state": "up", "until": null, "slots": 0, "used": 0, "load": null,
"memory": null, "memory_free": null, "rtt": null, "note": ""}
""")
NODES: list[dict[str, Any]] = [
    NODE | changes
    for changes in json.loads("""
[{"engine": "local", "slots": 4, "used": 1},
{"name": "gpu-1", "group": "gpu", "engine": "ssh", "slots": 8, "used": 2, "load": 3.25, "memory": 68719476736,
"memory_free": 51539607552, "rtt": 0.0007},
{"name": "gpu-2", "group": "gpu", "engine": "ssh", "state": "draining", "until": 40.0, "slots": 8, "used": 1,
"load": 0.5, "memory": 68719476736, "memory_free": 60129542144, "rtt": 0.0012},
{"name": "gpu-3", "group": "gpu", "engine": "join", "state": "lost", "until": 7.3, "note": "silent for 10 s"},
{"name": "old", "engine": "ssh", "state": "refused", "note": "ssh old: Permission denied"}]
""")
]
SESSION_VIEWS: list[dict[str, Any]] = json.loads("""
[{"key": "ada", "agent": "main", "role": "default", "state": "PAUSED", "worker": "w1", "turn": "t1", "waiting": 2,
"transcript": "/data/2026.jsonl", "cwd": "/w", "model": null, "thinking": null, "queue_mode": null, "label": null,
"last_run": null, "context": null, "channel": null, "waits_for": null, "place": null,
"created_at": 0.0, "updated_at": 0.0,
"pending_permissions": [{"id": "c1", "name": "exec", "input_preview": "ls", "reason": "it is listed"}]},
{"key": "bob", "agent": "main", "role": "default", "state": "READY", "worker": null, "turn": null, "waiting": 0,
"transcript": null, "cwd": null, "model": null, "thinking": null, "queue_mode": null, "label": null,
"last_run": null, "context": null, "channel": null, "waits_for": null, "place": null, "created_at": 0.0,
"updated_at": 0.0, "pending_permissions": []}]
""")

NOW = 1_700_000_000.0
BEAT: dict[str, Any] = json.loads(r"""
{"agent": "main", "session": "agent:main:main:main", "reason": "interval", "outcome": "alert", "at": 1699999875.0,
"took": 3.2, "text": "The disk is full.\u001b[2J"}
""")
AGENTS: list[dict[str, Any]] = json.loads(r"""
[{"agent": "main", "wake": true, "every": 290.0, "next_due": 1700000165.0, "running": [], "warning": "",
"last_beat": {"agent": "main", "session": "agent:main:main:main", "reason": "interval", "outcome": "alert",
"at": 1699999875.0, "took": 3.2, "text": "The disk is full.\u001b[2J"}, "last_skip": null, "counts": {"silent": 4,
"alert": 2, "skipped": 9}, "paused": {}}, {"agent": "ops", "wake": false, "every": 0.0, "next_due": null,
"running": [], "warning": "", "last_beat": null, "counts": {}, "paused": {}, "last_skip": {"agent": "ops",
"session": "agent:main:main:main", "reason": "interval", "outcome": "skipped", "at": 1699999995.0, "took": 3.2,
"text": "The disk is full.\u001b[2J", "skipped": "disabled"}}, {"agent": "night-watch", "wake": true, "every": 60.0,
"next_due": 1700000000.0, "running": ["s"], "last_beat": {"agent": "main", "session": "agent:main:main:main",
"reason": "interval", "outcome": "failed", "at": 1699999875.0, "took": 3.2, "text": "The disk is full.\u001b[2J",
"error": "no model"}, "last_skip": null, "counts": {"failed": 1},
"paused": {"agent:night-watch:main:main": 1700000299.0}, "warning": "active_hours.end = '25:00' is no time"}]
""")
OUTCOME_OF_A_JOB: dict[str, Any] = json.loads("""
{"run": "r1", "due": 1699999939.0, "started_at": 1699999940.0, "ended_at": 1699999952.0, "status": "failed",
"text": "", "error": "the model is ill"}
""")
JOB: dict[str, Any] = json.loads("""
{"id": "standup", "schedule": {"type": "cron", "expression": "0 9 * * mon-fri", "tz": "Europe/Berlin"},
"when": "cron 0 9 * * mon-fri (Europe/Berlin)", "text": "Prepare the stand-up.", "mode": "isolated", "agent": "main",
"session": "agent:main:main:main", "delivery": "webhook:ops", "timeout": 600.0, "keep": false,
"delete_after_run": false, "enabled": true, "source": "settings", "next_due": 1700003700.0, "running_since": null,
"is_waiting": false, "failures": 3, "hold_until": null, "overlapped": 0, "problem": null, "heard_at": null}
""")
JOB |= {"last": OUTCOME_OF_A_JOB, "history": [OUTCOME_OF_A_JOB]}
JOBS: dict[str, Any] = {
    "jobs": [JOB, {**JOB, "id": "tea", "enabled": False, "last": None}],
    "total": 5,
    "more": True,
    "problems": ["x"],
}
