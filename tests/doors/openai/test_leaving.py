"""A client that leaves in the middle of an answer: its run ends with it or goes on, as the settings say."""

import asyncio
import contextlib
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from tests.acceptance.supervisor import gated
from tests.doors.openai.conftest import SETTINGS, TOKEN, Pool, running_pool, wait_until_forgotten

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def strict_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    settings = SETTINGS.replace("[http]\n", "[http]\nabort_on_disconnect = true\n")
    with running_pool(tmp_path_factory.mktemp("strict"), settings) as running:
        yield running


def leave(pool: Pool, text: str, *, stream: bool, **options: Any) -> str:
    """Ask, and be gone in the middle of the turn; the session."""
    session = f"s-{uuid.uuid4().hex}"
    messages: Any = [{"role": "user", "content": text}]
    named = {"user": session, **options}
    if stream:
        with pool.client() as client:
            next(iter(client.chat.completions.create(model="main", messages=messages, stream=True, **named)))
    else:
        asyncio.run(leave_in_silence(pool, session, messages))
    return session


async def leave_in_silence(pool: Pool, session: str, messages: Any) -> None:
    async with AsyncOpenAI(base_url=f"{pool.url}/v1", api_key=TOKEN, max_retries=0, timeout=20) as client:
        asked = asyncio.create_task(client.chat.completions.create(model="main", messages=messages, user=session))
        await asyncio.to_thread(pool.supervisor.wait_for_turn, session)
        asked.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asked


def wait_until_alone(pool: Pool) -> None:
    """Until the door knows that everybody else has left."""
    request = urllib.request.Request(f"{pool.url}/metrics", headers={"authorization": f"Bearer {TOKEN}"})
    answer = b""
    while b"\npool_http_connections 1.0\n" not in answer:
        with urllib.request.urlopen(request, timeout=20) as opened:
            answer = opened.read()


def outcome(pool: Pool, session: str) -> Any:
    run = pool.call("sessions.get", session=session)["last_run"]
    return pool.call("agent.wait", run_id=run, session=session, timeout_ms=15_000)


def test_a_run_goes_on_without_its_client(pool: Pool, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    session = leave(pool, f"{gated(gate)} PIECES=40", stream=False)
    wait_until_alone(pool)
    gate.touch()
    ended = outcome(pool, session)
    assert (ended["status"], ended["text"].count("piece")) == ("ok", 40)


def test_a_run_goes_on_without_a_client_that_has_heard_its_beginning(pool: Pool) -> None:
    session = leave(pool, "PIECES=40 DELAY=60", stream=True)
    ended = outcome(pool, session)
    assert (ended["status"], ended["text"].count("piece")) == ("ok", 40)


@pytest.mark.parametrize("stream", [False, True])
def test_a_run_ends_with_its_client_where_it_is_set_so(strict_pool: Pool, *, stream: bool) -> None:
    session = leave(strict_pool, "PIECES=2 HANG", stream=stream)
    ended = outcome(strict_pool, session)
    assert (ended["status"], ended["error"]["code"]) == ("error", "aborted")
    assert strict_pool.supervisor.prompt(session, "hello").startswith('You said: "hello". (turn 2')


def test_a_session_of_its_own_is_forgotten_when_the_run_has_ended_without_its_client(pool: Pool) -> None:
    wait_until_forgotten(pool)
    leave(pool, "PIECES=2 HANG", stream=True, user=None)
    wait_until_alone(pool)
    [session] = [key for key in pool.sessions() if key.startswith("openai:")]
    run = pool.call("sessions.get", session=session)["last_run"]
    assert pool.call("agent.wait", run_id=run, session=session, timeout_ms=0)["status"] == "timeout", "it goes on"
    pool.call("abort", session=session)
    wait_until_forgotten(pool)
