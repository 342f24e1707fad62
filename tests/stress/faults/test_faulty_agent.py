"""The faulty worker as a process: the bundled agent until a prompt says otherwise, and then what was asked for."""

import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from stress.faulty_agent import COMMAND

pytestmark = pytest.mark.process

LIMIT = 90.0
MARK = "FAULTY_AGENT_TEST"


class Worker:
    """One of them, spoken to as a supervisor would."""

    def __init__(self, folder: Path) -> None:
        self.mark = str(folder)
        self.process = subprocess.Popen(
            [*COMMAND, "--session-dir", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, MARK: self.mark},
            bufsize=0,
            start_new_session=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self._rest = b""

    def say(self, request_id: str, text: str) -> None:
        request = {"id": request_id, "method": "prompt", "params": {"text": text}}
        self.stdin.write(json.dumps(request).encode() + b"\n")

    def read(self) -> bytes:
        """Some bytes; none = the end of its stdout."""
        assert select.select([self.stdout], [], [], LIMIT)[0], "it says nothing"
        return os.read(self.stdout.fileno(), 65536)

    def ask(self, request_id: str, text: str) -> str:
        self.say(request_id, text)
        while True:
            while b"\n" not in self._rest:
                piece = self.read()
                assert piece, "its stdout has ended"
                self._rest += piece
            line, _, self._rest = self._rest.partition(b"\n")
            if line.startswith(b'{"id":') and (message := json.loads(line))["id"] == request_id:
                return str(message["result"]["text"])

    def rest(self) -> bytes:
        """Everything that it still writes."""
        content = self._rest
        while piece := self.read():
            content += piece
        return content

    def wait(self) -> int:
        return self.process.wait(LIMIT)

    def family(self, **wanted: Any) -> list[psutil.Process]:
        """Every process that comes from it; with ``command`` only that whose command line has the word."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                is_mine = process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE
                if is_mine and (not wanted or wanted["command"] in process.cmdline()):
                    found.append(process)
        return found


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    worker = Worker(tmp_path)
    try:
        yield worker
    finally:
        for process in worker.family():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        worker.wait()
        worker.stdin.close()
        worker.stdout.close()


def test_it_answers_and_remembers_and_ends_as_the_bundled_agent_does(worker: Worker) -> None:
    assert worker.ask("1", "hello n1") == 'You said: "hello n1". (turn 1)'
    assert worker.ask("2", "FAULT:garbage n2") == 'You said: "FAULT:garbage n2". (turn 2; before: "hello n1")'
    worker.process.terminate()
    assert worker.wait() == 143
    assert worker.family() == [], "the agent was waited for"


def test_killed_it_takes_the_agent_with_it(worker: Worker) -> None:
    worker.ask("1", "hello")
    (agent,) = [process for process in worker.family() if process.pid != worker.process.pid]
    worker.process.kill()
    agent.wait(LIMIT)


@pytest.mark.parametrize("fault", ["half-line-exit", "half-line-eof", "close-stdout"])
def test_its_stdout_ends_without_an_answer(worker: Worker, fault: str) -> None:
    worker.say("1", f"FAULT:{fault}")
    last = worker.rest().split(b"\n")[-1]
    assert last.startswith(b'{"id":"1","result":') == fault.startswith("half")
    assert (worker.wait() == 7) if fault == "half-line-exit" else (worker.process.poll() is None)


def test_closed_stdin_refuses_what_is_written(worker: Worker) -> None:
    worker.ask("1", "FAULT:close-stdin")
    poll = select.poll()
    poll.register(worker.stdin, 0)
    assert poll.poll(LIMIT * 1000)[0][1] & select.POLLERR
    with pytest.raises(BrokenPipeError):
        worker.say("2", "hello")
    assert worker.process.poll() is None


def test_nothing_but_sigkill_ends_one_without_an_end(worker: Worker) -> None:
    worker.ask("1", "FAULT:no-end")
    worker.process.terminate()
    assert "again" in worker.ask("2", "again"), "SIGTERM came before this, and was not heard"
    worker.stdin.close()
    for process in worker.family():
        if process.pid != worker.process.pid:
            process.wait(LIMIT)  # the agent sees the end of its stdin
    worker.process.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        worker.process.wait(0.3)
    worker.process.kill()
    assert worker.wait() == -signal.SIGKILL


def test_an_heir_keeps_stdout_open(worker: Worker) -> None:
    worker.ask("1", "FAULT:heir")
    assert worker.wait() == 7
    (heir,) = worker.family(command=COMMAND[-1])  # the agent is dying
    assert not select.select([worker.stdout], [], [], 0)[0], "it is not closed"
    heir.kill()
    assert worker.rest() == b""


def test_a_daemon_has_another_parent_and_a_session_of_its_own(worker: Worker) -> None:
    assert worker.ask("1", "FAULT:daemon")
    assert worker.ask("2", "hello")
    family = {process.pid: process for process in worker.family()}
    (daemon,) = [pid for pid in family if os.getsid(pid) != worker.process.pid]
    assert family[daemon].ppid() not in family
    assert os.getsid(daemon) != os.getsid(0)
