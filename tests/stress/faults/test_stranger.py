"""A stranger takes the pid that it is given, and notices every signal."""

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from stress.helper_programs import LET_ALONE, SIGNALLED, TAKE_PID, THERE, unavailable_reason

pytestmark = [pytest.mark.process, pytest.mark.skipif(bool(unavailable_reason()), reason=unavailable_reason())]

LIMIT = 90.0
Stranger = subprocess.Popen[str]


@pytest.fixture
def pid() -> int:
    """A pid that was used, and is free again."""
    gone = subprocess.Popen(["/bin/true"])
    gone.wait(LIMIT)
    return gone.pid


@pytest.fixture
def stranger(pid: int) -> Iterator[Stranger]:
    with subprocess.Popen([*TAKE_PID, str(pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{THERE}\n"
        yield process


def last_word(stranger: Stranger) -> str:
    said, _ = stranger.communicate(timeout=LIMIT)
    return said.strip()


def test_it_has_the_pid_and_ends_with_its_stdin(pid: int, stranger: Stranger) -> None:
    os.kill(pid, 0)
    assert last_word(stranger) == LET_ALONE
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP])
def test_any_signal_is_noticed(pid: int, stranger: Stranger, number: signal.Signals) -> None:
    os.kill(pid, number)
    assert last_word(stranger) == SIGNALLED
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
