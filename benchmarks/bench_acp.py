"""The dialect of ACP agents: pieces of text a second, what importing it costs, the memory of one worker's."""

import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable

import msgspec

from benchmarks.harness import Result, result
from rpc.acp import AcpDialect, AcpOptions, make
from rpc.settings import RpcSettings

_LINES = 280
"""Of about 230 bytes: as many as fill a pipe."""
_ROUNDS = 300
_REPEATS = 7
_WORKERS = 200
_SESSION = "1e3f03db-08bd-4e73-9288-7e86ee1a12b8"
_IMPORT = """
import time
import rpc.client, rpc.process, rpc.turn
before = time.process_time()
import rpc.acp
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
