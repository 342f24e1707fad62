"""The blocking client against a real control server, and against what is none."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from doors.control.client import ControlClient
from doors.control.client_socket import ControlSocket, Recipient
from doors.control.server import ControlServer
from errors import NoSupervisor, PoolError, PoolSaturated, ProtocolViolation, RequestTimeout, UsageError, WorkerExited
from tests.doors.methods import FakeMethods, an_event


class Served:
    """A server that a test may end; ``run`` calls a function with a client of it, in a thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.life = trio.CancelScope()

    async def serve(self, methods: FakeMethods, task_status: trio.TaskStatus[Path]) -> None:
        with self.life:
            await ControlServer(methods, self.path).serve(task_status=task_status)

    async def run(self, work: Callable[[ControlClient], Any]) -> Any:
        def talk() -> Any:
            with ControlClient(self.path) as client:
                return work(client)

        with trio.fail_after(20):
            return await trio.to_thread.run_sync(talk, abandon_on_cancel=True)


@pytest.fixture
async def served(short_dir: Path, methods: FakeMethods, nursery: trio.Nursery) -> Served:
    server = Served(short_dir / "s")
    await nursery.start(server.serve, methods)
    return server


def raised(kind: type[PoolError], call: Callable[[], Any]) -> Any:
    with pytest.raises(kind) as caught:
        call()
    return caught.value


async def test_a_stream_gives_events_in_order_and_then_the_result(served: Served) -> None:
    def talk(client: ControlClient) -> None:
        assert [client.call("echo", {"n": n}) for n in range(3)] == [{"n": 0}, {"n": 1}, {"n": 2}]
        stream = client.stream("count", {"events": 500})
        batches = list(stream)
        events = [event for batch in batches for event in batch]
        assert [msgspec.json.decode(event.data.events)[0]["seq"] for event in events] == list(range(500))
        assert (events[0].event, events[0].data.request) == ("events", "4")
        assert (stream.result, len(batches) < 100) == ({"events": 500}, True)

    await served.run(talk)


async def test_a_stream_that_may_take_any_time_outlives_its_timeout(served: Served, methods: FakeMethods) -> None:
    results: list[Any] = []

    def talk(client: ControlClient) -> None:
        stream = client.stream("wait", timeout=0.0)
        stream.remove_deadline()
        results.extend([list(stream), stream.result])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(served.run, talk)
        await methods.hanging.wait()
        methods.release.set()
    assert results == [[], "released"]


async def test_an_error_comes_back_as_the_class_it_left_as_and_the_connection_goes_on(served: Served) -> None:
    def talk(client: ControlClient) -> None:
        lost = raised(WorkerExited, lambda: client.call("fail"))
        assert lost.details == {"worker": "w1", "sent": True, "stderr_tail": "boom"}
        raised(PoolSaturated, lambda: client.call("saturate"))
        assert raised(PoolError, lambda: client.call("crash")).code == "internal"
        assert "not UTF-8 text" in str(raised(UsageError, lambda: client.call("echo", {"session": "\udcff"})))
        assert "since is a seq" in str(raised(UsageError, lambda: client.subscribe({"since": "yesterday"})))
        late = raised(RequestTimeout, lambda: client.call("hang", timeout=0.05))
        assert "did not answer hang in time" in str(late)
        assert client.call("echo", {"n": 1}) == {"n": 1}

    await served.run(talk)


async def test_a_subscription_gives_every_event_once_until_it_is_cut_off_and_goes_on_elsewhere(served: Served) -> None:
    def follow(client: ControlClient, since: int | None, until: int) -> int:
        wish = {"events": until, "stays": False, **({} if since is None else {"since": since})}
        subscription = client.subscribe(wish)
        assert (subscription.complete, subscription.bookmark, subscription.reason) == (True, since or 0, None)
        seqs = [event.seq for batch in subscription.batches() for event in batch]
        assert seqs == list(range((since or 0) + 1, until + 1))
        assert (subscription.bookmark, subscription.reason) == (until, "behind")
        return subscription.bookmark

    bookmark = await served.run(partial(follow, since=None, until=300))
    await served.run(partial(follow, since=bookmark, until=400))


async def test_who_stops_reading_a_subscription_in_between_goes_on_where_it_stopped(served: Served) -> None:
    def talk(client: ControlClient) -> None:
        subscription = client.subscribe({"events": 5, "stays": False})
        seen = []
        while subscription.reason is None:
            for events in subscription:
                seen.append(msgspec.json.decode(events)[0]["seq"])
                assert subscription.bookmark == seen[-1]
                break
        assert seen == [1, 2, 3, 4, 5]

    await served.run(talk)


async def test_one_connection_carries_several_subscriptions_streams_and_calls(served: Served) -> None:
    def talk(client: ControlClient) -> None:
        first = client.subscribe({"events": 100, "stays": False})
        second = client.subscribe({"events": 50})
        stream = client.stream("count", {"events": 20})
        assert client.call("echo", {"n": 1}) == {"n": 1}
        assert sum(len(batch) for batch in stream) == 20
        assert next(second.batches())[0].seq == 1
        assert [event.seq for batch in first.batches() for event in batch] == list(range(1, 101))
        second.end()
        assert (second.reason, second.bookmark, list(second)) == ("unsubscribed", 1, [])
        assert client.call("echo", {"n": 2}) == {"n": 2}

    await served.run(talk)


# --- a supervisor that ends ------------------------------------------------------------------------------------------


async def test_a_subscription_whose_supervisor_stops_is_told_before_the_end(served: Served) -> None:
    def talk(client: ControlClient) -> tuple[str | None, int]:
        subscription = client.subscribe({"events": 3})
        for _ in subscription:
            if subscription.bookmark == 3:
                trio.from_thread.run_sync(served.life.cancel)
        return subscription.reason, subscription.bookmark

    assert await served.run(talk) == ("closing", 3)


async def test_a_supervisor_that_stops_in_mid_call_says_so(served: Served, methods: FakeMethods) -> None:
    codes: list[str] = []

    def talk(client: ControlClient) -> None:
        codes.append(raised(PoolError, lambda: client.call("hang")).code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(served.run, talk)
        await methods.hanging.wait()
        served.life.cancel()
    assert codes == ["pool_closed"]


async def test_waiting_for_the_close_ends_with_the_time(served: Served) -> None:
    assert await served.run(lambda client: (client.call("echo"), client.wait_closed(0.05))) == (None, False)


# --- what is no supervisor -------------------------------------------------------------------------------------------


def test_where_nobody_listens_the_message_names_the_path_and_the_remedy(short_dir: Path) -> None:
    with pytest.raises(NoSupervisor, match=rf"no supervisor listens on {short_dir}/s; start one with: pool run"):
        ControlClient(short_dir / "s")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(short_dir / "s"))
    (short_dir / "f").touch()
    for path, words in ((short_dir / "s", "no supervisor listens"), (short_dir / "f" / "s", "Not a directory")):
        with pytest.raises(NoSupervisor, match=words):
            ControlClient(path)


@contextlib.contextmanager
def answering(path: Path, answer: bytes | None) -> Iterator[ControlClient]:
    """A client of a socket whose first connection gets this answer; None: nobody takes it up."""

    def serve_once() -> None:
        if answer is not None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        server = threading.Thread(target=serve_once)
        server.start()
        with ControlClient(path) as client:
            yield client
        server.join(5)


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ProtocolViolation, "no supervisor of this version"),
        (b"", NoSupervisor, "closed the connection before it answered"),
        (b'{"id": "1", "resul', NoSupervisor, "closed the connection before it answered"),
        (b'{"id": null, "error": {"code": "saturated", "message": "too many"}}\n', PoolSaturated, "too many"),
        (b'{"id": "1", "error": {"code": "from_the_future", "message": "new"}}\n', PoolError, "new"),
        (None, RequestTimeout, "stopped or overloaded"),
    ],
)
def test_whatever_answers_is_turned_into_one_clear_error(
    short_dir: Path, answer: bytes | None, error: type[PoolError], words: str
) -> None:
    with answering(short_dir / "s", answer) as client, pytest.raises(error, match=words):
        client.call("status", timeout=5 if answer is not None else 0.05)


def test_events_that_come_in_one_piece_with_the_answer_to_their_subscription_are_not_lost(short_dir: Path) -> None:
    answer = b'{"id":"1","result":{"subscription":7,"head":3,"complete":true}}\n'
    event = b'{"event":"events","data":{"subscription":7,"events":[%b]}}\n' % msgspec.json.encode(an_event(4))
    other = b'{"event":"events","data":{"subscription":8,"events":[]}}\n'
    end = b'{"event":"subscription_ended","data":{"subscription":7,"bookmark":4,"reason":"behind"}}\n'
    with answering(short_dir / "s", answer + other + event + end) as client:
        subscription = client.subscribe(timeout=5)
        assert [event.seq for batch in subscription.batches() for event in batch] == [4]
        assert (subscription.bookmark, subscription.reason) == (4, "behind")


def test_what_is_answered_at_once_is_waited_for_ten_seconds_and_no_longer(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []

    def receive(_socket: ControlSocket, _address: Recipient, deadline: float) -> None:
        given.append(deadline - time.monotonic())
        raise TimeoutError

    monkeypatch.setattr(ControlSocket, "receive", receive)
    with answering(short_dir / "s", None) as client:
        for ask in (lambda: client.call("status"), client.subscribe):
            assert "in time; is it stopped or overloaded" in str(raised(RequestTimeout, ask))
    assert given == pytest.approx([10.0, 10.0], abs=1.0)
