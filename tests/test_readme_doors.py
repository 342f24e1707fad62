"""The README's section about the doors: its examples as they stand, in a home of their own, on a port that is free."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.supervisor import running_supervisor
from tests.documents import README, example

_SECTION = README[README.index("\n## Doors\n") : README.index("\n## The bundled agent\n")]
_PORT = "8765"
_LIMIT = 90.0


class Reader:
    """Somebody who copies examples into a terminal, where the supervisor's port is another one."""

    def __init__(self, home: Path, port: str) -> None:
        self._home = home
        self._port = port
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("POOL_", "XDG_"))}
        self._env = {**kept, "HOME": str(home), "PATH": path}

    def start(self, *commands: str) -> subprocess.Popen[str]:
        """A shell in which the token is known."""
        script = "\n".join([example(README, "token"), *commands]).replace(_PORT, self._port)
        return subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self._home,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *commands: str) -> str:
        """What they print; they must succeed."""
        with self.start(*commands) as shell:
            printed, complaints = shell.communicate(timeout=_LIMIT)
        assert shell.returncode == 0, complaints
        return printed

    def run_python(self, name: str) -> str:
        """What the example of that name prints."""
        (self._home / "example.py").write_text(example(README, name).replace(_PORT, self._port))
        return self.run("python -P example.py")


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    with tempfile.TemporaryDirectory(prefix="pool-") as folder:
        home = Path(folder)
        config = home / "pool.toml"
        config.write_text(example(README, "http settings").replace(_PORT, "0"))
        with running_supervisor(home / ".local" / "state" / "pool", "--config", str(config)) as supervisor:
            yield Reader(home, supervisor.status()["supervisor"]["http"]["url"].rpartition(":")[2])


@pytest.mark.process
def test_attach_joins_the_conversation_as_it_says(reader: Reader) -> None:
    lines = reader.run(example(README, "attach")).splitlines()
    assert lines[0] == "hello from a terminal"
    (answer,) = [answer for line in lines[1:] if (answer := json.loads(line)).get("id") == 1]
    assert answer["result"]["messages"][-1]["content"] == [{"type": "text", "text": "hello from a terminal"}]


@pytest.mark.process
def test_curl_prompts_measures_and_follows_as_it_says(reader: Reader) -> None:
    with reader.start(example(README, "curl")) as shell:
        try:
            assert shell.stdout is not None
            printed = ""
            while '"type":"done"' not in printed:
                line = shell.stdout.readline()
                assert line, printed + (shell.stderr.read() if shell.stderr else "")
                printed += line
        finally:
            os.killpg(shell.pid, signal.SIGTERM)
    assert '"status":"ok"' in printed
    assert re.search(r"^pool_turn_seconds_count\{.*\} [1-9]", printed, re.MULTILINE)


@pytest.mark.process
def test_the_official_client_streams_as_it_says(reader: Reader) -> None:
    assert reader.run_python("openai").split() == [word for n in range(5) for word in ("piece", str(n))]


@pytest.mark.process
def test_the_socket_answers_twice_as_it_says(reader: Reader) -> None:
    printed = reader.run_python("websocket")
    assert printed.index("'status': 'accepted'") < printed.index("'payloads': [{'text': 'hello from a socket'}]")
    assert "'event': 'agent'" in printed


@pytest.mark.process
def test_the_dashboard_is_where_it_says(reader: Reader) -> None:
    (address,) = re.findall(r"`(http://127\.0\.0\.1:8765/)`", _SECTION)
    assert "<title>pool</title>" in reader.run(f"curl -sS {address}")


def test_its_pictures_are_there() -> None:
    root = Path(__file__).parents[1]
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', README)
    assert pictures
    assert all((root / name).is_file() for name in pictures)
