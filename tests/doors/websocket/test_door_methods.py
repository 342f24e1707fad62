"""Methods about sessions, connections, tasks and the log, over a gateway of memory."""

import json

import pytest

from tests.doors.http.peer import TOKEN
from tests.doors.websocket.conftest import READER, Join
from tests.gateway.world import World


async def test_sessions_are_listed_shown_reset_and_deleted(join: Join, world: World) -> None:
    await world.ask("say one", "alice")
    await world.ask("say two", "bob")
    peer = await join()
    listed = (await peer.request("sessions.list", search="ALI", limit=1))["payload"]
    assert (listed["count"], [row["key"] for row in listed["sessions"]]) == (1, ["alice"])
    assert (await peer.request("sessions.get", key="bob", limit=0))["payload"]["session"]["agentId"] == "main"
    assert (await peer.request("sessions.reset", key="bob"))["payload"]["entry"]["key"] == "bob"
    assert (await peer.request("sessions.delete", key="bob"))["payload"]["ok"] is True
    assert world.gateway.sessions.get("bob") is None


async def test_a_session_is_found_described_and_set(join: Join, world: World) -> None:
    await world.ask("say one", "agent:main:main")
    peer = await join()
    key = "agent:main:main:main"
    patch = {"label": "the big one", "model": "acme/big", "thinkingLevel": "high", "verboseLevel": "on"}
    patched = (await peer.request("sessions.patch", key="agent:main:main", **patch))["payload"]
    assert (patched["key"], patched["entry"]["label"]) == (key, "the big one")
    assert patched["resolved"] == {"model": "acme/big"}
    entry = world.gateway.sessions.get(key)
    assert entry is not None
    assert (entry.model, entry.thinking, entry.verbose) == ("acme/big", "high", True)
    names = ({"key": "agent:MAIN:main"}, {"sessionId": key}, {"label": "the big one"}, {"key": key, "agentId": "main"})
    for named in names:
        assert (await peer.request("sessions.resolve", **named))["payload"] == {"ok": True, "key": key}
    missing = {"label": "the big one", "agentId": "ops", "allowMissing": True}
    assert (await peer.request("sessions.resolve", **missing))["payload"] == {"ok": False}
    assert (await peer.request("sessions.describe", key=key))["payload"]["session"]["thinkingLevel"] == "high"
    assert (await peer.request("sessions.describe", key="nobody"))["payload"] == {"session": None}
    await world.ask("say two", "bob")
    taken = await peer.request("sessions.patch", key="bob", label="the big one")
    assert f"the label 'the big one' is session {key}'s already" in taken["error"]["message"]
    await peer.request("sessions.patch", key=key, label=None, model=None, verboseLevel="off")
    assert (entry.label, entry.model, entry.thinking, entry.verbose) == (None, None, "high", False)


async def test_who_follows_sessions_hears_of_changes_and_nobody_else_does(join: Join, world: World) -> None:
    peer, other = await join(), await join()
    assert (await peer.request("sessions.subscribe"))["payload"] == {"subscribed": True}
    await peer.request("chat.send", sessionKey="alice", message="say hello")
    for state in ("WORKING", "READY"):
        await peer.event("sessions.changed", sessionKey="alice", reason="state", state=state)
    for method, params in (("patch", {"label": "x"}), ("reset", {})):
        await peer.request(f"sessions.{method}", key="alice", **params)
        await peer.event("sessions.changed", sessionKey="alice", reason=method)
    assert (await peer.request("sessions.unsubscribe"))["payload"] == {"subscribed": False}
    await peer.request("sessions.delete", key="alice")
    for each in (peer, other):
        await each.request("chat.send", sessionKey="bob", message="say bye")
        await each.event("chat", sessionKey="bob", state="final")
        assert each.seqs == sorted(each.seqs)
    assert not [frame for frame in other.kept if frame.get("event") == "sessions.changed"]


async def test_who_follows_a_sessions_messages_hears_what_is_said_in_it(join: Join, world: World) -> None:
    peer = await join(auth={"token": READER})
    key = "agent:main:main:main"
    followed = (await peer.request("sessions.messages.subscribe", key="agent:main:main"))["payload"]
    assert followed == {"subscribed": True, "key": key}
    await world.ask("say elsewhere", "alice")
    run = await world.ask("say hello", key)
    user, assistant = [await peer.event("session.message") for _ in range(2)]
    assert (user["sessionKey"], user["message"]["role"], user["messageId"]) == (key, "user", f"{run.run_id}:user")
    assert user["message"]["content"] == [{"type": "text", "text": "say hello"}]
    assert (assistant["message"]["role"], assistant["message"]["content"][0]["text"]) == ("assistant", "hello")
    assert user["messageSeq"] < assistant["messageSeq"]
    left = (await peer.request("sessions.messages.unsubscribe", key=key))["payload"]
    assert left == {"subscribed": False, "key": key}
    await world.ask("say more", key)
    await peer.event("chat", sessionKey=key, state="final", runId=run.run_id)
    assert not [frame for frame in peer.kept if frame.get("event") == "session.message"]


async def test_a_connection_follows_so_many_sessions(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doors.websocket.peer.MOST_SESSIONS", 2)
    peer = await join()
    for name in ("a", "b", "a"):
        assert (await peer.request("sessions.messages.subscribe", key=name))["ok"]
    refused = (await peer.request("sessions.messages.subscribe", key="c"))["error"]
    assert (refused["code"], refused["retryable"]) == ("UNAVAILABLE", True)


async def test_the_log_is_read_by_admins(join: Join) -> None:
    page = (await (await join()).request("logs.tail", limit=2, maxBytes=1000, cursor=5))["payload"]
    lines = ["line 0", "line 1"]
    assert page == {"file": "", "cursor": 1000, "size": 1000, "lines": lines, "truncated": False, "reset": True}


async def test_who_is_connected_is_listed(join: Join) -> None:
    client = {"id": "cli", "displayName": "A terminal", "version": "2", "mode": "cli", "platform": "linux"}
    await join(client=client)
    peer = await join(auth={"token": READER})
    ourselves, first, second = (await peer.request("system-presence"))["payload"]
    assert (ourselves["mode"], ourselves["reason"]) == ("gateway", "self")
    facts = [first[name] for name in ("host", "mode", "platform", "roles")]
    assert facts == ["A terminal", "cli", "linux", ["operator"]]
    assert (second["host"], second["scopes"]) == ("tests", ["operator.read"])
    assert TOKEN not in json.dumps([ourselves, first, second])


async def test_scheduled_tasks_are_listed_by_pages(join: Join, world: World) -> None:
    for name, when in (("a", {"every": "1h"}), ("b", {"cron": "0 8 * * *"}), ("c", {"at": "2031-05-01T08:00"})):
        await world.call("cron.add", id=name, text=f"do {name}", mode="isolated", **when)
    await world.call("cron.add", id="off", text="never", every="1h", enabled=False)
    peer = await join(auth={"token": READER})
    page = (await peer.request("cron.list", limit=2))["payload"]
    assert (page["total"], page["hasMore"], page["nextOffset"]) == (3, True, 2)
    assert [job["id"] for job in page["jobs"]] == ["a", "b"]
    assert page["jobs"][0]["schedule"]["everyMs"] == 3_600_000
    assert page["jobs"][1]["schedule"]["expr"] == "0 8 * * *"
    assert page["jobs"][0]["payload"] == {"kind": "agentTurn", "message": "do a"}
    assert page["jobs"][0]["state"]["nextRunAtMs"] > 0
    rest = (await peer.request("cron.list", offset=2))["payload"]
    assert [(job["id"], job["schedule"]["kind"]) for job in rest["jobs"]] == [("c", "at")]
    found = (await peer.request("cron.list", includeDisabled=True, query="NEVER"))["payload"]["jobs"]
    assert [job["enabled"] for job in found] == [False]


async def test_a_conversation_is_compacted_and_one_in_which_nothing_was_said_has_no_history(
    join: Join, world: World
) -> None:
    await world.ask("say one", "alice")
    peer = await join()
    history = (await peer.request("chat.history", sessionKey="nobody"))["payload"]
    assert history == {"sessionKey": "nobody", "sessionId": "nobody", "messages": []}
    answer = (await peer.request("sessions.compact", key="alice"))["payload"]
    assert (answer["ok"], answer["key"]) == (True, "alice")
    assert [method for method, _ in world.launcher.requests].count("compact") == 1
