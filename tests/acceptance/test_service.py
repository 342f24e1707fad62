"""``pool run`` under a service manager: what it hears on a real socket, and that a hung event loop is noticed."""

import os
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.supervisor import POOL

pytestmark = pytest.mark.process

_LIMIT = 60.0


class Manager:
    """As much of systemd as starts the unit that ``pool service install --print`` prints, and hears it."""

    def __init__(self, place: Path, *options: str) -> None:
        self.place = place
        arguments = ["service", "install", "--print", "--data-dir", str(place / "data"), *options]
        self.unit = subprocess.run([*POOL, *arguments], capture_output=True, text=True, check=True).stdout
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(place / "notify"))
        (place / "data").mkdir(mode=0o700)
        self.process = subprocess.Popen(
            self.command("ExecStart"),
            cwd=place / "data",
            env={**os.environ, "NOTIFY_SOCKET": str(place / "notify"), "WATCHDOG_USEC": "400000"},
            stderr=subprocess.DEVNULL,
        )

    def command(self, key: str) -> list[str]:
        found = re.search(rf"^{key}=(.*)$", self.unit, re.MULTILINE)
        assert found is not None
        return shlex.split(found[1])

    def hear(self, timeout: float = _LIMIT) -> str:
        """The first line of the next message; empty when none comes in time."""
        if not select.select([self._socket], [], [], timeout)[0]:
            return ""
        return self._socket.recv(4096).decode().partition("\n")[0]

    def hear_until(self, wanted: str) -> list[str]:
        heard = [self.hear()]
        while heard[-1] != wanted:
            assert heard[-1], heard
            heard.append(self.hear())
        return [each for each in heard if each != "WATCHDOG=1"]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    hooks = tmp_path / "hooks.py"
    hooks.write_text(
        "import time\nfrom gateway.hooks import hook\n"
        '@hook("message:received")\nasync def hang(message):\n    time.sleep(2 if message.text == "hang" else 0)\n'
    )
    (tmp_path / "pool.toml").write_text(f'[gateway]\nhooks = "{hooks}"\n')
    here = Manager(tmp_path, "--config", str(tmp_path / "pool.toml"), "--max", "1")
    yield here
    here.close()


def test_a_service_says_that_it_serves_reloads_and_stops(manager: Manager) -> None:
    assert manager.hear_until("READY=1") == ["READY=1"]
    subprocess.run(manager.command("ExecReload"), check=True, capture_output=True, timeout=_LIMIT)
    assert manager.hear_until("READY=1") == ["RELOADING=1", "READY=1"]
    manager.process.send_signal(signal.SIGTERM)
    assert manager.hear_until("STOPPING=1") == ["STOPPING=1"]
    assert manager.process.wait(_LIMIT) == 0


def test_the_watchdog_is_fed_while_the_event_loop_turns_and_not_while_it_hangs(manager: Manager) -> None:
    manager.hear_until("READY=1")
    assert manager.hear(1.0) == manager.hear(1.0) == "WATCHDOG=1"
    place = ["--data-dir", str(manager.place / "data")]
    prompt = [sys.executable, "-P", "-m", "cli", "prompt", "-s", "a", *place, "hang"]
    with subprocess.Popen(prompt, stdout=subprocess.DEVNULL) as hanging:
        longest, before = 0.0, time.monotonic()
        while hanging.poll() is None:
            assert manager.hear() == "WATCHDOG=1"
            longest, before = max(longest, time.monotonic() - before), time.monotonic()
    assert longest > 1.5, "longer than the interval, by far: systemd would have ended it"
