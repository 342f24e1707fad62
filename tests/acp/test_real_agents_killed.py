"""Real ACP agents while processes are killed: sessions keep their own words, a dead supervisor leaves nothing."""

from collections import Counter
from uuid import uuid4

import psutil
import pytest

from fixtures.acp_real import REAL_AGENTS, RealAgent
from tests.acceptance.supervisor import gone_within, processes_with, running_supervisor
from tests.acp.conftest import ModelServer, each_agent
from tests.acp.pooled import GONE_SECONDS, Pooled, all_processes, definition, kill_worker, settings

pytestmark = [pytest.mark.real_acp, pytest.mark.process]

_SESSIONS = 8
_KILLS = 3
_WORKERS = 2


class Words:
    """What each session was given in the rounds so far: texts that occur in no other."""

    def __init__(self, sessions: list[str]) -> None:
        self.of: dict[str, list[str]] = {session: [] for session in sessions}

    def prompt(self, session: str) -> str:
        """Gives it another one, and asks for all earlier ones where there are some."""
        word = f"{session}-{len(self.of[session])}-{uuid4().hex}"
        self.of[session].append(word)
        return f"{word} RECALL" if len(self.of[session]) > 1 else word

    def wrong(self, session: str, answer: str) -> list[str]:
        """Words of its earlier rounds that an answer lacks, and words of other sessions that it has."""
        missing = [word for word in self.of[session][:-1] if word not in answer]
        others = [word for other, words in self.of.items() if other != session for word in words if word in answer]
        return missing + others


@each_agent(["opencode"], group="eight sessions")
def test_eight_sessions_over_two_processes_keep_their_own_words_while_workers_are_killed(
    real_agent: RealAgent, model_server: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("e")
    text = settings(_WORKERS, definition(real_agent, place, model_server.port))
    with running_supervisor(place / "data", settings=text) as supervisor:
        pooled = Pooled(supervisor, real_agent, model_server, place)
        sessions = [f"s{number}" for number in range(_SESSIONS)]
        words = Words(sessions)
        play_round(pooled, words)
        for victim in sessions[:_KILLS]:
            play_round(pooled, words, victim)
        done = Counter(event["run_id"] for event in supervisor.told("done"))
        assert (len(done), set(done.values())) == (_SESSIONS + _KILLS * (_SESSIONS + 1), {1})
        assert supervisor.status()["counters"]["spawned"] <= _WORKERS + _KILLS


def play_round(pooled: Pooled, words: Words, victim: str | None = None) -> None:
    """Each session is given a word and says all earlier ones; the victim's worker is killed in a turn before."""
    killed = victim and pooled.hang(victim, f"HANG {uuid4().hex}")
    runs = {session: pooled.begin(session, words.prompt(session)) for session in words.of if session != victim}
    first = next(iter(runs))
    answers = {first: pooled.outcome(runs[first])}
    if victim and killed:
        kill_worker(pooled.supervisor, victim)
        assert "killed by signal 9" in pooled.outcome(killed)["error"]["message"]
        runs[victim] = pooled.begin(victim, words.prompt(victim))
    answers |= {session: pooled.outcome(run) for session, run in runs.items() if session != first}
    assert {session: answer["status"] for session, answer in answers.items()} == dict.fromkeys(words.of, "ok")
    wrong = {session: words.wrong(session, answer["text"]) for session, answer in answers.items()}
    assert wrong == {session: [] for session in words.of}


@each_agent(["claude-agent-acp"])
def test_a_conversation_whose_process_inside_the_agent_was_killed_goes_on_with_the_next_prompt(
    real_agent: RealAgent, model_server: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("i")
    text = settings(1, definition(real_agent, place, model_server.port))
    with running_supervisor(place / "data", settings=text) as supervisor:
        pooled = Pooled(supervisor, real_agent, model_server, place)
        word, pid = uuid4().hex, 0
        for is_in_turn in (False, True):
            pooled.ask("alice", word)
            pid = pid or pooled.pid_of("alice")
            hanging = pooled.hang("alice", f"HANG {uuid4().hex}") if is_in_turn else None
            inner = psutil.Process(pid).children(recursive=True)
            assert inner != []
            for process in inner:
                process.kill()
            psutil.wait_procs(inner)
            failed = pooled.outcome(hanging or pooled.begin("alice", "not read"))
            assert "the agent has lost the conversation" in failed["error"]["message"]
            assert word in pooled.ask("alice", "RECALL")
            assert pooled.strategy("alice") in {"loaded", "refed"}, "it may have read the prompt, or not"
            assert pooled.pid_of("alice") == pid


@each_agent(REAL_AGENTS)
def test_nothing_of_it_is_left_two_seconds_after_its_supervisor_was_killed_in_mid_turn(
    real_agent: RealAgent, model_server: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("k")
    text = settings(1, definition(real_agent, place, model_server.port, permission_mode="auto"))
    with running_supervisor(place / "data", settings=text) as supervisor:
        instance = supervisor.instance()
        supervisor.begin("alice", "BASH:setsid sleep 301 & sleep 302", agent=real_agent.name)
        supervisor.wait_for_turn("alice")
        if real_agent.server is not None:  # what has no model runs no command
            processes_with(instance, "sleep", 2)
        processes = all_processes(instance, place)
        assert processes != []
        supervisor.kill()
        assert gone_within(processes, GONE_SECONDS), [process for process in processes if process.is_running()]
        assert all_processes(instance, place) == []
