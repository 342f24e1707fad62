"""Network namespaces for node programs, each joined to this one by a link of its own that can be cut."""

import ipaddress
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

_FIRST = int(ipaddress.IPv4Address("10.128.0.0"))
_PIDS = 2**20


class NodeNetwork:
    """One namespace. ``command`` runs a program there; ``home`` is the address of this side."""

    def __init__(self, number: int) -> None:
        self.name = f"pl{os.getpid()}{'ab'[number]}"
        self.command = ["ip", "netns", "exec", self.name]
        base = _FIRST + os.getpid() % _PIDS * 8 + number * 4
        self.home, self._there = (str(ipaddress.IPv4Address(base + at)) for at in (1, 2))

    def open(self) -> None:
        inner = f"{self.name}n"
        _ip("netns", "add", self.name)
        _ip("link", "add", self.name, "type", "veth", "peer", "name", inner, "netns", self.name)
        _ip("address", "add", f"{self.home}/30", "dev", self.name)
        _ip("link", "set", self.name, "up")
        _ip("-n", self.name, "address", "add", f"{self._there}/30", "dev", inner)
        self.mend()

    def cut(self) -> None:
        """From now on nothing arrives, in either direction, and no end is seen."""
        _ip("-n", self.name, "link", "set", f"{self.name}n", "down")

    def mend(self) -> None:
        _ip("-n", self.name, "link", "set", f"{self.name}n", "up")

    def close(self) -> None:
        """Take it away, with what there is of it."""
        subprocess.run(["ip", "netns", "delete", self.name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "delete", self.name], capture_output=True, check=False)


@contextmanager
def node_networks() -> Iterator[list[NodeNetwork]]:
    """Two of them; skipped, aloud, where they may not be made, which in CI they must."""
    networks = [NodeNetwork(number) for number in range(2)]
    try:
        try:
            for network in networks:
                network.open()
        except (OSError, subprocess.CalledProcessError) as exc:
            said = exc.stderr.strip() if isinstance(exc, subprocess.CalledProcessError) else str(exc)
            message = f"network namespaces are needed (root, and the program ip): {said}"
            if os.environ.get("CI") == "true":
                pytest.fail(message, pytrace=False)
            pytest.skip(message)
        yield networks
    finally:
        for network in networks:
            network.close()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True)
