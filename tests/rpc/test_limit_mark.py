"""The mark in a resource limit: which worker it stands for, and whose limits are left alone."""

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rpc.rlimit_mark import (
    can_mark_by_rlimit,
    clear_rlimit_mark,
    instance_number,
    mark_by_rlimit,
    mark_number,
    marking_children,
    rlimit_mark_of,
)
from rpc.spawn import WorkerSpec, start_process
from rpc.sweep import kill_marked

UNLIMITED = resource.RLIM_INFINITY


def test_a_number_holds_the_instance_and_the_worker() -> None:
    numbers = [mark_number(f"{instance}:w{worker}") for instance in ("a", "b") for worker in (1, 2, 2**24 - 1)]
    assert len(set(numbers)) == 6
    assert [instance_number(number) for number in numbers] == [mark_number("a:")] * 3 + [mark_number("b:")] * 3
    assert all(2**61 <= number < 2**62 for number in numbers)


@pytest.mark.parametrize("worker", ["", "odd", "w", f"w{2**24}", "w" + 5000 * "9", "w-1", "w²"])
def test_where_the_worker_cannot_be_held_the_number_stands_for_the_instance(worker: str) -> None:
    assert mark_number(f"a:{worker}") == mark_number("a:")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["/bin/sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.mark.process
def test_a_mark_is_set_replaced_and_taken_away(child: subprocess.Popen[bytes]) -> None:
    assert can_mark_by_rlimit()
    assert rlimit_mark_of(child.pid) is None
    for marker in ("a:w1", "b:w2"):  # the second as where a worker of one supervisor runs another one
        assert mark_by_rlimit(child.pid, marker)
        assert rlimit_mark_of(child.pid) == mark_number(marker)
    assert clear_rlimit_mark(child.pid)
    assert rlimit_mark_of(child.pid) is None
    assert resource.prlimit(child.pid, resource.RLIMIT_RTTIME) == (UNLIMITED, UNLIMITED)


@pytest.mark.process
@pytest.mark.parametrize("limits", [(200_000, UNLIMITED), (200_000, 200_000), (2**61, 2**61)])
def test_a_limit_that_somebody_has_chosen_stays(child: subprocess.Popen[bytes], limits: tuple[int, int]) -> None:
    resource.prlimit(child.pid, resource.RLIMIT_RTTIME, limits)
    assert not mark_by_rlimit(child.pid, "a:w1")
    assert not clear_rlimit_mark(child.pid)
    assert resource.prlimit(child.pid, resource.RLIMIT_RTTIME) == limits


@pytest.mark.process
def test_one_that_has_ended_has_no_mark(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    assert not mark_by_rlimit(child.pid, "a:w1")
    assert rlimit_mark_of(child.pid) is None


@pytest.mark.process
def test_a_worker_has_its_mark_before_it_can_start_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Delayed(subprocess.Popen[bytes]):  # the supervisor gets no CPU before the worker has ended
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.wait()

    monkeypatch.setattr(subprocess, "Popen", Delayed)
    command = ("/bin/sh", "-c", "cat /proc/self/limits >limits")
    started = start_process(WorkerSpec(worker_id="w1", marker="a:w1", argv=command, env=(), cwd=str(tmp_path)))
    for pipe in (started.stdin, started.stdout, started.stderr):
        os.close(pipe)
    assert f"{mark_number('a:w1')} " in (tmp_path / "limits").read_text()
    assert resource.getrlimit(resource.RLIMIT_RTTIME) == (UNLIMITED, UNLIMITED)


@pytest.mark.process
def test_a_sweep_while_a_worker_starts_spares_the_supervisor_and_its_children(child: subprocess.Popen[bytes]) -> None:
    with marking_children("a:w1"):
        assert kill_marked("a:w1", timeout=1).killed == ()
    assert child.poll() is None
