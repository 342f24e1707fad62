"""Machines that are namespaces: each has a network, processes, a name, and disks of its own. Linux, as root."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

NETWORK = "10.77.0."
_UNSHARED = ["unshare", "--net", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]
_NEW_MACHINE = ["setpriv", "--pdeathsig", "KILL", *_UNSHARED]
_BOOT = """
mount -t tmpfs -o mode=1777 none /tmp && mkdir /tmp/home && hostname "$0" && ip link set lo up || exit 1
for directory; do mount -t tmpfs -o mode=0700 none "$directory" || exit 1; done
echo up
exec sleep infinity
"""


def require_machines() -> None:
    """Skip, aloud, where no such namespaces can be made; in CI they must."""
    found = subprocess.run(
        [*_UNSHARED, "ip", "link", "add", "lan", "type", "bridge"], capture_output=True, text=True, check=False
    )
    if found.returncode:
        message = f"machines with a network of their own cannot be made: {found.stderr.strip()}"
        if os.environ.get("CI") == "true":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)


class Machine:
    """One machine, which ends with the thread that makes it. ``private``: directories with a disk of their own."""

    def __init__(self, name: str, number: int, private: Sequence[Path] = ()) -> None:
        self.name = name
        self.address = f"{NETWORK}{number}"
        self._holder = subprocess.Popen(
            [*_NEW_MACHINE, "sh", "-c", _BOOT, name, *map(str, private)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "up\n"
        self._init = int(Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text())
        self.enter = ["nsenter", "--target", str(self._init), "--net", "--mount", "--pid", "--uts"]

    def run(self, *command: str, env: Mapping[str, str] | None = None) -> str:
        """What a command says that must succeed there."""
        done = subprocess.run(
            [*self.enter, *command], env=env, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, f"{command} on {self.name}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
        return done.stdout

    def be_switch(self) -> None:
        """Have the bridge that the other machines are plugged into."""
        self.run("ip", "link", "add", "lan", "type", "bridge")
        self.run("ip", "address", "add", f"{self.address}/24", "dev", "lan")
        self.run("ip", "link", "set", "lan", "up")

    def plug_into(self, switch: "Machine") -> None:
        """Connect it to the switch."""
        port = f"to-{self.name}"
        pair = ["ip", "link", "add", port, "netns", str(switch._init), "type", "veth"]
        subprocess.run([*pair, "peer", "name", "lan", "netns", str(self._init)], check=True)
        switch.run("ip", "link", "set", port, "master", "lan", "up")
        self.run("ip", "address", "add", f"{self.address}/24", "dev", "lan")
        self.run("ip", "link", "set", "lan", "up")

    def set_link(self, switch: "Machine", state: str) -> None:
        """Cut its network (``down``), or mend it (``up``)."""
        switch.run("ip", "link", "set", f"to-{self.name}", state)

    def commands(self) -> dict[int, str]:
        """The command line of each of its processes, by the pid that it has on this machine."""
        space = Path(f"/proc/{self._init}/ns/pid").readlink()
        found = {}
        for process in Path("/proc").iterdir():
            if process.name.isdecimal():
                try:
                    if (process / "ns" / "pid").readlink() == space:
                        found[int(process.name)] = (process / "cmdline").read_text().replace("\0", " ").strip()
                except OSError:
                    continue  # it has ended
        return {pid: command for pid, command in found.items() if command}

    def pids_of(self, words: str) -> list[int]:
        """Its processes whose command line has these words."""
        return [pid for pid, command in self.commands().items() if words in command]

    def memory(self) -> int:
        """Bytes that its processes use, what they share shared out."""
        found = 0
        for pid in self.commands():
            with suppress(OSError):  # it has ended
                pages = Path(f"/proc/{pid}/smaps_rollup").read_text()
                found += sum(int(line.split()[1]) for line in pages.splitlines() if line.startswith("Pss:"))
        return found * 1024

    def kill_programs(self, words: str) -> None:
        """``kill -9`` of the programs whose command line has these words, but for shells that wait for them."""
        for pid in self.pids_of(words):
            if "/bin/sh" not in self.commands().get(pid, ""):
                os.kill(pid, signal.SIGKILL)

    def kill(self) -> None:
        """Pull its plug: every process of it is dead on return."""
        os.kill(self._init, signal.SIGKILL)
        self._holder.wait()
        assert self._holder.stdout is not None
        self._holder.stdout.close()


@contextmanager
def machines() -> Iterator[list[Machine]]:
    """A list for the machines that are to end with the test."""
    require_machines()
    made: list[Machine] = []
    try:
        yield made
    finally:
        for machine in made:
            if machine._holder.poll() is None:
                machine.kill()
