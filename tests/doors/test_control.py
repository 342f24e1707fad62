"""The control socket over real Unix sockets: what it answers, and what no peer can do to it or to the others."""

import contextlib
import logging
import os
from typing import Any

import pytest
import trio

from tests.doors.conftest import SMALL, Connect
from tests.doors.methods import FakeMethods, an_event
from tests.doors.peer import Peer


async def still_serves(connect: Connect) -> bool:
    peer = await connect()
    answer = await peer.call("alive", "echo", x=1)
    peer.stream.socket.close()
    return answer == {"id": "alive", "result": {"x": 1}}


# --- answers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_id", ["a", "", 7, -1])
async def test_a_request_is_answered_under_its_own_id(connect: Connect, request_id: str | int) -> None:
    peer = await connect()
    assert await peer.call(request_id, "echo", text="hé\u2028") == {"id": request_id, "result": {"text": "hé\u2028"}}


async def test_pushes_of_a_request_carry_what_they_were_given_and_come_before_its_answer(connect: Connect) -> None:
    peer = await connect()
    await peer.ask("q", "count", events=2)
    assert await peer.hear() == {"event": "events", "data": {"request": "q", "events": [an_event(0)]}}
    assert await peer.hear() == {"event": "events", "data": {"request": "q", "events": [an_event(1)]}}
    assert await peer.hear() == {"id": "q", "result": {"events": 2}}


async def test_a_push_that_was_encoded_already_arrives_like_any_other(connect: Connect) -> None:
    peer = await connect()
    await peer.ask("q", "count_at_once", events=2)
    assert await peer.hear() == {"event": "events", "data": {"request": "q", "events": [an_event(0), an_event(1)]}}
    assert await peer.hear() == {"id": "q", "result": {"events": 2}}


async def test_a_request_that_waits_holds_up_neither_those_before_nor_those_behind_it(
    connect: Connect, methods: FakeMethods
) -> None:
    peer = await connect()
    lines = [b'{"id": %d, "method": "%b"}\n' % (n, method) for n, method in enumerate((b"echo", b"wait", b"echo"))]
    await peer.stream.send_all(b"".join(lines))
    assert [await peer.hear(), await peer.hear()] == [{"id": 0, "result": None}, {"id": 2, "result": None}]
    methods.release.set()
    assert await peer.hear() == {"id": 1, "result": "released"}


async def test_an_answer_leaves_although_all_that_came_with_it_waits(connect: Connect, methods: FakeMethods) -> None:
    peer = await connect()
    names = [b"echo", *[b"wait"] * SMALL.max_requests]
    await peer.stream.send_all(b"".join(b'{"id": %d, "method": "%b"}\n' % pair for pair in enumerate(names)))
    assert await peer.hear() == {"id": 0, "result": None}
    methods.release.set()
    answers = [await peer.hear() for _ in range(SMALL.max_requests)]
    assert sorted(answer["id"] for answer in answers if answer) == list(range(1, SMALL.max_requests + 1))


@pytest.mark.parametrize("waits", [False, True])
async def test_a_request_is_logged_under_its_own_id_only(connect: Connect, *, waits: bool) -> None:
    peer = await connect()
    mine = {"request": 1, "method": "whoami", "principal": f"uid:{os.geteuid()}"}
    first = await peer.call(1, "whoami", waits=waits, bind={"session": "alice"})
    assert first["result"] == {"principal": mine["principal"], "context": {**mine, "session": "alice"}}
    second = await peer.call(2, "whoami", waits=waits)
    assert second["result"]["context"] == {**mine, "request": 2}


async def test_requests_of_one_connection_run_side_by_side(connect: Connect, methods: FakeMethods) -> None:
    peer = await connect()
    await peer.ask(1, "wait")
    assert await peer.call(2, "echo") == {"id": 2, "result": {}}
    methods.release.set()
    assert await peer.hear() == {"id": 1, "result": "released"}


async def test_an_id_in_flight_cannot_be_used_twice_but_again_later(connect: Connect, methods: FakeMethods) -> None:
    peer = await connect()
    await peer.ask(1, "wait")
    answer = await peer.call(1, "echo")
    assert answer["error"]["code"] == "usage"
    assert "still in flight" in answer["error"]["message"]
    methods.release.set()
    assert await peer.hear() == {"id": 1, "result": "released"}
    assert await peer.call(1, "echo") == {"id": 1, "result": {}}


@pytest.mark.parametrize(
    ("method", "code", "data"),
    [
        ("fail", "worker_exited", {"worker": "w1", "sent": True, "stderr_tail": "boom"}),
        ("group", "usage", {}),
        ("nonsense", "usage", {}),
        ("saturate", "saturated", {}),
    ],
)
async def test_an_error_crosses_with_its_code_and_what_json_can_hold_of_its_details(
    connect: Connect, method: str, code: str, data: dict[str, object]
) -> None:
    peer = await connect()
    error = (await peer.call("e", method))["error"]
    assert error["code"] == code
    assert error["message"]
    assert error.get("data", {}) == data


@pytest.mark.parametrize("method", ["crash", "unencodable"])
async def test_a_defect_behind_the_door_is_answered_and_logged(
    connect: Connect, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    peer = await connect()
    with caplog.at_level(logging.ERROR):
        error = (await peer.call("e", method))["error"]
    assert error["code"] == "internal"
    assert [record.exc_info is not None for record in caplog.records] == [True]
    assert await still_serves(connect)


# --- what is no request ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        b"null",
        b"[]",
        b"17",
        b'"text"',
        b"{",
        b"}{",
        b"\xff\xfe",
        b"GET / HTTP/1.1",
        b"{}",
        b'{"method": "echo"}',
        b'{"id": null, "method": "echo"}',
        b'{"id": true, "method": "echo"}',
        b'{"id": 99999999999999999999, "method": "echo"}',
        b'{"id": "' + b"x" * 200 + b'", "method": "echo"}',
        b"[" * 100_000,
        b'{"id": {"id": 1}, "method": "echo"}',
        rb'{"id": "\ud83d\ude00", "method": "echo", "params": "\ud83d"}',
    ],
)
async def test_a_line_without_a_usable_id_is_answered_under_null_and_the_connection_goes_on(
    connect: Connect, line: bytes
) -> None:
    peer = await connect()
    await peer.say(line)
    answer = await peer.hear()
    assert answer is not None
    assert answer["id"] is None
    assert answer["error"]["code"] == "usage"
    assert await peer.call(1, "echo") == {"id": 1, "result": {}}


@pytest.mark.parametrize(
    "line",
    [
        b'{"id": "i"}',
        b'{"id": "i", "method": 5}',
        b'{"id": "i", "method": "' + b"m" * 200 + b'"}',
        b'{"id": "i", "method": "echo", "params": "\xff"}',
        rb'{"id": "i", "method": "echo", "params": "cut in the middle of \ud83d"}',
    ],
)
async def test_a_bad_request_with_an_id_is_answered_under_it(connect: Connect, line: bytes) -> None:
    peer = await connect()
    await peer.say(line)
    answer = await peer.hear()
    assert answer is not None
    assert (answer["id"], answer["error"]["code"]) == ("i", "usage")


async def test_deep_parameters_cost_one_error_answer(connect: Connect) -> None:
    peer = await connect()
    await peer.say(b'{"id": 1, "method": "echo", "params": ' + b"[" * 90_000 + b"]" * 90_000 + b"}")
    answer = await peer.hear()
    assert answer is not None
    assert "error" in answer
    assert await still_serves(connect)


async def test_a_parameter_beside_the_parameters_is_refused(connect: Connect) -> None:
    peer = await connect()
    await peer.say(b'{"id":1,"method":"echo","session":"alice"}')
    answer = await peer.hear()
    assert answer is not None
    assert (answer["id"], answer["error"]["code"]) == (1, "usage")
    assert "`session`" in answer["error"]["message"]


async def test_empty_lines_are_nothing(connect: Connect) -> None:
    peer = await connect()
    await peer.say(b"\n\r\n  ")
    assert await peer.call(1, "echo") == {"id": 1, "result": {}}


async def test_a_peer_that_only_talks_rubbish_is_cut_off(connect: Connect) -> None:
    peer = await connect()
    for _ in range(SMALL.max_refused + 1):
        await peer.say(b"rubbish")
    answers = [await peer.hear() for _ in range(SMALL.max_refused + 1)]
    assert all(answer is not None and "error" in answer for answer in answers)
    assert await peer.hear() is None
    assert await still_serves(connect)


async def test_a_frame_over_the_limit_is_answered_and_ends_that_connection_only(
    connect: Connect, methods: FakeMethods
) -> None:
    peer, other = await connect(), await connect()
    await other.ask(1, "wait")
    with trio.move_on_after(5):
        with contextlib.suppress(trio.BrokenResourceError):
            await peer.stream.send_all(b"x" * 1_000_000)
    answer = await peer.hear()
    assert answer is not None
    assert "too large" in answer["error"]["message"]
    assert answer["error"]["message"].endswith(f" {SMALL.max_frame_bytes:,} bytes")
    assert "max_line_bytes" not in answer["error"]["message"]  # a setting of the workers' side
    assert await peer.hear() is None
    methods.release.set()
    assert await other.hear() == {"id": 1, "result": "released"}


async def test_half_frames_of_many_connections_together_are_bounded(connect: Connect) -> None:
    first, second = await connect(), await connect()
    await first.stream.send_all(b"x" * 199_000)
    with contextlib.suppress(trio.BrokenResourceError):  # cut off before it has said all
        await second.stream.send_all(b"x" * 199_000)
    answers: list[dict[str, Any]] = []
    async with trio.open_nursery() as nursery:
        for peer in (first, second):
            nursery.start_soon(note_first, peer, answers, nursery.cancel_scope)
    assert [answer["error"]["code"] for answer in answers] == ["saturated"]
    assert await still_serves(connect)


async def note_first(peer: Peer, answers: list[dict[str, Any]], scope: trio.CancelScope) -> None:
    answer = await peer.hear()
    if answer is not None:
        answers.append(answer)
        scope.cancel()


async def test_half_a_frame_and_gone_is_nothing(connect: Connect) -> None:
    peer = await connect()
    await peer.stream.send_all(b'{"id": 1, "met')
    peer.stream.socket.close()
    assert await still_serves(connect)


# --- peers that leave, or do not read -------------------------------------------------------------------------------


async def test_a_lost_peer_ends_its_requests(connect: Connect, methods: FakeMethods) -> None:
    peer = await connect()
    await peer.ask(1, "hang")
    await methods.hanging.wait()
    peer.stream.socket.close()
    with trio.fail_after(20):
        await methods.cancelled.wait()
    assert await still_serves(connect)


async def test_a_peer_that_has_said_all_still_gets_its_answers(connect: Connect, methods: FakeMethods) -> None:
    peer = await connect()
    await peer.ask(1, "wait")
    await peer.stream.send_eof()
    await methods.hanging.wait()
    methods.release.set()
    assert await peer.hear() == {"id": 1, "result": "released"}
    assert await peer.hear() is None


async def test_a_peer_that_never_reads_holds_back_its_own_request_and_is_cut_off(
    connect: Connect, methods: FakeMethods
) -> None:
    peer = await connect()
    await peer.ask(1, "count", events=1_000_000, size=1000)
    with trio.fail_after(20):
        await methods.cancelled.wait()
    kernel_buffers = 2 * 1024 * 1024
    assert methods.pushed * 1000 < kernel_buffers + 2 * SMALL.out_buffer_bytes
    assert await still_serves(connect)


async def test_a_peer_that_never_reads_does_not_slow_another(connect: Connect) -> None:
    mute, other = await connect(), await connect()
    await mute.ask(1, "count", events=1_000_000, size=1000)
    for number in range(50):
        assert await other.call(number, "echo") == {"id": number, "result": {}}


async def test_a_flood_of_requests_nobody_reads_the_answers_of_is_bounded(
    connect: Connect, methods: FakeMethods
) -> None:
    peer = await connect()
    with trio.move_on_after(5):
        try:
            for number in range(100_000):
                await peer.ask(number, "echo", text="x" * 1000)
        except trio.BrokenResourceError:
            pass  # cut off, as it should be
    assert len(methods.calls) < 10_000
    assert await still_serves(connect)


async def test_answers_nobody_reads_end_the_connection_for_which_most_of_them_wait(
    connect: Connect, methods: FakeMethods, caplog: pytest.LogCaptureFixture
) -> None:
    mute, other = await connect(), await connect()
    for number in range(SMALL.max_requests):
        await mute.ask(number, "wait_for_much", size=700_000)
    await other.ask(1, "wait_for_much", size=1_000_000)
    while methods.running < SMALL.max_requests + 1:
        await trio.testing.wait_all_tasks_blocked()
    methods.release.set()
    answer = await other.hear()
    assert answer is not None
    assert len(answer["result"]) == 1_000_000
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["a peer was cut off"]
    heard = [await mute.hear(), await mute.hear()]
    assert heard[-1] is None, "not one whole answer more than the socket held"


async def test_no_more_requests_run_at_once_than_allowed_and_none_is_lost(
    connect: Connect, methods: FakeMethods
) -> None:
    peer = await connect()
    for number in range(20):
        await peer.ask(number, "wait")
    await trio.testing.wait_all_tasks_blocked(0.05)
    assert methods.max_running == SMALL.max_requests
    methods.release.set()
    answers = [await peer.hear() for _ in range(20)]
    assert sorted(answer["id"] for answer in answers if answer) == list(range(20))


async def test_a_connection_too_many_is_told_so(connect: Connect) -> None:
    peers = [await connect() for _ in range(SMALL.max_connections)]
    for peer in peers:
        await peer.call(1, "echo")
    late = await connect()
    answer = await late.hear()
    assert answer is not None
    assert answer["error"]["code"] == "saturated"
    assert await late.hear() is None
    peers[0].stream.socket.close()
    with trio.fail_after(20):
        while (await (await connect()).call(1, "echo")).get("result") is None:
            pass  # the server has not noticed yet that a place is free


async def test_events_leave_in_few_sends(connect: Connect) -> None:
    peer = await connect()
    answer = await peer.call(1, "count", events=2000)
    assert answer == {"id": 1, "result": {"events": 2000}}
    assert peer.received_chunks <= 20
