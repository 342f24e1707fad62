"""The fork of a sibling: what ``os.fork`` promises for a child holds for it, too."""

import os
import subprocess
import sys

import msgspec
import pytest

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="a call of Linux")]

_CLONING = """
import json, os, random, signal, sys, threading, uuid
from agent.clone import Cloner

random.seed(1)
cloner = Cloner.open()
cloner.show_as(["as it was"], [])
for _ in range(2):
    if cloner.fork() == 0:
        break
else:
    sys.exit()

got = []
signal.signal(signal.SIGUSR1, lambda *_: got.append("signal"))
# another thread finds the main one by the number that the C library keeps
thread = threading.Thread(target=lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1))
thread.start()
thread.join()
cloner.show_as(["a worker", "of", ""], [("MARK", "x" * 100_000), ("ä", "=")])
facts = {
    "parent": os.getppid(),
    "random": [random.random(), uuid.uuid4().hex],
    "got": got,
    "cmdline": open("/proc/self/cmdline").read(),
    "environ": open("/proc/self/environ").read().replace("x" * 100_000, "many"),
}
os.write(1, json.dumps(facts).encode() + b"\\n")
"""


def test_a_sibling_is_a_child_of_our_parent_with_a_state_of_its_own() -> None:
    with subprocess.Popen([sys.executable, "-c", _CLONING], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        first, second = (msgspec.json.decode(line) for line in process.stdout)
    assert process.returncode == 0
    for facts in (first, second):
        assert facts["parent"] == os.getpid()
        assert facts["got"] == ["signal"]
        assert facts["cmdline"] == "a worker\0of\0\0"
        assert facts["environ"] == "MARK=many\0ä==\0"
    assert not set(first["random"]) & set(second["random"])
    for _ in range(2):
        assert os.waitstatus_to_exitcode(os.waitpid(-1, 0)[1]) == 0
