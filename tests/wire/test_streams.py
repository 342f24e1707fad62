"""A command whose standard streams were closed by whoever started it."""

import os
import subprocess
import sys

import msgspec
import pytest

PROGRAM = """
import json, os, sys
from wire.terminal import fill_standard_streams
fill_standard_streams()
names = [os.readlink(f"/proc/self/fd/{fd}") for fd in range(3)]
kept = [os.get_inheritable(fd) for fd in range(3)]
sys.stdout.write("out"); sys.stdout.flush()
sys.stderr.write("err"); sys.stderr.flush()
assert sys.stdin.read() == ""
os.write(int(sys.argv[1]), json.dumps([names, kept]).encode())
"""


@pytest.mark.process
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_a_closed_standard_stream_becomes_the_null_device(closed: tuple[int, ...]) -> None:
    read, write = os.pipe()
    command = [sys.executable, "-c", PROGRAM, str(write)]
    closing = " ".join(f"{fd}>&-" for fd in closed)
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closing}', "sh", *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        pass_fds=[write],
        timeout=20,
        check=False,
    )
    os.close(write)
    with os.fdopen(read, "rb") as report:
        names, kept = msgspec.json.decode(report.read())
    assert done.returncode == 0
    assert [names[fd] for fd in closed] == ["/dev/null"] * len(closed)
    assert kept == [True] * 3
    assert (done.stdout, done.stderr) == (b"" if 1 in closed else b"out", b"" if 2 in closed else b"err")
