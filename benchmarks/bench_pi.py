"""The real pi behind a real supervisor: what of all that pi says about an answer leaves the gateway.

pi repeats the whole answer with every piece; the gateway publishes each piece once. ``make bench`` installs pi; where
there is none, nothing is measured, and the table says so.
"""

import os
import socket
import sys
import tempfile
import threading
from pathlib import Path

from benchmarks.door_server import TOKEN, read_until, websocket
from benchmarks.harness import Result, result
from benchmarks.promises import Promise
from benchmarks.supervisor import Supervisor, running
from doors.control.client import ControlClient
from fixtures.fake_openai import serving
from fixtures.pi_home import write_pi_home

_PIECES = 2000
_LIMIT = 60.0
_PI = Path(__file__).parents[1] / ".cache" / "pi-0.73.1" / "bin" / "pi"
_PACED = f"CHUNKS={_PIECES} DELAY_MS=4"
"""As quick as a model writes; a WebSocket joins pieces that come together."""


def run() -> list[Result]:
    pi = Path(os.environ.get("POOL_TEST_PI", _PI))
    if not pi.exists():
        print(f"{pi} does not exist: `make pi` installs it", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory(prefix="pool-") as place, serving() as server:
        said = Path(place, "said")
        settings = _settings(pi, write_pi_home(Path(place, "home"), server.port), said)
        with running(Path(place, "data"), settings) as supervisor:
            _prompt(supervisor, "hello")
            judged = []
            for name, measure in (
                ("bytes that one subscriber of everything reads", _published_bytes),
                ("bytes that a WebSocket reads, 4 ms a piece", _websocket_bytes),
            ):
                before = said.stat().st_size
                published = measure(supervisor)
                judged.append(_judge(name, published / 1024, (said.stat().st_size - before) / 1024))
            return judged


def _judge(name: str, published: float, said: float) -> Result:
    return result(name, published, "KiB", promise=Promise.PI_BYTES, beside=(said, "KiB from pi"), ratio_at_most=0.02)


def _settings(pi: Path, home: Path, said: Path) -> str:
    """What pi says goes through ``tee``, which keeps it to be counted."""
    command = ["/bin/sh", "-c", f'exec "$0" "$@" | tee {said}', str(pi), "--mode", "rpc"]
    return (
        f'[pool]\nmin = 0\nmax = 1\n[http]\nbind = "127.0.0.1:0"\ntoken = "{TOKEN}"\n'
        f'[agents.main]\ncommand = {command!r}\ndialect = "pi"\n'
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


def _websocket_bytes(supervisor: Supervisor) -> int:
    """Bytes that a WebSocket reads, from the beginning of the answer to its end."""
    with websocket(supervisor.http_port()) as reader:
        prompt = threading.Thread(target=_prompt, args=(supervisor, _PACED))
        prompt.start()
        read = read_until(reader, b'"state":"final"')
        prompt.join()
    return read
