"""The door over a gateway of memory: who comes in, what they may ask, what they hear."""

import json
from typing import Any

import pytest
import trio
from wsproto.events import AcceptConnection

from doors.http.settings import HttpSettings
from tests.doors.http.conftest import SMALL, Connect, Door, Open
from tests.doors.http.peer import TOKEN
from tests.doors.websocket.conftest import READER, WRITER, Join, follows, hub_of, settle
from tests.doors.websocket.peer import CONNECT, SocketPeer
from tests.gateway.world import World
from wire.units import Seconds

SCOPES = ["operator.read", "operator.write", "operator.admin", "operator.approvals"]

# --- coming in --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/ws", "/api/status"])
async def test_the_challenge_then_connect_then_hello(door: Door, connect: Connect, path: str) -> None:
    peer = SocketPeer(await connect(door, None))
    assert isinstance(await peer.open(path), AcceptConnection)
    hello = (await peer.connect())["payload"]
    assert (hello["type"], hello["protocol"], hello["auth"]["scopes"]) == ("hello-ok", 4, SCOPES)
    assert {"agent", "chat.send", "sessions.list", "health"} <= set(hello["features"]["methods"])
    assert {"agent", "chat", "tick", "shutdown"} <= set(hello["features"]["events"])
    assert hello["policy"] == {"maxPayload": 100_000, "maxBufferedBytes": 300_000, "tickIntervalMs": 30_000}
    assert hello["snapshot"]["health"]["ok"] is True
    assert not [word for word in ("deviceToken", TOKEN) if word in json.dumps(hello)]


async def test_two_connections_have_nonces_and_names_of_their_own_and_one_of_another_is_worth_nothing(
    join: Join, door: Door, connect: Connect
) -> None:
    one, other = await join(minProtocol=3, maxProtocol=3), await join()
    assert (one.hello["protocol"], other.hello["protocol"]) == (3, 4)
    assert one.nonce != other.nonce
    assert one.hello["server"]["connId"] != other.hello["server"]["connId"]
    peer = SocketPeer(await connect(door, None))
    await peer.open()
    assert (await peer.connect(device={"id": "d", "nonce": one.nonce}))["ok"] is False


@pytest.mark.parametrize(("first", "code"), [("garbage", 1008), (b"binary", 1003), ("x" * 66_000, 1009)])
async def test_a_wrong_first_frame_has_no_answer_and_ends_the_connection_also_of_a_peer_that_does_not_close_in_turn(
    door: Door, connect: Connect, monkeypatch: pytest.MonkeyPatch, first: str | bytes, code: int
) -> None:
    monkeypatch.setattr("doors.websocket.connection._CLOSE_GRACE_SECONDS", 0.01)
    peer = SocketPeer(await connect(door, None))
    await peer.open()
    await peer.say(first)
    assert (await peer.rest(), peer.closed and peer.closed[0]) == ([], code)
    await settle(lambda: door.figures.sockets == 0)


async def test_who_says_nothing_is_not_waited_for(
    open_ws: Open, connect: Connect, world: World, limits: dict[str, Any]
) -> None:
    limits["connect_timeout"] = Seconds(0.1)
    peer = SocketPeer(await connect(await open_ws(world.methods), None))
    await peer.open()
    assert (await peer.rest(), peer.closed) == ([], (1008, "no connect in time"))


async def test_a_token_in_the_handshake_is_enough_and_one_that_holds_no_more_ends_its_connections(
    door: Door, connect: Connect
) -> None:
    peer = SocketPeer(await connect(door, None))
    await peer.open(authorization=f"Bearer {TOKEN}")
    assert (await peer.connect(auth=None))["ok"]
    assert (await peer.request("connect", **CONNECT))["error"]["message"].endswith("connected already")
    door.server.prepare(HttpSettings(**{**SMALL, "token": "another-token-0123456789"}))()
    assert await peer.rest() == []
    await settle(lambda: door.figures.sockets == 0)


@pytest.mark.parametrize(
    ("token", "method", "params", "is_allowed"),
    [
        (READER, "sessions.list", {}, True),
        (READER, "chat.send", {"sessionKey": "alice", "message": "x"}, False),
        (WRITER, "chat.send", {"sessionKey": "alice", "message": "x"}, True),
        (WRITER, "config.get", {}, False),
        (WRITER, "logs.tail", {}, False),
        (WRITER, "sessions.delete", {"key": "alice"}, False),
        (WRITER, "exec.approval.resolve", {"id": "c1", "decision": "deny"}, False),
        (TOKEN, "config.get", {}, True),
        (None, "chat.send", {"sessionKey": "alice", "message": "x"}, False),  # asked for less than it has
    ],
)
async def test_a_method_needs_its_scope(
    join: Join, token: str | None, method: str, params: dict[str, Any], *, is_allowed: bool
) -> None:
    peer = await join(auth={"token": token}) if token else await join(scopes=["operator.read"])
    answer = await peer.request(method, **params)
    assert answer["ok"] is is_allowed
    if not is_allowed:
        assert answer["error"]["message"].startswith("missing scope: operator.")
        assert answer["error"]["details"]["code"] == "forbidden"


# --- runs -------------------------------------------------------------------------------------------------------------


async def test_agent_answers_twice_and_its_events_carry_its_key(join: Join, world: World) -> None:
    peer = await join()
    say_hello = {"message": "say hello", "sessionKey": "alice", "idempotencyKey": "k1", "thinking": "high"}
    say_hello |= {"to": "5", "provider": "acme", "model": "big"}
    accepted, last = await peer.run("agent", **say_hello)
    assert (accepted["runId"], accepted["sessionKey"], accepted["status"]) == ("k1", "alice", "accepted")
    assert accepted["ignored"] == ["thinking", "to"]
    assert (last["runId"], last["status"], last["summary"]) == ("k1", "ok", "completed")
    assert last["result"]["payloads"] == [{"text": "hello"}]
    start, end = [await peer.event("agent", runId="k1", phase=phase) for phase in ("start", "end")]
    assert (start["stream"], end["stream"], start["seq"] < end["seq"]) == ("lifecycle", "lifecycle", True)
    final = await peer.event("chat", runId="k1", state="final")
    assert final["message"]["content"] == [{"type": "text", "text": "hello"}]
    assert [worker.model for worker in world.launcher.workers] == ["big"]
    _, again = await peer.run("agent", **say_hello)
    assert (again["result"], len(world.launcher.prompts)) == (last["result"], 1), "the same key starts nothing"
    refused = await peer.request("agent", **{**say_hello, "message": "other"})
    assert refused["error"]["details"]["code"] == "conflict"


async def test_a_run_that_fails_is_the_second_answers_error(join: Join) -> None:
    peer = await join()
    _, error = await peer.run("agent", message="fail", sessionKey="alice", idempotencyKey="k1")
    assert (error["code"], error["details"]["code"], error["details"]["runId"]) == ("UNAVAILABLE", "worker_error", "k1")
    assert "the model is ill" in (await peer.event("chat", state="error"))["errorMessage"]


async def test_text_is_sent_while_it_is_said_to_everybody_and_whole_to_who_comes_in_the_middle(
    join: Join, world: World
) -> None:
    asking, looking = await join(), await join(auth={"token": READER})
    images = [{"content": "data:image/png;base64,eA=="}, {"content": "eQ==", "mimeType": "image/gif"}]
    asked = {"sessionKey": "alice", "message": "hang", "idempotencyKey": "k1"}
    await asking.ask("chat.send", **asked, attachments=images)
    assert (await looking.event("agent", stream="assistant"))["data"] == {"text": "well ", "delta": "well "}
    assert [image["data"] for image in world.launcher.asked("prompt")[-1]["images"]] == ["eA==", "eQ=="]
    late = await join()
    world.launcher.running("hang").tell("assistant_message", partial="then")
    for peer in (looking, late):
        assert (await peer.event("agent", stream="assistant"))["data"] == {"text": "well then", "delta": "then"}
    world.launcher.running("hang").finish("well then")
    assert (await asking.event("chat", state="final"))["runId"] == "k1"


async def test_who_comes_first_in_the_middle_of_an_answer_hears_all_of_it(join: Join, world: World) -> None:
    worker = await world.hanging()
    peer = await join()
    await settle(lambda: follows(world))
    worker.tell("assistant_message", partial="then")
    assert (await peer.event("agent", stream="assistant"))["data"]["text"] == "well then"


async def test_a_run_is_aborted(join: Join, world: World) -> None:
    peer = await join()
    asked = await peer.ask("agent", message="hang", sessionKey="alice", idempotencyKey="k1")
    await peer.event("agent", stream="assistant")
    aborted = (await peer.request("chat.abort", sessionKey="alice", runId="k1"))["payload"]
    assert aborted == {"ok": True, "aborted": True, "runIds": ["k1"]}
    assert (await peer.answer(asked))["payload"]["status"] == "accepted"
    assert (await peer.answer(asked))["error"]["details"]["code"] == "aborted"
    assert (await peer.event("chat", state="aborted"))["message"]["content"][0]["text"] == "well "
    assert (await peer.request("chat.abort", sessionKey="alice"))["payload"]["aborted"] is False
    world.assert_at_rest()


async def test_a_run_outlives_who_asked_for_it_and_may_be_waited_for(
    join: Join, door: Door, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("doors.websocket.run_methods._UNKNOWN_RUN_DELAY", 0.01)
    peer = await join()
    await peer.ask("agent", message="hang", sessionKey="alice", idempotencyKey="k1")
    await peer.event("agent", stream="assistant")
    await peer.leave()
    await settle(lambda: door.figures.sockets == 0)
    other = await join()
    for run, timeout in (("k1", 0), ("nobody's", 10_000)):
        waited = (await other.request("agent.wait", runId=run, timeoutMs=timeout))["payload"]
        assert (waited["runId"], waited["status"]) == (run, "timeout"), "not yet, or not known yet"
    world.launcher.running("hang").finish("all the same")
    waited = (await other.request("agent.wait", runId="k1", timeoutMs=5000))["payload"]
    assert (waited["status"], waited["text"]) == ("ok", "all the same")


async def test_an_approval_is_asked_for_and_given(join: Join, world: World) -> None:
    peer, reader = await join(), await join(auth={"token": READER})
    asked = await peer.ask("agent", message="ask c7", sessionKey="alice")
    wish = await peer.event("exec.approval.requested")
    assert (wish["id"], wish["request"]["command"]) == ("c7", "rm -rf")
    assert (await peer.request("exec.approval.resolve", id="c7", decision="allow-once"))["payload"] == {"ok": True}
    assert (await peer.event("exec.approval.resolved"))["decision"] == "allow-once"
    assert (await peer.answer(asked))["ok"]
    assert (await peer.answer(asked))["payload"]["result"]["payloads"] == [{"text": "allow"}]
    await reader.event("chat", state="final")
    assert not [frame for frame in reader.kept if "approval" in frame.get("event", "")], "who may not approve"
    assert reader.seqs == list(range(1, len(reader.seqs) + 1)), "misses nothing"


# --- other methods ----------------------------------------------------------------------------------------------------


async def test_the_gateway_describes_itself(join: Join) -> None:
    peer = await join()
    assert (await peer.request("health"))["payload"]["workers"]["max"] == 2
    assert (await peer.request("status"))["payload"]["pool"]["mode"] == "running"
    agents = (await peer.request("agents.list"))["payload"]
    assert (agents["defaultId"], [row["id"] for row in agents["agents"]]) == ("main", ["main", "ops", "quick"])
    models = (await peer.request("models.list"))["payload"]["models"]
    assert models == [{"id": "large", "name": "large", "provider": "acme"}]
    config, again = [(await peer.request("config.get"))["payload"] for _ in range(2)]
    assert (config["config"]["http"]["token"], config["hash"], len(again["hash"])) == ("***", again["hash"], 64)


@pytest.mark.parametrize(("mode", "ignored"), [("now", None), ("next-heartbeat", ["mode"])])
async def test_a_session_gets_an_event_with_its_next_turn(
    join: Join, world: World, mode: str, ignored: list[str] | None
) -> None:
    answer = (await (await join()).request("wake", text="the build is red", mode=mode))["payload"]
    assert (answer["queued"], answer.get("ignored")) == (True, ignored)
    await world.ask("hello", answer["sessionKey"])
    assert "the build is red" in world.launcher.asked("prompt")[-1]["text"]


X = {"message": "x"}


@pytest.mark.parametrize(
    ("method", "params", "words"),
    [
        ("nothing", {}, "unknown method: 'nothing'; there are: agent"),
        ("agent", {}, "missing required field `message`"),
        ("agent", {"message": ""}, "length >= 1"),
        ("agent", {**X, "mesage": "y"}, "unknown parameter 'mesage'"),
        ("agent", {**X, "timeout": -1}, ">= 0"),
        ("agent", {**X, "sessionKey": "a", "sessionId": "b"}, "name two conversations"),
        ("agent", {**X, "threadId": "7"}, "threadId names a conversation only together"),
        ("chat.send", X, "chat.send needs a sessionKey"),
        ("chat.send", {**X, "sessionKey": "a", "sessionId": "b"}, "name two conversations"),
        ("agent", {**X, "provider": "acme"}, "give model, too"),
        ("agent", {**X, "model": "a b"}, "model"),
        ("sessions.resolve", {}, "exactly one of"),
        ("sessions.resolve", {"key": "a", "label": "b"}, "exactly one of"),
        ("sessions.resolve", {"key": "nobody"}, "there is no session 'nobody'"),
        ("sessions.resolve", {"key": "agent:"}, "session key"),
        ("sessions.patch", {"key": "nobody", "label": "x"}, "nobody"),
        ("sessions.messages.subscribe", {"key": "cron:"}, "session key"),
        ("logs.tail", {"limit": 5001}, "<= 5000"),
        ("chat.send", {"sessionKey": "agent:", **X}, "agent:"),
        ("exec.approval.resolve", {"id": "c1", "decision": "allow-always"}, "allow-always"),
        ("agent", {**X, "attachments": [{"content": "!", "mimeType": "image/png"}]}, "no base64"),
        ("agent", {**X, "attachments": [{"content": "eA==", "mimeType": "text/plain"}]}, "only images"),
        ("sessions.get", {}, "sessions.get needs a key"),
        ("sessions.delete", {"key": "a", "deleteTranscript": False}, "to keep it, reset the session"),
        ("health", [1], ""),
    ],
)
async def test_a_request_that_cannot_be_carried_out_is_told_why(
    join: Join, method: str, params: Any, words: str
) -> None:
    peer = await join()
    await peer.say({"type": "req", "id": "x", "method": method, "params": params})
    error = (await peer.answer("x"))["error"]
    assert (error["code"], words in error["message"]) == ("INVALID_REQUEST", True)
    await peer.say({"type": "req", "id": "n", "method": "health", "params": None})
    assert (await peer.answer("n"))["ok"], "parameters may be null"


# --- the end ----------------------------------------------------------------------------------------------------------


async def test_the_end_of_the_server_is_said_before_it_comes(join: Join, door: Door, connect: Connect) -> None:
    peer, before_connect = await join(), SocketPeer(await connect(door, None))
    await before_connect.open()
    await peer.ask("agent", message="hang", sessionKey="alice")
    await peer.event("agent", stream="assistant")
    door.close()
    frames = await peer.rest()
    assert (frames[-1]["event"], peer.closed) == ("shutdown", (1001, "the supervisor ends"))
    assert (await before_connect.rest(), before_connect.closed) == ([], (1001, "the supervisor ends"))
    for each in (peer, before_connect):
        await each.leave()
    with trio.fail_after(20):
        await door.ended.wait()


async def test_nothing_is_followed_when_nobody_listens_any_more(
    join: Join, door: Door, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("doors.websocket.hub._LINGER_SECONDS", 0.05)
    peer = await join()
    await settle(lambda: follows(world))
    await peer.leave()
    await settle(lambda: not follows(world))
    again = await join()
    await again.request("chat.send", sessionKey="alice", message="say hello")
    assert (await again.event("chat", state="final"))["sessionKey"] == "alice"
    assert hub_of(door)._listeners
