"""Who attacks, in tests: another user of the machine, and a process of the same user without root's own rights."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

import pytest

NOBODY = 65534

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can start a process of another user (CI runs as root)"
)


def powerless() -> Sequence[str]:
    """What starts a program as the same user without capabilities: for root they lift what this is about."""
    if os.geteuid() != 0:
        return ()
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("root needs setpriv (util-linux) to start a program without capabilities")
    return (setpriv, "--bounding-set=-all", "--inh-caps=-all")


def run_python(code: str, *arguments: str, wrapper: Sequence[str] = (), uid: int | None = None) -> str:
    """What a Python program prints, in a process of its own; nothing of ours is imported in it."""
    done = subprocess.run(
        [*wrapper, sys.executable, "-I", "-S", "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        user=uid,
        group=uid,
        extra_groups=None if uid is None else [],
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def as_nobody(code: str, *arguments: str) -> str:
    """The same as another user of the machine. The program becomes that user once it has what it needs."""
    become = f"import os, socket\nos.setgroups([])\nos.setgid({NOBODY})\nos.setuid({NOBODY})\n"
    return run_python(become + code, *arguments)
