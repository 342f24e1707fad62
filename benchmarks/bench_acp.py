"""The dialect of ACP agents: pieces of text a second, what importing it costs, the memory of one worker's; a rebind."""

import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import trio

from benchmarks.harness import Result, median, result
from pool import LocalLauncher, Pool, PoolSettings
from profiles import AgentSettings, ProfilesSettings, build_profile
from rpc.acp import make
from rpc.acp.dialect import AcpDialect
from rpc.acp.options import AcpOptions
from rpc.settings import RpcSettings

_LINES = 280
"""Of about 230 bytes: as many as fill a pipe."""
_ROUNDS = 300
_REPEATS = 7
_WORKERS = 200
_REBINDS = 300
_AGENT = Path(__file__).resolve().parents[1] / "stress" / "acp_agent"
_SESSION = "1e3f03db-08bd-4e73-9288-7e86ee1a12b8"
_IMPORT = """
import time
import rpc.client, rpc.process, rpc.turn
before = time.process_time()
import rpc.acp.dialect
print(time.process_time() - before)
"""


def run() -> list[Result]:
    block = _update("agent_message_chunk", content={"type": "text", "text": "word00001 "}, messageId="msg_911")
    mixed = block * (_LINES - 1) + _update("usage_update", used=11_509, size=1_000_000)
    one = _lines_per_second(_in_a_turn().receive, block * _LINES)
    plain = _lines_per_second(lambda data, _now: [json.loads(line) for line in data.splitlines()], block * _LINES)
    return [
        result("pieces of text of one block", one, "lines/s", beside=(plain, "lines/s json.loads"), at_least=400_000),
        result("the same beside one other line", _lines_per_second(_in_a_turn().receive, mixed), "lines/s"),
        result("import of rpc.acp over rpc, CPU", _import_seconds() * 1000, "ms", at_most=10),
        result("memory of one worker's dialect", _kibibytes(), "KiB", at_most=150),
        _rebind(),
    ]


def _update(kind: str, **members: object) -> bytes:
    params = {"sessionId": _SESSION, "update": {"sessionUpdate": kind, **members}}
    return msgspec.json.encode({"jsonrpc": "2.0", "method": "session/update", "params": params}) + b"\n"


def _ready() -> AcpDialect:
    dialect = make(RpcSettings(), acp=AcpOptions(cwd="/", journal_dir="/"))
    dialect.open(0)
    dialect.receive(b'{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}\n', 0)
    dialect.receive(b'{"jsonrpc":"2.0","id":2,"result":{"sessionId":"%b"}}\n' % _SESSION.encode(), 0)
    return dialect


def _in_a_turn() -> AcpDialect:
    dialect = _ready()
    dialect.request("1", "prompt", msgspec.Raw(b'{"text":"hi"}'), 0)
    return dialect


def _lines_per_second(receive: Callable[[bytes, float], object], block: bytes) -> float:
    lines = block.count(b"\n")
    best = 0.0
    for _ in range(_REPEATS):
        before = time.process_time()
        for _ in range(_ROUNDS):
            receive(block, 0)
        best = max(best, lines * _ROUNDS / (time.process_time() - before))
    return best


def _import_seconds() -> float:
    """The least of some processes, none of which has to compile anything."""
    command = [sys.executable, "-c", _IMPORT]
    return min(float(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout) for _ in range(_REPEATS))


def _kibibytes() -> float:
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    dialects = [_ready() for _ in range(_WORKERS)]
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (after - before) / len(dialects) / 1024


# --- rebind ---------------------------------------------------------------------------------------------------------


def _rebind() -> Result:
    """Two sessions share one worker: each acquire has the agent close one conversation and load the other."""
    with TemporaryDirectory(prefix="pool-") as folder:
        own = _own_milliseconds(_command(folder, "own"))
        taken = trio.run(_rebind_milliseconds, _command(folder, "pool"), folder)
    beside = (own, "ms of the agent itself")
    return result("rebind by session/load over the agent's own time, p50", taken - own, "ms", beside=beside, at_most=5)


def _command(folder: str, store: str) -> list[str]:
    return [sys.executable, "-S", str(_AGENT), "--quirk", "no-resume", "--store", f"{folder}/{store}"]


async def _rebind_milliseconds(command: list[str], folder: str) -> float:
    agent = AgentSettings(dialect="acp", command=command, workspace=folder)
    profile = build_profile(ProfilesSettings(agents={"demo": agent}), "demo", "default", "/")
    taken: list[float] = []
    async with LocalLauncher.temporary() as launcher, Pool(PoolSettings(min=0, max=1), launcher=launcher) as pool:
        for session in ("a", "b"):
            async with pool.lease(session, profile) as lease:
                await lease.prompt("ECHO:hello").wait()
        for number in range(_REBINDS):
            session = "ab"[number % 2]
            started = time.perf_counter()
            async with pool.lease(session, profile):
                taken.append((time.perf_counter() - started) * 1e3)
            report = pool.report_of(session)
            assert report is not None
            assert report.strategy == "loaded"
    return median(taken)


def _own_milliseconds(command: list[str]) -> float:
    """The same two requests, written to the agent and read from it by nothing but pipes."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        ask = _Asker(agent)
        ask("initialize", protocolVersion=1, clientCapabilities={})
        sessions = []
        for _ in range(2):
            sessions.append(ask("session/new", cwd="/", mcpServers=[])["sessionId"])
            ask("session/prompt", sessionId=sessions[-1], prompt=[{"type": "text", "text": "ECHO:hello"}])
        taken = []
        for number in range(_REBINDS):
            left, wanted = sessions[(number + 1) % 2], sessions[number % 2]
            started = time.perf_counter()
            ask("session/close", sessionId=left)
            ask("session/load", sessionId=wanted, cwd="/", mcpServers=[])
            taken.append((time.perf_counter() - started) * 1e3)
    return median(taken)


class _Asker:
    def __init__(self, agent: "subprocess.Popen[bytes]") -> None:
        self._agent = agent
        self._asked = 0

    def __call__(self, method: str, **params: Any) -> Any:
        """The result of a request; what the agent says before it is passed over."""
        stdin, stdout = self._agent.stdin, self._agent.stdout
        assert stdin is not None
        assert stdout is not None
        self._asked += 1
        stdin.write(
            msgspec.json.encode({"jsonrpc": "2.0", "id": self._asked, "method": method, "params": params}) + b"\n"
        )
        stdin.flush()
        while (line := msgspec.json.decode(stdout.readline())).get("id") != self._asked or "method" in line:
            pass
        return line["result"]
