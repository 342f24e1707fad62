"""The client over real processes: pipes, an exit race, a worker that never reads."""

import os
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
import trio.testing

from errors import PoolError, WorkerExited
from rpc.children import ChildRegistry
from rpc.client import RpcClient
from rpc.native import NativeDialect
from rpc.process import WorkerProcess
from rpc.settings import RpcSettings
from rpc.spawn import WorkerSpec
from wire.units import Seconds

pytestmark = pytest.mark.process

ECHO = """
import json, sys
print('{"event":"ready","data":{"protocol":1}}', flush=True)
for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({"id": request["id"], "result": request["params"]}), flush=True)
    if request["method"] == "last":
        sys.exit(3)
"""
DEAF = 'import sys, time; print(\'{"event":"ready","data":{}}\', flush=True); time.sleep(60)'


@asynccontextmanager
async def client_of(program: str) -> AsyncIterator[RpcClient]:
    settings = RpcSettings(eof_grace=Seconds(0.5), request_timeout=Seconds(10))
    spec = WorkerSpec(
        worker_id="w1",
        marker=f"{secrets.token_hex(8)}:w1",
        argv=(sys.executable, "-I", "-S", "-c", program),
        env=(("PATH", os.environ["PATH"]),),
        cwd="/",
    )
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            process = WorkerProcess.spawn(spec, ChildRegistry(), settings)
            nursery.start_soon(process.supervise)
            client = RpcClient(process, NativeDialect(), settings, name="w1")
            await nursery.start(client.run)
            await client.wait_ready(10)
            yield client
            await process.stop(force=True)
            await client.wait_ended()


async def test_a_request_larger_than_a_pipe_comes_back_whole() -> None:
    async with client_of(ECHO) as client:
        text = "ä\u2028" * 300_000
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(client.request, "ping")
            assert msgspec.json.decode(await client.request("echo", {"text": text})) == {"text": text}
        assert client.statistics().late_answers == 0


async def test_the_last_answer_before_an_exit_is_never_lost() -> None:
    for number in range(8):
        async with client_of(ECHO) as client:
            assert msgspec.json.decode(await client.request("last", {"n": number})) == {"n": number}
            ended = await client.wait_ended()
            assert isinstance(ended, WorkerExited)
            assert ended.details["exit_code"] == 3


async def test_a_worker_that_never_reads_fails_its_callers_when_it_is_killed() -> None:
    errors: list[PoolError] = []

    async def ask(client: RpcClient, size: int) -> None:
        try:
            await client.request("echo", {"text": "x" * size})
        except PoolError as exc:
            errors.append(exc)

    async with trio.open_nursery() as nursery, client_of(DEAF) as client:
        nursery.start_soon(ask, client, 1_000_000)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(ask, client, 10)
        await trio.testing.wait_all_tasks_blocked()
        assert client.statistics().queued_bytes > 0
    assert [type(error) for error in errors] == [WorkerExited, WorkerExited]
    assert sorted(error.details["sent"] for error in errors) == [False, True]
