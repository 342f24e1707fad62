"""The real pi behind a real supervisor: what of all that pi says about an answer leaves the gateway.

pi repeats the whole answer with every piece; the gateway publishes each piece once. Where no pi is installed
(``make test-pi`` does), nothing is measured, and the table says so.
"""

import os
import socket
import sys
import tempfile
import threading
from pathlib import Path

from benchmarks.harness import Result, result
from benchmarks.promises import Promise
from benchmarks.supervisor import Supervisor, running
from doors.control.client import ControlClient
from fixtures.fake_openai import serving
from fixtures.pi_home import write_pi_home

_PIECES = 2000
_LIMIT = 60.0
_PI = Path(__file__).parents[1] / ".cache" / "pi-0.73.1" / "node_modules" / ".bin" / "pi"


def run() -> list[Result]:
    pi = Path(os.environ.get("POOL_TEST_PI", _PI))
    if not pi.exists():
        print(f"{pi} does not exist: `make test-pi` installs it", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory(prefix="pool-") as place, serving() as server:
        said = Path(place, "said")
        settings = _settings(pi, write_pi_home(Path(place, "home"), server.port), said)
        with running(Path(place, "data"), settings) as supervisor:
            _prompt(supervisor, "hello")
            before = said.stat().st_size
            published = _published_bytes(supervisor)
            return [_judge(published / 1024, (said.stat().st_size - before) / 1024)]


def _judge(published: float, said: float) -> Result:
    name = "bytes that one subscriber of everything reads"
    return result(name, published, "KiB", promise=Promise.PI_BYTES, beside=(said, "KiB from pi"), ratio_at_most=0.02)


def _settings(pi: Path, home: Path, said: Path) -> str:
    """What pi says goes through ``tee``, which keeps it to be counted."""
    command = ["/bin/sh", "-c", f'exec "$0" "$@" | tee {said}', str(pi), "--mode", "rpc"]
    return (
        f'[pool]\nmin = 0\nmax = 1\n[agents.main]\ncommand = {command!r}\ndialect = "pi"\n'
        f'agent_dir = "{home}"\nextra_args = ["--offline"]\n'
    )


def _prompt(supervisor: Supervisor, text: str) -> None:
    with ControlClient(supervisor.socket) as client:
        client.call("prompt", {"session": "pi", "text": text}, timeout=_LIMIT)


def _published_bytes(supervisor: Supervisor) -> int:
    """Bytes that a subscriber of everything reads off its socket while an answer of many pieces is given."""
    with socket.socket(socket.AF_UNIX) as subscriber:
        subscriber.connect(str(supervisor.socket))
        subscriber.sendall(b'{"id":"1","method":"subscribe","params":{"session":"pi"}}\n')
        subscriber.settimeout(_LIMIT)
        subscriber.recv(65536)
        prompt = threading.Thread(target=_prompt, args=(supervisor, f"CHUNKS={_PIECES}"))
        prompt.start()
        read = bytearray()
        while b'"type":"done"' not in read or not read.endswith(b"\n"):
            read += subscriber.recv(1 << 20)
        prompt.join()
    pieces = read.count(b'"type":"text_chunk"')
    if pieces != _PIECES:
        raise AssertionError(f"{pieces} of {_PIECES} pieces arrived")
    return len(read)
