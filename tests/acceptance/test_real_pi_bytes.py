"""A long answer of the real pi, of which older releases repeat all with each piece: what of that leaves the gateway."""

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from fixtures.fake_openai import serving
from fixtures.pi_home import write_pi_home
from tests.acceptance.supervisor import Supervisor, running_supervisor
from tests.real_pi import RealPi

TOKEN = "a-token-of-the-tests-0123456789"
PROMPT = "CHUNKS=2000"
SETTINGS = """
[pool]
min = 0
max = 1
[http]
bind = "127.0.0.1:0"
token = "{token}"
[agents.pi]
command = ["{command}", "--mode", "rpc"]
dialect = "pi"
agent_dir = "{home}"
extra_args = ["--offline"]
"""
_LIMIT = 90.0


def bytes_of_pi_alone(command: str, home: Path) -> int:
    """What it writes from the prompt to the end of the answer."""
    env = {**os.environ, "PI_CODING_AGENT_DIR": str(home)}
    flags = ("--mode", "rpc", "--no-session", "--offline")
    with subprocess.Popen([command, *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write(json.dumps({"id": "1", "type": "prompt", "message": PROMPT}).encode() + b"\n")
        program.stdin.flush()
        written = 0
        for line in program.stdout:
            written += len(line)
            if line.startswith(b'{"type":"agent_end"'):
                break
        program.stdin.close()
        program.stdout.read()
    return written


def follow(sock: socket.socket, request: bytes) -> int:
    """Bytes of the session's events, from the first to the end of the answer."""
    sock.settimeout(_LIMIT)
    received, tail = 0, b""
    with sock:
        sock.sendall(request)
        while b'"type":"done"' not in tail:
            block = sock.recv(1 << 20)
            assert block, tail
            received += len(block)
            tail = (tail + block)[-len(block) - 100 :]
    return received


def over_the_socket(supervisor: Supervisor) -> int:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(supervisor.socket))
    return follow(sock, b'{"id":1,"method":"subscribe","params":{"session":"alice","since":0}}\n')


def over_http(supervisor: Supervisor, query: str) -> int:
    url = supervisor.status()["supervisor"]["http"]["url"]
    sock = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))
    head = f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    return follow(sock, f"GET /events?session=alice&since=0{query} HTTP/1.1\r\n{head}".encode())


@pytest.mark.process
@pytest.mark.real_pi
def test_no_piece_leaves_the_gateway_more_than_once(pi_command: str, real_pi: RealPi, tmp_path: Path) -> None:
    with serving() as server:
        alone = bytes_of_pi_alone(pi_command, write_pi_home(tmp_path / "alone", server.port))
        home = write_pi_home(tmp_path / "pooled", server.port)
        config = tmp_path / "pool.toml"
        config.write_text(SETTINGS.format(token=TOKEN, command=pi_command, home=home))
        with running_supervisor(tmp_path / "data", "--config", str(config)) as supervisor:
            answer = supervisor.prompt("alice", PROMPT, "-a", "pi")
            assert answer.split()[-1] == "word01999"
            left = {
                "control socket": over_the_socket(supervisor),
                "SSE": over_http(supervisor, ""),
                "SSE in batches": over_http(supervisor, "&batch=true"),
            }
    repeats = real_pi.version < (0, 84)  # releases from then on say each piece once themselves
    assert (alone > 40_000_000) is repeats
    most = 0.02 * alone if repeats else alone
    assert {door: size for door, size in left.items() if not len(answer) < size <= most} == {}, (left, alone)
