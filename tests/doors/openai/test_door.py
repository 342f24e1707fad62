"""The door over a gateway of memory: what shows only when the worker, or the server, does what it is told to."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from doors.http import routes as served
from doors.http.settings import HttpSettings
from doors.openai import completion, routes
from doors.openai.session_ref import response_id
from tests.doors.http.conftest import SMALL, Door, Open, settle
from tests.doors.http.peer import HttpPeer
from tests.gateway.workers import GatewayLauncher
from tests.gateway.world import WholeStore, World, open_world

CHAT = "/v1/chat/completions"


@pytest.fixture
def open_v1(open_door: Open, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Opens a server on which there is only this door."""
    monkeypatch.setattr(served, "DOORS", (routes.routes,))
    return open_door


def body(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "main", "messages": [{"role": "user", "content": text}], "user": "alice", **more}


async def until(peer: HttpPeer, end: bytes) -> bytes:
    """What a stream says up to, and with, ``end``."""
    said = b""
    with trio.fail_after(20):
        while end not in said:
            part = await peer.part()
            assert part, said
            said += part
    return said


async def running(world: World, text: str) -> Any:
    """The worker that has got as far as this prompt."""
    await settle(lambda: any(worker.text == text for worker in world.launcher.workers))
    return world.launcher.running(text)


def kept(door: Door) -> list[str]:
    """The sessions that wait for their clients."""
    (chore,) = door.server.services.background_tasks
    forgetting = chore.__self__  # type: ignore[attr-defined]  # a method
    return [*forgetting._awaiting_tools.timers, *forgetting._stored.timers]


async def test_a_second_request_of_a_session_waits_for_the_first_and_is_not_put_into_it(
    open_v1: Open, world: World
) -> None:
    door = await open_v1(world.methods)
    first, second = await door.connect(), await door.connect()
    await first.send("POST", CHAT, body("hang"))
    worker = await running(world, "hang")
    await second.send("POST", CHAT, body("say two"))
    await settle(lambda: worker.steers or world.gateway.scheduler.lanes.depth("alice"))
    worker.finish("one")
    answers = [(await peer.read()).json["choices"][0]["message"]["content"] for peer in (first, second)]
    assert answers == ["one", "two"]


async def test_a_session_of_its_own_waits_for_results_and_no_longer_when_they_have_come(
    open_v1: Open, world: World
) -> None:
    door = await open_v1(world.methods)
    peer = await door.connect()
    said = body("mute", user=None)
    await peer.send("POST", CHAT, said)
    calls = [{"id": "c1", "name": "weather", "input": {}}]
    (await running(world, "mute")).finish("", stop_reason="tool_calls", calls=calls)
    message = (await peer.read()).json["choices"][0]["message"]
    (session,) = kept(door)
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "grey"}
    said["messages"] += [message, result, {"role": "user", "content": "hang"}]
    await peer.send("POST", CHAT, said)
    worker = await running(world, "hang")
    assert kept(door) == []
    assert world.launcher.requests[-1][1]["tool_results"] == [
        {"tool_use_id": "c1", "content": "grey", "is_error": False}
    ]
    worker.finish("done")
    assert (await peer.read()).status == 200
    await settle(lambda: world.gateway.sessions.get(session) is None)


async def test_another_request_under_the_same_key_does_not_harm_the_first(open_v1: Open, world: World) -> None:
    door = await open_v1(world.methods)
    first, second = await door.connect(), await door.connect()
    await first.send("POST", CHAT, body("mute", user=None), idempotency_key="k1")
    worker = await running(world, "mute")
    answer = await second.call("POST", CHAT, body("something else", user=None), idempotency_key="k1")
    assert (answer.status, kept(door)) == (409, [])
    worker.finish("done")
    assert (await first.read()).status == 200


async def test_a_response_whose_client_has_left_can_be_fetched_and_continued(open_v1: Open, world: World) -> None:
    door = await open_v1(world.methods)
    peer = await door.connect()
    await peer.send("POST", "/v1/responses", {"model": "main", "input": "mute", "stream": True})
    worker = await running(world, "mute")
    await peer.stream.aclose()
    await settle(lambda: kept(door))
    worker.finish("said to nobody")
    (session,) = kept(door)
    entry = world.gateway.sessions.get(session)
    assert entry is not None
    given = response_id(session, entry.last_run or "")
    found = (await door.call("GET", f"/v1/responses/{given}")).json
    assert found["output"][0]["content"][0]["text"] == "said to nobody"
    assert (await door.call("DELETE", f"/v1/responses/{given}")).json["deleted"] is True
    assert (kept(door), world.gateway.sessions.get(session)) == ([], None)


async def test_a_stream_in_which_nothing_is_said_yet_is_kept_alive(
    open_v1: Open, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "KEEPALIVE_SECONDS", 0.05)
    peer = await (await open_v1(world.methods)).connect()
    await peer.send("POST", CHAT, body("mute", stream=True))
    worker = await running(world, "mute")
    head = await peer.head()
    assert dict(head.headers)[b"content-type"] == b"text/event-stream; charset=utf-8"
    await until(peer, b": waiting\n\n: waiting\n\n")
    worker.finish("at last")
    said = await until(peer, b"data: [DONE]\n\n")
    assert b'"content":"at last"' in said


async def test_the_end_of_the_server_is_the_last_message_of_a_stream_that_has_begun(
    open_v1: Open, world: World
) -> None:
    door = await open_v1(world.methods)
    peer = await door.connect()
    await peer.send("POST", CHAT, body("hang", stream=True))
    await peer.head()
    await until(peer, b'"content":"well "')
    door.close()
    said = await until(peer, b"\n\n")
    assert json.loads(said.removeprefix(b"data: "))["error"]["code"] == "pool_closed"
    assert await peer.part() == b"", "and nothing comes after it"


@pytest.mark.parametrize("is_stream", [False, True])
async def test_the_end_of_the_server_is_an_answer_that_says_not_to_ask_again(
    open_v1: Open, world: World, *, is_stream: bool
) -> None:
    door = await open_v1(world.methods)
    peer = await door.connect()
    await peer.send("POST", CHAT, body("mute", stream=is_stream))
    await running(world, "mute")
    door.close()
    answer = await peer.read()
    assert (answer.status, answer.error["code"]) == (503, "pool_closed")
    assert answer.headers["x-should-retry"] == "false", "its run goes on in the next life"


async def test_a_pool_that_takes_nothing_new_says_to_ask_again(open_v1: Open, world: World) -> None:
    world.gateway.intake.is_closed = True
    answer = await (await open_v1(world.methods)).call("POST", CHAT, body("hello"))
    assert (answer.status, answer.headers["x-should-retry"]) == (503, "true")


@pytest.mark.parametrize("way", ["leaves", "is cut"])
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("aborts", [False, True])
async def test_a_run_goes_on_without_its_client_or_ends_with_it_as_the_settings_say(
    open_v1: Open, world: World, way: str, *, is_stream: bool, aborts: bool
) -> None:
    door = await open_v1(world.methods, abort_on_disconnect=aborts)
    peer = await door.connect()
    await peer.send("POST", CHAT, body("mute", user=None, stream=is_stream), idempotency_key="k1")
    worker = await running(world, "mute")
    (session,) = [session.key for session in world.gateway.sessions]
    run = world.gateway.run_registry.find("token:http", "k1", session)
    if way == "leaves":
        await peer.stream.aclose()
    else:
        other = {**SMALL, "token": "another-token-0123456789", "abort_on_disconnect": aborts}
        door.server.prepare(HttpSettings(**other))()
        assert await peer.is_closed()
    await settle(lambda: door.figures.connections == 0)
    if not aborts:
        assert run.is_live
        worker.finish("done")
    with trio.fail_after(20):
        outcome = await run.wait()
    assert outcome.status == ("error" if aborts else "ok")
    await settle(lambda: world.gateway.sessions.get(session) is None)


async def test_a_response_is_continued_in_the_next_life_of_the_supervisor(open_v1: Open, tmp_path: Path) -> None:
    store, launcher, asked = WholeStore(), GatewayLauncher(), {"model": "main", "input": "my name is Ada"}
    async with open_world(tmp_path / "one", store=store, launcher=launcher, clock=time.time) as world:
        first = await (await open_v1(world.methods)).call("POST", "/v1/responses", asked)
    async with open_world(tmp_path / "one", store=store.after_a_stop(), launcher=launcher, clock=time.time) as world:
        again = {"model": "main", "input": "and on", "previous_response_id": first.json["id"]}
        answer = await (await open_v1(world.methods)).call("POST", "/v1/responses", again)
    assert answer.status == 200
    assert list(launcher.transcripts.values()) == [["my name is Ada", "and on"]]


async def test_a_session_named_in_another_script_comes_as_utf_8(open_v1: Open, world: World) -> None:
    door = await open_v1(world.methods)
    peer = await door.connect()
    name = "sitzung-\u4e16"
    headers = f"authorization: Bearer {peer.token}\r\ncontent-type: application/json\r\nx-pool-session: {name}"
    content = json.dumps(body("hello")).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: {peer.host}\r\n{headers}\r\ncontent-length: {len(content)}\r\n\r\n"
    await peer.send_raw(head.encode() + content)
    said = b""
    with trio.fail_after(20):
        while b"}]" not in said:
            said += await peer.stream.receive_some(65536)
    assert said.startswith(b"HTTP/1.1 200")
    assert world.gateway.sessions.get(name) is not None


async def test_a_body_that_is_no_request_or_of_another_kind_or_size_is_refused(open_v1: Open, world: World) -> None:
    door = await open_v1(world.methods)
    half = b'{"model":"main","messages":' + b"[" * 5000
    for content in (b"", b"{", b"[]", b"7", b"\xff", b'{"model":"main"}', half):
        answer = await door.call("POST", CHAT, content)
        assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")
    assert (await door.call("POST", CHAT, b"{}", content_type="text/plain")).status == 415
    answer = await door.call("POST", CHAT, body("x" * 200_000))
    assert (answer.status, answer.error["code"]) == (413, "content_too_large")
