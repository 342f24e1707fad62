"""Methods as calls: what is answered, and what goes wrong how."""

import json

import pytest
import trio

from tests.doors.http.conftest import Connect, Door, Open
from tests.doors.methods import FakeMethods
from tests.gateway.world import World


async def test_a_method_is_called_with_the_body_as_its_parameters(door: Door, connect: Connect) -> None:
    peer = await connect(door)
    answer = await peer.call("POST", "/api/echo", {"text": "hällo \u2028"})
    assert (answer.status, answer.json) == (200, {"text": "hällo \u2028"})
    assert (await peer.call("POST", "/api/echo")).json == {}, "on the same connection, without a body"


async def test_parameters_in_the_address_are_refused(door: Door, connect: Connect) -> None:
    answer = await (await connect(door)).call("POST", "/api/echo?session=alice", {"text": "x"})
    assert (answer.status, answer.error["code"]) == (400, "usage")
    assert "in the body" in answer.error["message"]


async def test_the_caller_is_known_by_the_name_of_its_token(door: Door, connect: Connect) -> None:
    answer = await (await connect(door)).call("POST", "/api/whoami", {})
    assert answer.json["principal"] == "token:http"


@pytest.mark.parametrize(
    ("method", "status", "code"),
    [
        ("nothing", 400, "usage"),
        ("fail", 502, "worker_exited"),
        ("saturate", 503, "saturated"),
        ("group", 400, "usage"),
        ("crash", 500, "internal"),
        ("unencodable", 500, "internal"),
        ("subscribe", 400, "usage"),
    ],
)
async def test_each_kind_of_error_has_its_status_and_one_shape(
    door: Door, connect: Connect, method: str, status: int, code: str
) -> None:
    answer = await (await connect(door)).call("POST", f"/api/{method}", {})
    assert (answer.status, answer.error["code"]) == (status, code)
    assert answer.error["message"]


async def test_a_saturated_pool_says_when_to_come_again(door: Door, connect: Connect) -> None:
    answer = await (await connect(door)).call("POST", "/api/saturate", {})
    assert answer.headers["retry-after"] == "3", "2.5 seconds, of which HTTP knows no half"


@pytest.mark.parametrize("body", [b"7", b"[]", b"{", b"\xff", b'{"a":1}x', b'{"\\ud800": 1'])
async def test_a_body_that_is_no_object_is_the_callers_fault(
    open_door: Open, connect: Connect, body: bytes, world: World
) -> None:
    door = await open_door(world.methods)
    answer = await (await connect(door)).call("POST", "/api/ping", body)
    assert (answer.status, answer.error["code"]) == (400, "usage")


async def test_a_form_of_a_foreign_page_is_not_read(door: Door, connect: Connect, methods: FakeMethods) -> None:
    answer = await (await connect(door)).call("POST", "/api/echo", b"{}", content_type="text/plain")
    assert (answer.status, "echo" in methods.calls) == (415, False)


async def test_a_peer_that_leaves_ends_what_it_waited_for(door: Door, connect: Connect, methods: FakeMethods) -> None:
    peer = await connect(door)
    await peer.send("POST", "/api/hang", {})
    await methods.hanging.wait()
    await peer.stream.aclose()
    with trio.fail_after(20):
        await methods.cancelled.wait()


async def test_pushes_of_a_followed_call_come_as_messages_before_its_result(door: Door, connect: Connect) -> None:
    peer = await connect(door)
    await peer.send("POST", "/api/count", {"events": 3}, accept="text/event-stream")
    head = await peer.head()
    messages = await peer.rest()
    assert head.status_code == 200
    assert [message["event"] for message in messages] == ["events", "events", "events", "result"]
    assert messages[0]["data"]["events"][0]["data"] == {"delta": ""}
    assert messages[-1]["data"] == {"events": 3}


async def test_a_followed_call_that_fails_says_so_as_its_last_message(door: Door, connect: Connect) -> None:
    peer = await connect(door)
    await peer.send("POST", "/api/fail", {}, accept="text/event-stream")
    await peer.head()
    (message,) = await peer.rest()
    assert (message["event"], message["data"]["error"]["code"]) == ("error", "worker_exited")


async def test_there_is_nothing_at_other_paths_and_other_methods_are_refused(door: Door, connect: Connect) -> None:
    peer = await connect(door)
    assert (await peer.call("GET", "/nothing")).error["code"] == "not_found"
    answer = await peer.call("GET", "/api/echo")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert json.loads(answer.body)["error"]["code"] == "method_not_allowed"
