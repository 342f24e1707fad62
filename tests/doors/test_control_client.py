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
from doors.control.client_socket import ReceivedPush, Recipient
from doors.control.server import ControlServer
from errors import NoSupervisor, PoolError, PoolSaturated, ProtocolViolation, RequestTimeout, UsageError, WorkerExited
from tests.doors.methods import FakeMethods, an_event


@pytest.fixture
async def path(short_dir: Path, methods: FakeMethods, nursery: trio.Nursery) -> Path:
    started: Path = await nursery.start(ControlServer(methods, short_dir / "s").serve)
    return started


async def in_thread(work: Callable[..., Any], *args: Any) -> Any:
    with trio.fail_after(20):
        return await trio.to_thread.run_sync(partial(work, *args), abandon_on_cancel=True)


async def test_a_call_returns_the_result(path: Path) -> None:
    def talk() -> Any:
        with ControlClient(path) as client:
            return [client.call("echo", {"n": n}) for n in range(3)]

    assert await in_thread(talk) == [{"n": 0}, {"n": 1}, {"n": 2}]


async def test_a_stream_gives_events_in_order_and_then_the_result(path: Path) -> None:
    def talk() -> tuple[list[ReceivedPush], Any, int]:
        with ControlClient(path) as client:
            stream = client.stream("count", {"events": 500})
            batches = list(stream)
            return [event for batch in batches for event in batch], stream.result, len(batches)

    events, result, batches = await in_thread(talk)
    assert [msgspec.json.decode(event.data.events)[0]["seq"] for event in events] == list(range(500))
    assert (events[0].event, events[0].data.request) == ("events", "1")
    assert result == {"events": 500}
    assert batches < 100


async def test_a_stream_that_may_take_any_time_outlives_its_timeout(path: Path, methods: FakeMethods) -> None:
    results: list[Any] = []

    def talk() -> None:
        with ControlClient(path) as client:
            stream = client.stream("wait", timeout=0.0)
            stream.remove_deadline()
            results.extend([list(stream), stream.result])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(in_thread, talk)
        await methods.hanging.wait()
        methods.release.set()
    assert results == [[], "released"]


async def test_an_error_comes_back_as_the_class_it_left_as(path: Path) -> None:
    def talk(method: str) -> PoolError:
        with ControlClient(path) as client, pytest.raises(PoolError) as caught:
            client.call(method)
        return caught.value

    lost = await in_thread(talk, "fail")
    assert type(lost) is WorkerExited
    assert lost.details == {"worker": "w1", "sent": True, "stderr_tail": "boom"}
    assert type(await in_thread(talk, "saturate")) is PoolSaturated
    assert type(await in_thread(talk, "nonsense")) is UsageError
    assert (await in_thread(talk, "crash")).code == "internal"


async def test_what_is_no_text_is_not_asked_for_and_the_connection_goes_on(path: Path) -> None:
    def talk() -> Any:
        with ControlClient(path) as client:
            with pytest.raises(UsageError, match="not UTF-8 text"):
                client.call("echo", {"session": "\udcff"})
            return client.call("echo", {"n": 1})

    assert await in_thread(talk) == {"n": 1}


async def test_a_call_without_an_answer_in_time_is_a_timeout(path: Path) -> None:
    def talk() -> None:
        with ControlClient(path) as client:
            client.call("hang", timeout=0.05)

    with pytest.raises(RequestTimeout, match="did not answer hang in time"):
        await in_thread(talk)


async def test_a_subscription_gives_every_event_once_until_it_is_cut_off_and_goes_on_elsewhere(path: Path) -> None:
    def talk() -> tuple[list[int], list[int]]:
        with ControlClient(path) as client:
            first = client.subscribe({"events": 300, "stays": False})
            assert (first.head, first.complete, first.bookmark, first.reason) == (0, True, 0, None)
            seqs = [event.seq for batch in first.batches() for event in batch]
            assert (first.bookmark, first.reason) == (300, "behind")
        with ControlClient(path) as client:
            second = client.subscribe({"events": 400, "stays": False, "since": first.bookmark})
            assert second.bookmark == 300
            return seqs, [event.seq for batch in second.batches() for event in batch]

    assert await in_thread(talk) == (list(range(1, 301)), list(range(301, 401)))


async def test_who_stops_reading_a_subscription_in_between_goes_on_where_it_stopped(path: Path) -> None:
    def talk() -> None:
        with ControlClient(path) as client:
            subscription = client.subscribe({"events": 5, "stays": False})
            seen = []
            while subscription.reason is None:
                for events in subscription:
                    seen.append(msgspec.json.decode(events)[0]["seq"])
                    assert subscription.bookmark == seen[-1]
                    break
            assert seen == [1, 2, 3, 4, 5]

    await in_thread(talk)


async def test_one_connection_carries_several_subscriptions_streams_and_calls(path: Path) -> None:
    def talk() -> None:
        with ControlClient(path) as client:
            first = client.subscribe({"events": 100, "stays": False})
            second = client.subscribe({"events": 50})
            stream = client.stream("count", {"events": 20})
            assert client.call("echo", {"n": 1}) == {"n": 1}
            assert sum(len(batch) for batch in stream) == 20
            assert next(second.batches())[0].seq == 1
            assert [event.seq for batch in first.batches() for event in batch] == list(range(1, 101))
            second.end()
            assert (second.reason, second.bookmark) == ("unsubscribed", 1)
            assert list(second) == []
            assert client.call("echo", {"n": 2}) == {"n": 2}

    await in_thread(talk)


async def test_a_subscription_whose_supervisor_stops_is_told_before_the_end(
    short_dir: Path, methods: FakeMethods
) -> None:
    told: list[tuple[str | None, int]] = []
    life = trio.CancelScope()

    async def serve(task_status: trio.TaskStatus[Path]) -> None:
        with life:
            await ControlServer(methods, short_dir / "s").serve(task_status=task_status)

    def talk() -> None:
        with ControlClient(short_dir / "s") as client:
            subscription = client.subscribe({"events": 3})
            for _ in subscription:
                if subscription.bookmark == 3:
                    trio.from_thread.run_sync(life.cancel)
            told.append((subscription.reason, subscription.bookmark))

    async with trio.open_nursery() as nursery:
        await nursery.start(serve)
        nursery.start_soon(in_thread, talk)
    assert told == [("closing", 3)]


async def test_a_subscription_that_is_refused_raises_and_the_connection_goes_on(path: Path) -> None:
    def talk() -> None:
        with ControlClient(path) as client:
            with pytest.raises(UsageError, match="since is a seq"):
                client.subscribe({"since": "yesterday"})
            assert client.call("echo", {"n": 1}) == {"n": 1}

    await in_thread(talk)


def test_where_nobody_listens_the_message_names_the_path_and_the_remedy(short_dir: Path) -> None:
    with pytest.raises(NoSupervisor, match=rf"no supervisor listens on {short_dir}/s; start one with: pool run"):
        ControlClient(short_dir / "s")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(short_dir / "s"))
    with pytest.raises(NoSupervisor, match="no supervisor listens"):
        ControlClient(short_dir / "s")
    (short_dir / "f").touch()
    with pytest.raises(NoSupervisor):
        ControlClient(short_dir / "f" / "s")


async def test_a_supervisor_that_stops_in_mid_call_says_so(short_dir: Path, methods: FakeMethods) -> None:
    outcome: list[PoolError] = []
    life = trio.CancelScope()

    async def serve(task_status: trio.TaskStatus[Path]) -> None:
        with life:
            await ControlServer(methods, short_dir / "s").serve(task_status=task_status)

    def talk() -> None:
        with ControlClient(short_dir / "s") as client, pytest.raises(PoolError) as caught:
            client.call("hang")
        outcome.append(caught.value)

    async with trio.open_nursery() as nursery:
        await nursery.start(serve)
        nursery.start_soon(in_thread, talk)
        await methods.hanging.wait()
        life.cancel()
    assert [error.code for error in outcome] == ["pool_closed"]


async def test_waiting_for_the_close_ends_with_it_or_with_the_time(short_dir: Path, methods: FakeMethods) -> None:
    life = trio.CancelScope()

    async def serve(task_status: trio.TaskStatus[Path]) -> None:
        with life:
            await ControlServer(methods, short_dir / "s").serve(task_status=task_status)

    def wait(timeout: float) -> bool:
        with ControlClient(short_dir / "s") as client:
            client.call("echo")
            return client.wait_closed(timeout)

    async with trio.open_nursery() as nursery:
        await nursery.start(serve)
        assert await in_thread(wait, 0.05) is False
        life.cancel()


def serve_once(listener: socket.socket, answer: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(1000)
        connection.sendall(answer)


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ProtocolViolation, "no supervisor of this version"),
        (b"", NoSupervisor, "closed the connection before it answered"),
        (b'{"id": "1", "resul', NoSupervisor, "closed the connection before it answered"),
        (b'{"id": null, "error": {"code": "saturated", "message": "too many"}}\n', PoolSaturated, "too many"),
        (b'{"id": "1", "error": {"code": "from_the_future", "message": "new"}}\n', PoolError, "new"),
    ],
)
def test_whatever_answers_is_turned_into_one_clear_error(
    short_dir: Path, answer: bytes, error: type[PoolError], words: str
) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short_dir / "s"))
        listener.listen()
        server = threading.Thread(target=serve_once, args=(listener, answer))
        server.start()
        with ControlClient(short_dir / "s") as client, pytest.raises(error, match=words):
            client.call("status", timeout=5)
        server.join(5)


def test_events_that_come_in_one_piece_with_the_answer_to_their_subscription_are_not_lost(short_dir: Path) -> None:
    answer = b'{"id":"1","result":{"subscription":7,"head":3,"complete":true}}\n'
    event = b'{"event":"events","data":{"subscription":7,"events":[%b]}}\n' % msgspec.json.encode(an_event(4))
    stranger = b'{"event":"events","data":{"subscription":8,"events":[]}}\n'
    end = b'{"event":"subscription_ended","data":{"subscription":7,"bookmark":4,"reason":"behind"}}\n'
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short_dir / "s"))
        listener.listen()
        server = threading.Thread(target=serve_once, args=(listener, answer + stranger + event + end))
        server.start()
        with ControlClient(short_dir / "s") as client:
            subscription = client.subscribe(timeout=5)
            assert [event.seq for batch in subscription.batches() for event in batch] == [4]
            assert (subscription.bookmark, subscription.reason) == (4, "behind")
        server.join(5)


def test_a_supervisor_that_answers_nobody_is_a_timeout_not_a_hang(short_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short_dir / "s"))
        listener.listen()
        with ControlClient(short_dir / "s") as client, pytest.raises(RequestTimeout, match="stopped or overloaded"):
            client.call("status", timeout=0.05)


class MuteWire:
    """A connection to a supervisor that is stopped; keeps how many seconds each answer was given."""

    path = Path("/nowhere")

    def __init__(self) -> None:
        self.given: list[float] = []

    def send(self, request_id: str, _method: str, _params: Any) -> Recipient:
        return Recipient("request", request_id)

    def receive(self, _address: Recipient, deadline: float) -> None:
        self.given.append(deadline - time.monotonic())
        raise TimeoutError

    def discard(self, _address: Recipient) -> None:
        """Nothing is kept."""

    @contextlib.contextmanager
    def subscribing(self) -> Iterator[None]:
        yield

    def close(self) -> None:
        """There is nothing to close."""


def test_what_is_answered_at_once_is_waited_for_ten_seconds_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = MuteWire()
    monkeypatch.setattr("doors.control.client.ControlSocket", lambda _path: wire)
    with ControlClient(Path("/nowhere")) as client:
        with pytest.raises(RequestTimeout, match="did not answer status in time; is it stopped or overloaded"):
            client.call("status")
        with pytest.raises(RequestTimeout, match="is it stopped or overloaded"):
            client.subscribe()
    assert wire.given == pytest.approx([10.0, 10.0], abs=1.0)
