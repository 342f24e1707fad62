"""The control socket over real Unix sockets: what it answers, and what no peer can do to it or to the others."""

import contextlib
import logging
import os

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.doors.conftest import SMALL, Connect
from tests.doors.methods import FakeMethods, an_event
from tests.doors.peer import Peer

LARGE = b'{"id": 1, "method": "wait", "params": "' + b"x" * 190_000 + b'"}'


async def still_serves(connect: Connect) -> bool:
    peer = await connect()
    answer = await peer.call("alive", "echo", x=1)
    peer.close()
    return answer == {"id": "alive", "result": {"x": 1}}


async def say_all(peer: Peer, data: bytes) -> None:
    with contextlib.suppress(trio.BrokenResourceError):  # cut off before all was sent
        await peer.stream.send_all(data)


# --- answers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_id", ["a", "", 7, -1])
async def test_a_request_is_answered_under_its_own_id(connect: Connect, request_id: str | int) -> None:
    peer = await connect()
    assert await peer.call(request_id, "echo", text="hé\u2028") == {"id": request_id, "result": {"text": "hé\u2028"}}


async def test_pushes_come_before_the_answer_in_few_sends_encoded_already_or_not(connect: Connect) -> None:
    peer = await connect()
    await peer.ask("q", "count", events=2)
    pushed = [{"event": "events", "data": {"request": "q", "events": [an_event(n)]}} for n in (0, 1)]
    assert [await peer.line() for _ in range(3)] == [*pushed, {"id": "q", "result": {"events": 2}}]
    await peer.ask("q", "count_at_once", events=2)
    assert await peer.line() == {"event": "events", "data": {"request": "q", "events": [an_event(0), an_event(1)]}}
    assert await peer.line() == {"id": "q", "result": {"events": 2}}
    assert await peer.call(1, "count", events=2000) == {"id": 1, "result": {"events": 2000}}
    assert peer.received_chunks <= 25


async def test_the_last_events_of_a_request_leave_with_its_answer(connect: Connect) -> None:
    peer = await connect()
    await peer.ask("q", "end")
    assert (await peer.line())["event"] == "events"
    assert await peer.line() == {"id": "q", "result": "ended"}
    assert peer.received_chunks == 1


class _SpawnCount(trio.abc.Instrument):
    def __init__(self) -> None:
        self.tasks = 0

    def task_spawned(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002  # as instruments are called
        self.tasks += 1


async def test_requests_that_wait_one_after_the_other_start_no_tasks(connect: Connect) -> None:
    peer = await connect()
    await peer.ask("first", "end")
    assert [await peer.line() for _ in range(2)][1]["result"] == "ended"
    spawned = _SpawnCount()
    trio.lowlevel.add_instrument(spawned)
    try:
        for number in range(3):
            await peer.ask(number, "end")
            assert [await peer.line() for _ in range(2)][1] == {"id": number, "result": "ended"}
    finally:
        trio.lowlevel.remove_instrument(spawned)
    assert spawned.tasks == 0


async def test_a_request_that_waits_holds_up_neither_those_before_nor_those_behind_it(
    connect: Connect, methods: FakeMethods
) -> None:
    peer = await connect()
    lines = [b'{"id": %d, "method": "%b"}\n' % (n, method) for n, method in enumerate((b"echo", b"wait", b"echo"))]
    await peer.stream.send_all(b"".join(lines))
    assert [await peer.hear(), await peer.hear()] == [{"id": 0, "result": None}, {"id": 2, "result": None}]
    assert await peer.call(1, "echo") == {
        "id": 1,
        "error": {"code": "usage", "message": "a request with the id 1 is still in flight; use another"},
    }
    methods.release.set()
    assert await peer.hear() == {"id": 1, "result": "released"}
    assert await peer.call(1, "echo") == {"id": 1, "result": {}}


async def test_an_answer_leaves_although_all_that_came_with_it_waits(connect: Connect, methods: FakeMethods) -> None:
    peer = await connect()
    names = [b"echo", *[b"wait"] * SMALL.max_requests]
    await peer.stream.send_all(b"".join(b'{"id": %d, "method": "%b"}\n' % pair for pair in enumerate(names)))
    assert await peer.hear() == {"id": 0, "result": None}
    methods.release.set()
    answers = [await peer.line() for _ in range(SMALL.max_requests)]
    assert sorted(answer["id"] for answer in answers) == list(range(1, SMALL.max_requests + 1))


@pytest.mark.parametrize("waits", [False, True])
async def test_a_request_is_logged_under_its_own_id_and_the_user_who_makes_it(connect: Connect, *, waits: bool) -> None:
    peer = await connect()
    mine = {"request": 1, "method": "whoami", "principal": f"uid:{os.geteuid()}"}
    first = await peer.call(1, "whoami", waits=waits, bind={"session": "alice"})
    assert first["result"] == {"principal": mine["principal"], "context": {**mine, "session": "alice"}}
    second = await peer.call(2, "whoami", waits=waits)
    assert second["result"]["context"] == {**mine, "request": 2}


WORKER_EXITED = {"worker": "w1", "sent": True, "stderr_tail": "boom"}


@pytest.mark.parametrize(
    ("method", "code", "data"),
    [
        *[("fail", "worker_exited", WORKER_EXITED), ("group", "usage", {}), ("nonsense", "usage", {})],
        *[("saturate", "saturated", {}), ("crash", "internal", {}), ("unencodable", "internal", {})],
    ],
)
async def test_an_error_crosses_with_its_code_and_what_json_can_hold_and_a_defect_is_logged(
    connect: Connect, caplog: pytest.LogCaptureFixture, method: str, code: str, data: dict[str, object]
) -> None:
    with caplog.at_level(logging.ERROR):
        error = (await (await connect()).call("e", method))["error"]
    assert (error["code"], bool(error["message"]), error.get("data", {})) == (code, True, data)
    assert [record.exc_info is not None for record in caplog.records] == [True] * (code == "internal")
    assert await still_serves(connect)


# --- what is no request ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        *(b"null", b"[]", b'"text"', b"{", b"\xff\xfe", b"GET / HTTP/1.1", b"{}", b'{"method": "echo"}'),
        *(b'{"id": null, "method": "echo"}', b'{"id": true, "method": "echo"}', b'{"id": {}, "method": "echo"}'),
        *(b'{"id": 99999999999999999999, "method": "echo"}', b'{"id": "' + b"x" * 200 + b'", "method": "echo"}'),
        *(b"[" * 100_000, rb'{"id": "\ud83d\ude00", "method": "echo", "params": "\ud83d"}'),
    ],
)
async def test_a_line_without_a_usable_id_is_answered_under_null_and_the_connection_goes_on(
    connect: Connect, line: bytes
) -> None:
    peer = await connect()
    await peer.say(line)
    assert (await peer.refusal())[:2] == (None, "usage")
    assert await peer.call(1, "echo") == {"id": 1, "result": {}}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"id": "i"}', ""),
        (b'{"id": "i", "method": 5}', ""),
        (b'{"id": "i", "method": "' + b"m" * 200 + b'"}', ""),
        (b'{"id": "i", "method": "echo", "params": "\xff"}', ""),
        (rb'{"id": "i", "method": "echo", "params": "cut in the middle of \ud83d"}', ""),
        (b'{"id": "i", "method": "echo", "session": "alice"}', "`session`"),
    ],
)
async def test_a_bad_request_with_an_id_is_answered_under_it(connect: Connect, line: bytes, words: str) -> None:
    peer = await connect()
    await peer.say(line)
    request_id, code, message = await peer.refusal()
    assert (request_id, code, words in message) == ("i", "usage", True)


async def test_deep_parameters_cost_one_error_answer_and_empty_lines_nothing(connect: Connect) -> None:
    peer = await connect()
    await peer.say(b'\n\r\n  \n{"id": 1, "method": "echo", "params": ' + b"[" * 90_000 + b"]" * 90_000 + b"}")
    assert "error" in await peer.line()
    assert await still_serves(connect)


async def test_a_peer_that_only_talks_rubbish_is_cut_off(connect: Connect) -> None:
    peer = await connect()
    for _ in range(SMALL.max_refused + 1):
        await peer.say(b"rubbish")
    assert ["error" in answer for answer in await peer.rest()] == [True] * (SMALL.max_refused + 1)
    assert await still_serves(connect)


async def test_a_frame_over_the_limit_is_answered_and_ends_that_connection_only(
    connect: Connect, methods: FakeMethods
) -> None:
    peer, other = await connect(), await connect()
    await other.ask(1, "wait")
    with trio.move_on_after(5):
        await say_all(peer, b'{"id": 1, "method": "echo"}\n' + b"x" * 1_000_000)
    assert await peer.hear() == {"id": 1, "result": None}, "a good request before it is answered"
    request_id, code, message = await peer.refusal()
    assert (request_id, code, "too large" in message) == (None, "usage", True)
    assert message.endswith(f" {SMALL.max_frame_bytes:,} bytes")
    assert await peer.hear() is None
    methods.release.set()
    assert await other.hear() == {"id": 1, "result": "released"}


async def test_half_frames_of_many_connections_together_are_bounded(connect: Connect) -> None:
    first, second = await connect(), await connect()
    await first.stream.send_all(b"x" * 199_000)
    await say_all(second, b"x" * 199_000)
    codes: list[str] = []

    async def note(peer: Peer, scope: trio.CancelScope) -> None:
        codes.append((await peer.refusal())[1])
        scope.cancel()

    async with trio.open_nursery() as nursery:
        for peer in (first, second):
            nursery.start_soon(note, peer, nursery.cancel_scope)
    assert codes == ["saturated"]
    assert await still_serves(connect)


async def test_a_large_request_counts_while_it_runs_and_no_longer(connect: Connect, methods: FakeMethods) -> None:
    first, second = await connect(), await connect()
    await first.say(LARGE)
    await methods.hanging.wait()
    await say_all(second, LARGE + b"\n")
    assert (await second.refusal())[1] == "saturated"
    methods.release.set()
    assert await first.hear() == {"id": 1, "result": "released"}
    third = await connect()
    await third.say(LARGE)
    assert await third.hear() == {"id": 1, "result": "released"}


async def test_half_a_request_holds_up_nobody_and_at_the_end_is_dropped(connect: Connect, methods: FakeMethods) -> None:
    slow, other = await connect(), await connect()
    await slow.stream.send_all(b'{"id": 1, "met')
    assert await other.call(2, "echo") == {"id": 2, "result": {}}
    await slow.stream.send_all(b'hod": "echo"}\n{"id": 2, "method": "ec')
    await slow.stream.send_eof()
    assert await slow.rest() == [{"id": 1, "result": None}]
    assert methods.calls == ["echo", "echo"]


# --- peers that leave, or do not read -------------------------------------------------------------------------------


async def test_a_lost_peer_ends_its_requests_and_what_they_have_started(connect: Connect, methods: FakeMethods) -> None:
    peer, other = await connect(), await connect()
    for number in range(3):
        await peer.call(number, "subscribe", events=0)
    await peer.ask("h", "hang")
    await methods.hanging.wait()
    peer.close()
    with trio.fail_after(20):
        await methods.cancelled.wait()
        while len(methods.ended) < 3:
            await other.call(1, "echo")
    assert methods.ended == ["closing"] * 3


async def test_a_peer_that_said_all_loses_its_subscriptions_but_no_answer(
    connect: Connect, methods: FakeMethods
) -> None:
    peer = await connect()
    await peer.call("s", "subscribe", events=0)
    await peer.ask("w", "wait")
    await methods.hanging.wait()
    await peer.stream.send_eof()
    await wait_all_tasks_blocked(0.01)
    methods.release.set()
    end = {"subscription": 1, "bookmark": 0, "reason": "closing"}
    assert await peer.rest() == [{"id": "w", "result": "released"}, {"event": "subscription_ended", "data": end}]


async def test_a_flood_of_requests_nobody_reads_the_answers_of_is_bounded(
    connect: Connect, methods: FakeMethods
) -> None:
    peer = await connect()
    with trio.move_on_after(5):
        await say_all(peer, b'{"id":1,"method":"echo","params":"%b"}\n' % (b"x" * 1000) * 20_000)
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
        await wait_all_tasks_blocked()
    methods.release.set()
    assert len((await other.line())["result"]) == 1_000_000
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["a peer was cut off"]
    heard = [await mute.hear(), await mute.hear()]
    assert heard[-1] is None, "not one whole answer more than the socket held"


async def test_no_more_requests_run_at_once_than_allowed_and_none_is_lost(
    connect: Connect, methods: FakeMethods
) -> None:
    peer = await connect()
    for number in range(20):
        await peer.ask(number, "wait")
    await wait_all_tasks_blocked(0.05)
    assert methods.max_running == SMALL.max_requests
    methods.release.set()
    assert sorted([(await peer.line())["id"] for _ in range(20)]) == list(range(20))


async def test_a_connection_too_many_is_told_so(connect: Connect) -> None:
    peers = [await connect() for _ in range(SMALL.max_connections)]
    for peer in peers:
        await peer.call(1, "echo")
    late = await connect()
    assert (await late.refusal())[1] == "saturated"
    assert await late.hear() is None
    peers[0].close()
    with trio.fail_after(20):
        while (await (await connect()).call(1, "echo")).get("result") is None:
            pass  # the server has not noticed yet that a place is free
