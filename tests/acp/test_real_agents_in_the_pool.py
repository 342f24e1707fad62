"""Each real ACP agent behind ``pool run``: turns, approvals, aborts, two sessions, kill -9, parking, its end."""

import signal
from collections.abc import Iterator
from uuid import uuid4

import pytest

from fixtures.acp_real import REAL_AGENTS, RealAgent
from tests.acceptance.supervisor import running_supervisor
from tests.acp.conftest import ModelServer, each_agent
from tests.acp.pooled import Pooled, all_processes, definition, kill_worker, settings

pytestmark = [pytest.mark.real_acp, pytest.mark.process]


@pytest.fixture
def pooled(
    real_agent: RealAgent, model_server: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pooled]:
    """One worker at most."""
    place = tmp_path_factory.mktemp("r")
    text = settings(1, definition(real_agent, place, model_server.port))
    with running_supervisor(place / "data", settings=text) as supervisor:
        yield Pooled(supervisor, real_agent, model_server, place)


@each_agent(REAL_AGENTS)
def test_it_does_behind_the_pool_all_that_an_agent_has_to(pooled: Pooled) -> None:
    words = {session: f"{session}-{uuid4().hex}" for session in ("alice", "bob")}
    for session, word in words.items():
        assert_answers(pooled, session, word)
    assert_taking_turns_on_one_worker(pooled, words)
    assert_a_tool_waits_for_a_person(pooled)
    assert_an_abort_ends_the_turn_alone(pooled, words)
    assert_killed_in_mid_turn_it_goes_on_elsewhere(pooled, words)
    assert_a_parked_session_goes_on(pooled, words)
    assert_nothing_is_left_at_the_end(pooled)


def assert_answers(pooled: Pooled, session: str, word: str) -> None:
    answer = pooled.ask(session, word)
    assert ("successfully updated" if pooled.agent.server is None else word) in answer


def assert_remembers(pooled: Pooled, session: str, words: dict[str, str]) -> None:
    """Its own word and no other's; what has no model knows none."""
    answer = pooled.ask(session, "RECALL")
    if pooled.agent.server is not None:
        assert [other for other, word in words.items() if word in answer] == [session], answer


def assert_taking_turns_on_one_worker(pooled: Pooled, words: dict[str, str]) -> None:
    pid = pooled.pid_of("bob")
    for session in words:
        assert_remembers(pooled, session, words)
        assert pooled.pid_of(session) == pid
        assert pooled.strategy(session) in ("kept", "loaded", "resumed")
    assert pooled.supervisor.status()["counters"]["spawned"] == 1


def assert_a_tool_waits_for_a_person(pooled: Pooled) -> None:
    """What an agent does not ask about runs; one without a model asks in each turn, whatever the prompt."""
    for verb in ("approve", "deny"):
        file = pooled.place / "project" / f"{verb}.txt"
        run = pooled.begin("alice", f"BASH:echo done > {file}")
        if pooled.agent.server is None:
            pooled.decide(verb, run)
            words = {"approve": "successfully updated", "deny": "skip"}
            assert words[verb] in pooled.supervisor.outcome(run)["text"]
            continue
        if pooled.agent.asks:
            assert str(file) in pooled.decide(verb, run)["input_preview"]
        outcome = pooled.outcome(run)
        assert file.exists() is (verb == "approve" or not pooled.agent.asks), outcome
        if verb == "deny" and pooled.agent.ends_denied_turns:
            assert outcome["error"]["message"] == "a call was denied"
        else:
            assert outcome["status"] == "ok", outcome
    if not pooled.agent.asks:
        assert pooled.supervisor.told("permission_required") == []


def assert_an_abort_ends_the_turn_alone(pooled: Pooled, words: dict[str, str]) -> None:
    pid = pooled.pid_of("alice")
    run = pooled.hang("alice", "HANG until the abort")
    assert pooled.supervisor.pool("abort", "-s", "alice").returncode == 0
    outcome = pooled.supervisor.outcome(run)
    assert outcome["error"]["code"] == "aborted", outcome
    assert_remembers(pooled, "alice", words)
    assert pooled.pid_of("alice") == pid


def assert_killed_in_mid_turn_it_goes_on_elsewhere(pooled: Pooled, words: dict[str, str]) -> None:
    run = pooled.hang("alice", "HANG until the kill")
    killed = kill_worker(pooled.supervisor, "alice")
    assert "killed by signal 9" in pooled.supervisor.outcome(run)["error"]["message"]
    assert_remembers(pooled, "alice", words)
    assert pooled.pid_of("alice") != killed
    # a process that is killed may not have stored the prompt that was under way; then the conversation is fed again
    assert pooled.strategy("alice") in (("loaded", "refed") if pooled.agent.loads else ("refed",))


def assert_a_parked_session_goes_on(pooled: Pooled, words: dict[str, str]) -> None:
    """Both are parked when the worker stops, with all its processes."""
    worker = pooled.supervisor.worker_of("alice")
    assert pooled.supervisor.pool("workers", "stop", worker["id"]).returncode == 0
    pooled.supervisor.wait_for_loss(worker["pid"])
    assert {session["state"] for session in pooled.supervisor.status()["sessions"]} == {"parked"}
    assert all_processes(pooled.supervisor.instance(), pooled.place) == []
    assert_remembers(pooled, "bob", words)
    assert pooled.strategy("bob") in (("loaded", "resumed") if pooled.agent.loads else ("refed",))


def assert_nothing_is_left_at_the_end(pooled: Pooled) -> None:
    instance = pooled.supervisor.instance()
    assert all_processes(instance, pooled.place) != []
    pooled.supervisor.signal(signal.SIGTERM)
    assert pooled.supervisor.wait(60.0) == 0
    assert all_processes(instance, pooled.place) == []
