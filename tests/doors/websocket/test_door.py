"""The door over a gateway of memory: who comes in, what they may ask, what they hear."""

import json
from typing import Any

import pytest
import trio
from wsproto.events import AcceptConnection, RejectConnection

from doors.http.settings import HttpSettings
from tests.doors.http.conftest import SMALL, Connect, Door, Open
from tests.doors.http.peer import TOKEN
from tests.doors.websocket.conftest import READER, WRITER, Join, follows, hub_of, settle
from tests.doors.websocket.peer import CONNECT, SocketPeer
from tests.gateway.world import World
from wire.units import Seconds

# --- coming in --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/ws", "/", "/gateway/v4", "/api/status"])
async def test_the_challenge_then_connect_then_hello(door: Door, connect: Connect, path: str) -> None:
    peer = SocketPeer(await connect(door, None))
    assert isinstance(await peer.open(path), AcceptConnection)
    hello = (await peer.connect())["payload"]
    assert (hello["type"], hello["protocol"]) == ("hello-ok", 4)
    assert {"agent", "chat.send", "sessions.list", "health"} <= set(hello["features"]["methods"])
    assert {"agent", "chat", "tick", "shutdown"} <= set(hello["features"]["events"])
    assert hello["auth"]["scopes"] == ["operator.read", "operator.write", "operator.admin", "operator.approvals"]
    assert hello["policy"] == {"maxPayload": 100_000, "maxBufferedBytes": 300_000, "tickIntervalMs": 30_000}
    assert hello["snapshot"]["health"]["ok"] is True
    assert "deviceToken" not in json.dumps(hello)
    assert TOKEN not in json.dumps(hello)


async def test_version_3_is_spoken_to_who_knows_no_other(join: Join) -> None:
    assert (await join(minProtocol=3, maxProtocol=3)).hello["protocol"] == 3


async def test_two_connections_have_nonces_and_names_of_their_own(join: Join) -> None:
    one, other = await join(), await join()
    assert one.nonce != other.nonce
    assert one.hello["server"]["connId"] != other.hello["server"]["connId"]


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"auth": {"token": "forged-0123456789"}}, 1008),
        ({"auth": None}, 1008),
        ({"minProtocol": 5, "maxProtocol": 6}, 1002),
        ({"device": {"id": "d", "nonce": "replayed"}}, 1008),
    ],
)
async def test_who_may_not_come_in_is_answered_and_then_the_connection_closed(
    door: Door, connect: Connect, params: dict[str, Any], code: int
) -> None:
    peer = SocketPeer(await connect(door, None))
    await peer.open()
    answer = await peer.connect(**params)
    assert (answer["ok"], await peer.rest()) == (False, [])
    assert peer.closed is not None
    assert peer.closed[0] == code


async def test_the_nonce_of_one_connection_is_worth_nothing_on_another(
    join: Join, door: Door, connect: Connect
) -> None:
    recorded = (await join()).nonce
    peer = SocketPeer(await connect(door, None))
    await peer.open()
    assert (await peer.connect(device={"id": "d", "nonce": recorded}))["ok"] is False


@pytest.mark.parametrize("first", [{"type": "req", "id": "1", "method": "status"}, "garbage", b"binary", "x" * 66_000])
async def test_whatever_else_comes_first_ends_the_connection(door: Door, connect: Connect, first: Any) -> None:
    peer = SocketPeer(await connect(door, None))
    await peer.open()
    await peer.say(first)
    assert all(frame["ok"] is False for frame in await peer.rest())
    assert peer.closed is not None
    await peer.leave()
    await settle(lambda: door.figures.sockets == 0)


async def test_who_says_nothing_is_not_waited_for(
    open_ws: Open, connect: Connect, world: World, limits: dict[str, Any]
) -> None:
    limits["connect_timeout"] = Seconds(0.1)
    door = await open_ws(world.methods)
    peer = SocketPeer(await connect(door, None))
    await peer.open()
    assert await peer.rest() == []
    assert peer.closed == (1008, "no connect in time")


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"origin": "http://evil.example"}, 403), ({"origin": "null"}, 403), ({"host": "evil.example"}, 421)],
)
async def test_a_foreign_page_or_name_does_not_even_get_a_challenge(
    door: Door, connect: Connect, headers: dict[str, str], status: int
) -> None:
    http = await connect(door, None)
    http.host = headers.pop("host", http.host)
    answer = await SocketPeer(http).open(**headers)
    assert isinstance(answer, RejectConnection)
    assert answer.status_code == status


async def test_a_token_in_the_handshake_needs_none_in_the_first_frame(door: Door, connect: Connect) -> None:
    peer = SocketPeer(await connect(door, None))
    await peer.open(authorization=f"Bearer {TOKEN}")
    assert (await peer.connect(auth=None))["ok"]


async def test_a_token_that_holds_no_more_ends_its_connections(door: Door, join: Join) -> None:
    peer = await join()
    door.server.prepare(HttpSettings(**{**SMALL, "token": "another-token-0123456789"}))()
    assert await peer.rest() == []
    await settle(lambda: door.figures.sockets == 0)


# --- rights -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "method", "params", "is_allowed"),
    [
        (READER, "sessions.list", {}, True),
        (READER, "chat.send", {"sessionKey": "alice", "message": "x"}, False),
        (WRITER, "chat.send", {"sessionKey": "alice", "message": "x"}, True),
        (WRITER, "config.get", {}, False),
        (WRITER, "sessions.delete", {"key": "alice"}, False),
        (WRITER, "exec.approval.resolve", {"id": "c1", "decision": "deny"}, False),
        (TOKEN, "config.get", {}, True),
    ],
)
async def test_a_method_needs_its_scope(
    join: Join, token: str, method: str, params: dict[str, Any], *, is_allowed: bool
) -> None:
    answer = await (await join(auth={"token": token})).request(method, **params)
    assert answer["ok"] is is_allowed
    if not is_allowed:
        assert answer["error"]["message"].startswith("missing scope: operator.")
        assert answer["error"]["details"]["code"] == "forbidden"


async def test_who_asked_for_less_has_less(join: Join) -> None:
    peer = await join(scopes=["operator.read"])
    assert (await peer.request("chat.send", sessionKey="alice", message="x"))["ok"] is False


# --- runs -------------------------------------------------------------------------------------------------------------


async def test_agent_answers_twice_and_its_events_carry_its_key(join: Join, world: World) -> None:
    peer = await join()
    asked = await peer.ask(
        "agent", message="say hello", sessionKey="alice", idempotencyKey="k1", thinking="high", to="5"
    )
    accepted = (await peer.answer(asked))["payload"]
    assert (accepted["runId"], accepted["sessionKey"], accepted["status"]) == ("k1", "alice", "accepted")
    assert accepted["ignored"] == ["thinking", "to"]
    last = (await peer.answer(asked))["payload"]
    assert (last["runId"], last["status"], last["summary"]) == ("k1", "ok", "completed")
    assert last["result"]["payloads"] == [{"text": "hello"}]
    start = await peer.event("agent", runId="k1", phase="start")
    end = await peer.event("agent", runId="k1", phase="end")
    assert (start["stream"], end["stream"]) == ("lifecycle", "lifecycle")
    assert start["seq"] < end["seq"]
    final = await peer.event("chat", runId="k1", state="final")
    assert final["message"]["content"] == [{"type": "text", "text": "hello"}]
    assert len(world.launcher.prompts) == 1


async def test_the_same_key_again_starts_nothing(join: Join, world: World) -> None:
    peer = await join()
    for _ in range(2):
        asked = await peer.ask("agent", message="say hello", sessionKey="alice", idempotencyKey="k1")
        await peer.answer(asked)
        assert (await peer.answer(asked))["payload"]["result"]["payloads"] == [{"text": "hello"}]
    assert len(world.launcher.prompts) == 1
    refused = await peer.request("agent", message="other", sessionKey="alice", idempotencyKey="k1")
    assert refused["error"]["details"]["code"] == "conflict"


async def test_a_run_that_fails_is_the_second_answers_error(join: Join) -> None:
    peer = await join()
    asked = await peer.ask("agent", message="fail", sessionKey="alice", idempotencyKey="k1")
    assert (await peer.answer(asked))["ok"]
    error = (await peer.answer(asked))["error"]
    assert (error["code"], error["details"]["code"], error["details"]["runId"]) == ("UNAVAILABLE", "worker_error", "k1")
    assert "the model is ill" in (await peer.event("chat", state="error"))["errorMessage"]


async def test_text_is_told_while_it_is_said_to_everybody(join: Join, world: World) -> None:
    asking, looking = await join(), await join(auth={"token": READER})
    await asking.ask("chat.send", sessionKey="alice", message="hang", idempotencyKey="k1")
    assert (await looking.event("agent", stream="assistant"))["data"] == {"text": "well ", "delta": "well "}
    world.launcher.running("hang").tell("assistant_message", partial="then")
    assert (await looking.event("agent", stream="assistant"))["data"] == {"text": "well then", "delta": "then"}
    world.launcher.running("hang").finish("well then")
    assert (await asking.event("chat", state="final"))["runId"] == "k1"


async def test_who_comes_in_the_middle_of_an_answer_hears_all_of_it(join: Join, world: World) -> None:
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


async def test_a_run_outlives_who_asked_for_it(join: Join, door: Door, world: World) -> None:
    peer = await join()
    await peer.ask("agent", message="hang", sessionKey="alice", idempotencyKey="k1")
    await peer.event("agent", stream="assistant")
    await peer.leave()
    await settle(lambda: door.figures.sockets == 0)
    world.launcher.running("hang").finish("all the same")
    other = await join()
    waited = (await other.request("agent.wait", runId="k1", timeoutMs=5000))["payload"]
    assert (waited["status"], waited["text"]) == ("ok", "all the same")


async def test_waiting_for_a_run_may_end_before_it_does(join: Join) -> None:
    peer = await join()
    await peer.request("chat.send", sessionKey="alice", message="hang", idempotencyKey="k1")
    waited = (await peer.request("agent.wait", runId="k1", timeoutMs=0))["payload"]
    assert (waited["runId"], waited["status"]) == ("k1", "timeout")


async def test_a_run_that_is_not_known_has_no_outcome_yet(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doors.websocket.runs._UNKNOWN_RUN_DELAY", 0.01)
    waited = (await (await join()).request("agent.wait", runId="nobody's", timeoutMs=10_000))["payload"]
    assert waited == {"runId": "nobody's", "status": "timeout"}


async def test_a_run_may_name_its_model(join: Join, world: World) -> None:
    peer = await join()
    asked = await peer.ask("agent", message="say hello", sessionKey="alice", provider="acme", model="big")
    assert (await peer.answer(asked))["ok"]
    assert (await peer.answer(asked))["payload"]["status"] == "ok"
    assert [worker.model for worker in world.launcher.workers] == ["big"]


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
    assert not [frame for frame in reader.kept if "approval" in frame.get("event", "")], (
        "who may not approve hears nothing"
    )
    seqs = [frame["seq"] for frame in reader.kept if frame["type"] == "event"]
    assert seqs == list(range(1, len(seqs) + 1)), "and misses nothing"


# --- other methods ----------------------------------------------------------------------------------------------------


async def test_the_gateway_tells_of_itself(join: Join) -> None:
    peer = await join()
    assert (await peer.request("health"))["payload"]["workers"]["max"] == 2
    assert (await peer.request("status"))["payload"]["pool"]["mode"] == "running"
    agents = (await peer.request("agents.list"))["payload"]
    assert (agents["defaultId"], [row["id"] for row in agents["agents"]]) == ("main", ["main", "ops", "quick"])
    assert (await peer.request("models.list"))["payload"] == {
        "models": [{"id": "large", "name": "large", "provider": "acme"}]
    }
    config = (await peer.request("config.get"))["payload"]
    assert config["config"]["http"]["token"] == "***"
    assert config["hash"] == (await peer.request("config.get"))["payload"]["hash"]
    assert len(config["hash"]) == 64


@pytest.mark.parametrize(("mode", "ignored"), [("now", None), ("next-heartbeat", ["mode"])])
async def test_a_session_is_told_something_with_its_next_turn(
    join: Join, world: World, mode: str, ignored: list[str] | None
) -> None:
    answer = (await (await join()).request("wake", text="the build is red", mode=mode))["payload"]
    assert (answer["queued"], answer.get("ignored")) == (True, ignored)
    await world.ask("hello", answer["sessionKey"])
    assert "the build is red" in world.launcher.asked("prompt")[-1]["text"]


@pytest.mark.parametrize(
    ("method", "params", "told"),
    [
        ("nothing", {}, "unknown method: 'nothing'; there are: agent"),
        ("agent", {}, "missing required field `message`"),
        ("agent", {"message": ""}, "length >= 1"),
        ("agent", {"message": "x", "mesage": "y"}, "unknown parameter 'mesage'"),
        ("agent", {"message": "x", "timeout": -1}, ">= 0"),
        ("agent", {"message": "x", "sessionKey": "a", "sessionId": "b"}, "name two conversations"),
        ("agent", {"message": "x", "threadId": "7"}, "threadId names a conversation only together"),
        ("chat.send", {"message": "x"}, "chat.send needs a sessionKey"),
        ("agent", {"message": "x", "provider": "acme"}, "give model, too"),
        ("agent", {"message": "x", "model": "a b"}, "model"),
        ("sessions.resolve", {}, "exactly one of"),
        ("sessions.resolve", {"key": "a", "label": "b"}, "exactly one of"),
        ("sessions.resolve", {"key": "nobody"}, "there is no session 'nobody'"),
        ("sessions.resolve", {"key": "agent:"}, "session key"),
        ("sessions.patch", {"key": "nobody", "label": "x"}, "nobody"),
        ("sessions.messages.subscribe", {"key": "cron:"}, "session key"),
        ("logs.tail", {"limit": 5001}, "<= 5000"),
        ("chat.send", {"sessionKey": "agent:", "message": "x"}, "agent:"),
        ("exec.approval.resolve", {"id": "c1", "decision": "allow-always"}, "allow-always"),
        ("agent", {"message": "x", "attachments": [{"content": "!", "mimeType": "image/png"}]}, "no base64"),
        ("agent", {"message": "x", "attachments": [{"content": "eA==", "mimeType": "text/plain"}]}, "only images"),
    ],
)
async def test_a_request_that_cannot_be_carried_out_is_told_why(
    join: Join, method: str, params: dict[str, Any], told: str
) -> None:
    error = (await (await join()).request(method, **params))["error"]
    assert error["code"] == "INVALID_REQUEST"
    assert told in error["message"]


async def test_parameters_may_be_null_and_must_be_an_object(join: Join) -> None:
    peer = await join()
    await peer.say({"type": "req", "id": "n", "method": "health", "params": None})
    assert (await peer.answer("n"))["ok"]
    await peer.say({"type": "req", "id": "l", "method": "health", "params": [1]})
    assert (await peer.answer("l"))["error"]["code"] == "INVALID_REQUEST"


async def test_images_go_with_a_message(join: Join, world: World) -> None:
    peer = await join()
    images = [{"content": "data:image/png;base64,eA=="}, {"content": "eQ==", "mimeType": "image/gif"}]
    await peer.request("chat.send", sessionKey="alice", message="hang", attachments=images)
    await peer.event("agent", stream="assistant")
    assert [image["data"] for image in world.launcher.asked("prompt")[-1]["images"]] == ["eA==", "eQ=="]


# --- the end ----------------------------------------------------------------------------------------------------------


async def test_the_end_of_the_server_is_said_before_it_comes(join: Join, door: Door) -> None:
    peer = await join()
    await peer.ask("agent", message="hang", sessionKey="alice")
    await peer.event("agent", stream="assistant")
    door.close()
    frames = await peer.rest()
    assert (frames[-1]["event"], peer.closed) == ("shutdown", (1001, "the supervisor ends"))
    await peer.leave()
    with trio.fail_after(20):
        await door.ended.wait()


async def test_the_end_of_the_server_before_connect_is_no_challenge_more(door: Door, connect: Connect) -> None:
    peer = SocketPeer(await connect(door, None))
    await peer.open()
    door.close()
    assert await peer.rest() == []
    assert peer.closed == (1001, "the supervisor ends")


async def test_connect_once_is_enough(join: Join) -> None:
    assert (await (await join()).request("connect", **CONNECT))["error"]["message"].endswith("connected already")


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
