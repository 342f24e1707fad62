"""Watching a child: what may be asked and signalled while its pid is taken, and after."""

import os
import subprocess
from collections.abc import Iterator
from signal import SIGKILL

import pytest

from rpc.children import ExitWatch

pytestmark = pytest.mark.process


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["/bin/sh", "-c", "read x"], stdin=-1, start_new_session=True) as process:
        yield process
        process.kill()


@pytest.fixture
def watch(child: subprocess.Popen[bytes]) -> Iterator[ExitWatch]:
    watch = ExitWatch(child, None)
    yield watch
    watch.close()


def test_a_child_that_lives_has_not_ended_and_its_group_can_be_killed(
    child: subprocess.Popen[bytes], watch: ExitWatch
) -> None:
    assert not watch.has_ended()
    watch.signal_group(SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert watch.has_ended()
    assert child.returncode is None  # nobody has reaped it
    assert child.wait() == -SIGKILL


@pytest.mark.parametrize("by_its_owner", [True, False])
def test_the_group_of_a_child_that_is_reaped_may_be_anothers(
    child: subprocess.Popen[bytes], watch: ExitWatch, monkeypatch: pytest.MonkeyPatch, *, by_its_owner: bool
) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda pid, _: killed.append(pid))
    child.kill()
    if by_its_owner:
        child.wait()
    else:
        os.waitpid(child.pid, 0)
    watch.signal_group(SIGKILL)
    assert killed == []
    assert watch.has_ended()
