"""What the service manager hears, on a real datagram socket."""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from app.detach import take_ready_fd
from app.host import ServiceManager, service_unit, watchdog_interval
from errors import UsageError


@pytest.fixture
def address(tmp_path: Path) -> str:
    return str(tmp_path / "notify")


@pytest.fixture
def manager(address: str) -> Iterator[socket.socket]:
    """The service manager's end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(address)
        bound.settimeout(5)
        yield bound


def heard(manager: socket.socket) -> list[str]:
    return manager.recv(4096).decode().split("\n")


def all_heard(manager: socket.socket) -> list[list[str]]:
    """Everything that lies there now."""
    manager.settimeout(0)
    messages = []
    try:
        while True:
            messages.append(heard(manager))
    except BlockingIOError:
        return messages


def test_ready_and_stopping_are_one_datagram_each(manager: socket.socket, address: str) -> None:
    with ServiceManager({"NOTIFY_SOCKET": address}) as service:
        service.ready()
        service.stopping()
    service.ready()
    assert heard(manager) == ["READY=1"]
    assert heard(manager) == ["STOPPING=1"]
    assert all_heard(manager) == [], "once it is closed nothing more is sent"


def test_a_reload_carries_the_time_of_its_beginning(manager: socket.socket, address: str) -> None:
    before = time.monotonic_ns() // 1000
    with ServiceManager({"NOTIFY_SOCKET": address}) as service:
        service.reloading()
    first, second = heard(manager)
    assert first == "RELOADING=1"
    name, _, value = second.partition("=")
    assert name == "MONOTONIC_USEC"
    assert before <= int(value) <= time.monotonic_ns() // 1000


def test_an_abstract_socket_is_reached_by_its_name() -> None:
    name = f"pool-test-{os.getpid()}-{time.monotonic_ns()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(f"\0{name}")
        bound.settimeout(5)
        with ServiceManager({"NOTIFY_SOCKET": f"@{name}"}) as service:
            service.ready()
        assert heard(bound) == ["READY=1"]


@pytest.mark.parametrize("env", [{}, {"NOTIFY_SOCKET": ""}])
async def test_without_a_service_manager_nothing_happens(env: dict[str, str]) -> None:
    troubles: list[str] = []
    with ServiceManager({**env, "WATCHDOG_USEC": "1000000"}, lambda event, _: troubles.append(event)) as service:
        service.ready()
        service.reloading()
        service.stopping()
        with trio.fail_after(20):
            await service.keep_alive()
    assert troubles == []


def test_a_manager_that_is_gone_is_told_of_once_and_again_after_it_came_back(address: str) -> None:
    troubles: list[tuple[str, dict[str, Any]]] = []
    with ServiceManager({"NOTIFY_SOCKET": address}, lambda event, data: troubles.append((event, data))) as service:
        service.ready()
        service.stopping()
        assert troubles == [
            ("service_manager_unreachable", {"message": "READY=1", "reason": "No such file or directory"})
        ]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
            bound.bind(address)
            service.ready()
        service.ready()
    assert [data["reason"] for _, data in troubles] == ["No such file or directory", "Connection refused"]


def test_a_manager_that_does_not_read_holds_nobody_up(manager: socket.socket, address: str) -> None:
    troubles: list[dict[str, Any]] = []
    with ServiceManager({"NOTIFY_SOCKET": address}, lambda _, data: troubles.append(data)) as service:
        for _ in range(10_000):
            service.ready()
            if troubles:
                break
    assert troubles[0]["reason"] == "Resource temporarily unavailable"


@pytest.mark.parametrize("name", ["relative", "@", "/" + "x" * 107, "vsock:2:1"])
def test_what_is_no_address_is_refused_and_the_longest_that_the_kernel_takes_is_taken(name: str) -> None:
    with pytest.raises(UsageError, match="no address"):
        ServiceManager({"NOTIFY_SOCKET": name})
    ServiceManager({"NOTIFY_SOCKET": "/" + "x" * 106}).close()


async def test_the_watchdog_is_fed_at_half_its_interval_while_the_loop_turns(
    manager: socket.socket, address: str, autojump_clock: MockClock
) -> None:
    env = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "3000000"}
    with ServiceManager(env) as service, trio.move_on_after(7.0):
        await service.keep_alive()
    assert all_heard(manager) == [["WATCHDOG=1"]] * 5, "at 0, 1.5, 3, 4.5 and 6 s"


@pytest.mark.parametrize(
    ("usec", "pid", "interval"),
    [(None, None, None), ("", None, None), ("10000", None, 0.01), ("30000000", "17", 30.0), ("30000000", "18", None)],
)
def test_only_the_process_that_is_watched_feeds_the_watchdog(
    usec: str | None, pid: str | None, interval: float | None
) -> None:
    env = {"WATCHDOG_USEC": usec, "WATCHDOG_PID": pid}
    assert watchdog_interval({name: value for name, value in env.items() if value is not None}, 17) == interval


@pytest.mark.parametrize("text", ["soon", "-5", "0", "9999", "1" * 30, "1e6"])
def test_an_interval_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="WATCHDOG_USEC"):
        watchdog_interval({"WATCHDOG_USEC": text}, 17)


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/system.slice/agent-pool.service\n", {"unit": "agent-pool.service", "manager": "system"}),
        ("12:pids:/x.service\n0::/system.slice/a.service/pool-1\n", {"unit": "a.service", "manager": "system"}),
        (
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/b.service\n",
            {"unit": "b.service", "manager": "user"},
        ),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/a.scope\n", None),
        ("0::/\n", None),
        ("", None),
    ],
)
def test_the_unit_that_a_process_is_stands_in_its_cgroup(cgroup: str, unit: dict[str, str] | None) -> None:
    assert service_unit(cgroup) == unit


def test_who_waits_in_the_background_is_told_once_and_no_child_inherits_it(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    env = {"POOL_READY_FD": str(writing)}
    os.set_inheritable(writing, True)  # noqa: FBT003  # positional-only
    with ServiceManager({}, ready_fd=take_ready_fd(env)) as service:
        assert env == {}
        assert not os.get_inheritable(writing)
        service.ready()
        service.ready()
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b"ready"
    assert take_ready_fd({"POOL_READY_FD": str(writing)}) is None, "one that is closed is of an earlier life"
