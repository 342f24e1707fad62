"""The hunt's edges: what may not be signalled, what will not die, and platforms without pidfds."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from rpc.sweep import ProcessSweep, SweepReport, kill_marked, send_signal
from wire.procfs import MARKER_VARIABLE, ProcessRef, identify

pytestmark = pytest.mark.process


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    marked = {MARKER_VARIABLE: f"hunt-{os.getpid()}:w1"}
    with subprocess.Popen(["/bin/sh", "-c", "echo; read x"], stdin=-1, stdout=-1, env=marked) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it is past its exec
        yield process
        process.kill()


def test_without_pidfds_the_marked_are_killed_after_a_check(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    report = kill_marked(f"hunt-{os.getpid()}:w1", 5)
    assert report == SweepReport(killed=(child.pid,))
    assert child.wait() == -signal.SIGKILL


def test_what_cannot_be_killed_is_reported_and_not_hunted_for_ever(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rpc.sweep.send_signal", lambda *_: False)
    report = kill_marked(f"hunt-{os.getpid()}:w1", 0.1)
    assert report == SweepReport(left=(child.pid,))


def test_a_noted_process_is_known_by_its_start_time(child: subprocess.Popen[bytes]) -> None:
    hunt = ProcessSweep()
    start_time = identify(child.pid).start_time
    assert start_time > 0
    hunt.add(ProcessRef(child.pid, start_time + 1))
    assert hunt.kill_all(5) == SweepReport()
    assert child.poll() is None
    hunt.add(ProcessRef(child.pid, start_time))
    assert hunt.kill_all(5) == SweepReport(killed=(child.pid,))


def test_a_child_that_threw_its_marker_away_ends_with_its_marked_parent() -> None:
    script = "env -i /bin/sh -c 'echo $$; exec /bin/sleep 1000' & wait"  # it speaks when its marker is gone
    environment = {**os.environ, MARKER_VARIABLE: f"hunt-{os.getpid()}:w2"}
    with subprocess.Popen(["/bin/sh", "-c", script], env=environment, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        hidden = int(parent.stdout.readline())
        pidfd = os.pidfd_open(hidden)
        try:
            report = kill_marked(f"hunt-{os.getpid()}:w2", 5)
            assert report == SweepReport(killed=tuple(sorted((parent.pid, hidden))))
        finally:
            send_signal(hidden, pidfd, signal.SIGKILL)
            os.close(pidfd)
            parent.kill()


def test_a_sweep_spares_the_one_who_sweeps() -> None:
    script = (
        "import sys; sys.path.append(sys.argv[1])\n"
        "from rpc.sweep import kill_marked\n"
        "print(kill_marked('outer:w1', 1).killed)"
    )
    root = os.fspath(__file__).rsplit("/tests/", 1)[0]
    environment = {**os.environ, MARKER_VARIABLE: "outer:w1"}
    done = subprocess.run(
        [sys.executable, "-S", "-c", script, root], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "()\n")


def test_signalling_the_dead_is_no_error(child: subprocess.Popen[bytes]) -> None:
    pidfd = os.pidfd_open(child.pid)
    child.kill()
    child.wait()
    assert not send_signal(child.pid, pidfd, signal.SIGKILL)
    os.close(pidfd)
