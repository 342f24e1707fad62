"""``POST /api/METHOD``: answers, errors, followed calls; health, readiness and status."""

import pytest
import trio

from pool import stimuli
from tests.doors.http.conftest import Door, Open
from tests.doors.methods import FakeMethods
from tests.gateway.world import World

_CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_OTHER = "00-11111111111111111111111111111111-2222222222222222-01"


async def test_a_method_is_called_with_the_body_as_its_parameters_by_the_name_of_its_token(door: Door) -> None:
    peer = await door.connect()
    answer = await peer.call("POST", "/api/echo", {"text": "hällo \u2028"})
    assert (answer.status, answer.json) == (200, {"text": "hällo \u2028"})
    assert (await peer.call("POST", "/api/echo")).json == {}, "on the same connection, without a body"
    assert (await peer.call("POST", "/api/whoami", {})).json["principal"] == "token:http"


@pytest.mark.parametrize(
    ("method", "status", "code"),
    [
        *(("nothing", 400, "usage"), ("fail", 502, "worker_exited"), ("saturate", 503, "saturated")),
        *(("group", 400, "usage"), ("crash", 500, "internal"), ("unencodable", 500, "internal")),
        *(("subscribe", 400, "usage"), ("echo?session=alice", 400, "usage")),
    ],
)
async def test_each_kind_of_error_has_its_status_and_one_shape(door: Door, method: str, status: int, code: str) -> None:
    answer = await door.call("POST", f"/api/{method}", {})
    assert (answer.status, answer.error["code"]) == (status, code)
    assert answer.error["message"]
    assert answer.headers.get("retry-after") == ("3" if code == "saturated" else None), "2.5 s, in whole seconds"


async def test_a_body_that_is_no_object_is_the_callers_fault(open_door: Open, world: World) -> None:
    door = await open_door(world.methods)
    for body in (b"7", b"[]", b"{", b"\xff", b'{"a":1}x', b'{"\\ud800": 1'):
        answer = await door.call("POST", "/api/ping", body)
        assert (answer.status, answer.error["code"]) == (400, "usage"), body


async def test_a_form_of_a_foreign_page_is_not_read(door: Door, methods: FakeMethods) -> None:
    answer = await door.call("POST", "/api/echo", b"{}", content_type="text/plain")
    assert (answer.status, "echo" in methods.calls) == (415, False)


async def test_a_peer_that_leaves_ends_what_it_waited_for(door: Door, methods: FakeMethods) -> None:
    peer = await door.connect()
    await peer.send("POST", "/api/hang", {})
    await methods.hanging.wait()
    await peer.stream.aclose()
    with trio.fail_after(20):
        await methods.cancelled.wait()


async def test_pushes_of_a_followed_call_come_as_messages_before_its_result_or_its_error(door: Door) -> None:
    peer = await door.connect()
    await peer.send("POST", "/api/count", {"events": 3}, accept="text/event-stream")
    assert (await peer.head()).status_code == 200
    messages = await peer.rest()
    assert [message["event"] for message in messages] == ["events", "events", "events", "result"]
    assert messages[0]["data"]["events"][0]["data"] == {"delta": ""}
    assert messages[-1]["data"] == {"events": 3}
    peer = await door.connect()
    await peer.send("POST", "/api/fail", {}, accept="text/event-stream")
    await peer.head()
    (message,) = await peer.rest()
    assert (message["event"], message["data"]["error"]["code"]) == ("error", "worker_exited")


async def test_there_is_nothing_at_other_paths_and_other_methods_are_refused(door: Door) -> None:
    assert (await door.call("GET", "/nothing")).error["code"] == "not_found"
    answer = await door.call("GET", "/api/echo")
    assert (answer.status, answer.headers["allow"], answer.error["code"]) == (405, "POST", "method_not_allowed")


@pytest.fixture
async def measured(open_door: Open, world: World, monkeypatch: pytest.MonkeyPatch) -> Door:
    """The world's figures behind a server, with as much as a supervisor knows of itself."""
    monkeypatch.setattr("tests.gateway.world.Supervisor.facts", lambda _: {"pid": 1, "uptime": 2.5})
    return await open_door(world.methods)


async def test_readiness_is_for_everybody_and_looks_at_the_pool_once_a_second(
    measured: Door, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await measured.call("GET", "/health", token=None)).json == {"status": "ok"}
    assert (await measured.call("GET", "/ready", token=None)).json == {"status": "ready"}
    world.gateway.pool.submit(stimuli.Pause())
    assert (await measured.call("GET", "/ready", token=None)).status == 200, "not asked again yet"
    monkeypatch.setattr("doors.http.services._STATUS_SECONDS", 0.0)
    answer = await measured.call("GET", "/ready", token=None)
    assert (answer.status, answer.error["message"]) == (503, "the pool is paused and begins no turns")
    assert (await measured.call("GET", "/health", token=None)).status == 200


async def test_the_status_is_that_of_the_control_socket(measured: Door, world: World) -> None:
    answer, expected = await measured.call("GET", "/status"), await world.call("status")
    assert answer.json.keys() == expected.keys()
    assert answer.json["pool"] == expected["pool"]


@pytest.mark.parametrize(
    ("header", "own", "kept"),
    [
        (_CALLER, None, (_CALLER, "a=1")),
        (_CALLER, _OTHER, (_OTHER, None)),
        ("of another form", None, (None, None)),
        ("", None, (None, None)),
    ],
)
async def test_a_run_is_below_the_span_that_its_request_names(
    measured: Door, world: World, header: str, own: str | None, kept: tuple[str | None, str | None]
) -> None:
    body = {"session": "alice", "text": "hang", **({"traceparent": own} if own else {})}
    answer = await measured.call("POST", "/api/agent", body, traceparent=header, tracestate="a=1")
    (run,) = world.gateway.run_registry._live.values()
    request = run.request
    assert (request.run_id, (request.traceparent, request.tracestate)) == (answer.json["run_id"], kept)
