"""What large prompts leave behind in the supervisor."""

import json
import platform
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.acceptance.supervisor import Supervisor, running_supervisor

PROMPTS = 8
MIB = 1024 * 1024
TEXT = "lorem ipsum " * (4 * MIB // 12)
LEFT = 45 * MIB
"""Of 32 MiB of prompts; without a bound 69 MiB stay, with it about 20, transcripts' tails and outcomes among them."""


def ask(supervisor: Supervisor, session: str) -> None:
    """Send one large prompt and wait until its run has ended."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(120)
        peer.connect(str(supervisor.socket))
        lines = peer.makefile("rb")

        def call(method: str, **params: object) -> dict[str, str]:
            peer.sendall(json.dumps({"id": 1, "method": method, "params": params}).encode() + b"\n")
            result: dict[str, str] = json.loads(lines.readline())["result"]
            return result

        run = call("agent", session=session, text=TEXT)["run_id"]
        assert call("agent.wait", run_id=run, timeout_ms=100_000)["status"] != "timeout"


@pytest.mark.process
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator of glibc")
def test_s86_memory_of_large_prompts_goes_back_to_the_system(tmp_path: Path) -> None:
    with running_supervisor(tmp_path / "d") as supervisor:
        process = psutil.Process(supervisor.status()["supervisor"]["pid"])
        before = process.memory_info().rss
        with ThreadPoolExecutor(6) as threads:
            list(threads.map(lambda number: ask(supervisor, f"s{number}"), range(PROMPTS)))
        deadline = time.monotonic() + 20
        while process.memory_info().rss - before > LEFT and time.monotonic() < deadline:
            time.sleep(0.1)  # the kernel's figure: nothing tells when it falls
        assert process.memory_info().rss - before < LEFT
