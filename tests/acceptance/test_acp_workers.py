"""Agents of the Agent Client Protocol as workers of a real pool: conversations, approvals, ends of every kind."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from commands.event_text import resumption_text
from errors import PoolError
from tests.acceptance.supervisor import Lives, Supervisor, gone_within, processes_with, running_supervisor

pytestmark = pytest.mark.process

AGENT = Path(__file__).resolve().parents[2] / "stress" / "acp_agent"
_GONE_SECONDS = 2.0
_ENDLESS = ("ignores-eof", "ignores-term")
_ENDLESS_TURN = ("ignores-ends-in-turn",)


def definition(name: str, place: Path, *quirks: str, more: str = "") -> str:
    """An agent of the settings, which works in and keeps its conversations below ``place``."""
    flags = [word for quirk in quirks for word in ("--quirk", quirk)]
    command = [sys.executable, "-S", str(AGENT), "--store", str(place / f"store-{name}"), *flags]
    (place / "work").mkdir(exist_ok=True)
    lines = [f"[agents.{name}]", 'dialect = "acp"', f"command = {msgspec.json.encode(command).decode()}"]
    return "\n".join([*lines, f'workspace = "{place / "work"}"', more, ""])


def strategies(supervisor: Supervisor, session: str) -> list[str]:
    """How the session's conversation went on each time."""
    return [event["data"]["strategy"] for event in supervisor.told("agent_resumed") if event["session"] == session]


def ask(supervisor: Supervisor, session: str, text: str, agent: str = "fix") -> str:
    return supervisor.prompt(session, text, "-a", agent)


def begin(supervisor: Supervisor, session: str, text: str, agent: str = "fix") -> str:
    return supervisor.begin(session, text, agent=agent)


def question_of(supervisor: Supervisor, run: str) -> dict[str, Any]:
    """What the run asks a person, once it does."""
    with supervisor.following("permission_required") as events:
        return next(dict(event["data"]) for event in events if event["run_id"] == run)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("a")


@pytest.fixture(scope="module")
def supervisor(place: Path) -> Iterator[Supervisor]:
    """Two workers for all its agents: ``fix`` is good, the others forget, refuse or want a login."""
    agents = [
        definition("fix", place),
        definition("forgets", place, "load-empty", "no-resume"),
        definition("unable", place, "no-load", "no-resume"),
        definition("closed", place, "auth"),
        definition("opened", place, "auth", more='auth_method = "fake-login"'),
        definition("wrapped", place, "wrapper-exits", "ignores-eof"),
    ]
    settings = "\n".join(["[pool]", "min = 0", "max = 2", *agents])
    with running_supervisor(place / "data", settings=settings) as running:
        yield running


# --- conversations ----------------------------------------------------------------------------------------------------


def test_three_sessions_over_two_workers_each_go_on_with_their_own_conversation(supervisor: Supervisor) -> None:
    sessions = ("one", "two", "three")
    for session in sessions:
        assert ask(supervisor, session, f"ECHO:I am {session}") == f"I am {session}"
    for session in sessions:
        told = ask(supervisor, session, "RECALL")
        assert [other for other in sessions if f"I am {other}" in told] == [session]
    assert {strategy for session in sessions for strategy in strategies(supervisor, session)} <= {"resumed", "kept"}
    assert "resumed" in strategies(supervisor, "one")
    assert len(supervisor.status()["workers"]) <= 2


@pytest.mark.parametrize("agent", ["forgets", "unable"])
def test_an_agent_that_has_forgotten_a_conversation_is_given_its_end_again(supervisor: Supervisor, agent: str) -> None:
    ask(supervisor, agent, "ECHO:the apple", agent)
    pid = supervisor.worker_of(agent)["pid"]
    os.kill(pid, signal.SIGKILL)
    supervisor.wait_for_loss(pid)
    run = begin(supervisor, agent, "RECALL;USAGE", agent)
    outcome = supervisor.outcome(run)
    assert "user:\nECHO:the apple" in outcome["text"]
    assert "assistant:\nthe apple" in outcome["text"]
    assert strategies(supervisor, agent) == ["refed"]
    lost = resumption_text("refed")
    history = " ".join(supervisor.pool("sessions", "history", agent).stdout.split())
    assert history.index("ECHO:the apple") < history.index(lost) < history.index("RECALL")
    assert outcome["strategy"] == "refed"
    assert supervisor.pool("wait", "-s", agent, run).stderr.strip() == f"! {lost}"
    report = supervisor.worker_of(agent)["report"]
    assert (report["program"], report["version"], report["mode"]) == ("fake-agent", "1.0.0", "ask")
    assert (report["model"], report["context"]) == ("fake-1", {"used": 1800, "size": 200_000})
    for command in (("sessions", "show", agent), ("explain", "-s", agent)):
        assert f"refed: {lost}" in " ".join(supervisor.pool(*command).stdout.split())
    ask(supervisor, agent, "ECHO:on", agent)
    assert "strategy" not in supervisor.outcome(begin(supervisor, agent, "ECHO:on", agent))


def test_a_conversation_is_resumed_after_an_end_in_order_and_loaded_after_a_kill(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """And what was learned of the program is known to the next supervisor, which does not try it again."""
    place = tmp_path_factory.mktemp("r")
    log = place / "agent.log"
    agent = definition("fix", place).replace('"--store"', f'"--log", "{log}", "--store"')
    lives = Lives(place, "[pool]\nmin = 0\nmax = 2\n" + agent)
    try:
        for end in (None, "stop", "kill worker", "kill supervisor", "stop"):
            running = lives.living()
            ask(running, "s", f"ECHO:before {end}")
            if end == "kill worker":
                pid = running.worker_of("s")["pid"]
                os.kill(pid, signal.SIGKILL)
                running.wait_for_loss(pid)
            elif end == "kill supervisor":
                running.kill()
            else:
                lives.stop()
        running = lives.living()
        assert "ECHO:before None" in ask(running, "s", "RECALL")
        assert strategies(running, "s") == ["resumed", "resumed", "loaded", "loaded", "resumed"]
    finally:
        lives.stop()
    tried = [line for line in log.read_text().splitlines() if "session/resume" in line]
    assert len(tried) == 4, "once for an id that it cannot have"


def test_a_pinned_session_keeps_its_worker_and_one_too_many_is_refused_with_what_to_do(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    place = tmp_path_factory.mktemp("p")
    pinned = definition("keeps", place, "no-load", "no-resume", more='resume = "pin"')
    settings = "\n".join(["[pool]", "min = 0", "max = 2", definition("fix", place), definition("other", place), pinned])
    with running_supervisor(place / "data", settings=settings) as running:
        ask(running, "kept", "ECHO:before", "keeps")
        pid = running.worker_of("kept")["pid"]
        ask(running, "a", "ECHO:a")
        ask(running, "b", "ECHO:b", "other")
        refused = running.pool("prompt", "-s", "late", "-a", "keeps", "ECHO:x")
        words = " ".join(refused.stderr.split())
        assert refused.returncode != 0
        assert "`pool sessions delete KEY`, raise pool.max" in words
        assert ": kept" in words
        assert ask(running, "kept", "RECALL", "keeps").endswith("ECHO:before")
        assert running.worker_of("kept")["pid"] == pid
        assert running.pool("sessions", "delete", "kept", "--yes").returncode == 0
        assert ask(running, "late", "ECHO:y", "keeps") == "y"


def test_a_conversation_of_another_directory_is_refused(supervisor: Supervisor, place: Path) -> None:
    ask(supervisor, "moved", "ECHO:here")
    pid = supervisor.worker_of("moved")["pid"]
    os.kill(pid, signal.SIGKILL)
    supervisor.wait_for_loss(pid)
    [journal] = [path for path in (place / "data").rglob("*.jsonl") if "ECHO:here" in path.read_text()]
    journal.write_text(journal.read_text().replace(str(place / "work"), "/elsewhere"))
    done = supervisor.pool("prompt", "-s", "moved", "-a", "fix", "RECALL")
    assert done.returncode != 0
    assert "belongs to /elsewhere" in " ".join(done.stderr.split())


# --- start ------------------------------------------------------------------------------------------------------------


def test_an_agent_that_wants_a_login_says_what_to_do(supervisor: Supervisor) -> None:
    done = supervisor.pool("prompt", "-s", "closed", "-a", "closed", "ECHO:x")
    words = " ".join(done.stderr.split())
    assert done.returncode != 0
    assert "closed wants a login" in words
    assert "auth_method" in words
    assert ask(supervisor, "opened", "ECHO:in", "opened") == "in"


# --- approvals and aborts ---------------------------------------------------------------------------------------------


def test_a_call_is_approved_or_denied_from_another_terminal(supervisor: Supervisor) -> None:
    for verb, word in (("approve", "allowed"), ("deny", "denied")):
        run = begin(supervisor, "asks", "ASK:write")
        call = question_of(supervisor, run)["call"]["id"]
        assert supervisor.pool(verb, call, "-s", "asks").returncode == 0
        assert f"write {word}" in supervisor.outcome(run)["text"]


def test_one_of_the_agents_own_answers_can_be_chosen(supervisor: Supervisor) -> None:
    run = begin(supervisor, "chooses", "ASK:write")
    question = question_of(supervisor, run)
    chosen = next(option for option in question["options"] if option["kind"] == "allow_always")
    decision = {"call_id": question["call"]["id"], "session": "chooses", "decision": "allow"}
    with pytest.raises(PoolError, match="no such option is offered; offered: allow_once, allow_always"):
        supervisor.call("decide", **decision, option_id="no-such-answer")
    supervisor.call("decide", **decision, option_id=chosen["id"])
    assert f"write allowed: {chosen['id']}" in supervisor.outcome(run)["text"]


def test_an_aborted_turn_ends_and_the_session_goes_on_with_its_worker(supervisor: Supervisor) -> None:
    ask(supervisor, "aborted", "ECHO:before")
    run = begin(supervisor, "aborted", "HANG")
    worker = supervisor.wait_for_turn("aborted")
    assert supervisor.pool("abort", "-s", "aborted").returncode == 0
    outcome = supervisor.outcome(run)
    assert outcome["status"] == "error", outcome
    assert "ECHO:before" in ask(supervisor, "aborted", "RECALL")
    assert supervisor.worker_of("aborted")["pid"] == worker["pid"]


# --- ends -------------------------------------------------------------------------------------------------------------


def test_a_worker_killed_in_mid_turn_fails_the_run_and_the_session_goes_on_elsewhere(supervisor: Supervisor) -> None:
    ask(supervisor, "killed", "ECHO:before")
    run = begin(supervisor, "killed", "ECHO:half;HANG")
    pid = supervisor.wait_for_turn("killed")["pid"]
    os.kill(pid, signal.SIGKILL)
    assert "killed by signal 9" in supervisor.outcome(run)["error"]["message"]
    assert "ECHO:before" in ask(supervisor, "killed", "RECALL")
    assert supervisor.worker_of("killed")["pid"] != pid


def test_a_conversation_that_the_agent_has_lost_fails_one_prompt_and_is_loaded_for_the_next(
    supervisor: Supervisor,
) -> None:
    for loss in ("LOSE", "LOSE;ERROR=-32603:the server process exited"):  # before the prompt, and in its turn
        ask(supervisor, loss, "ECHO:before", "fix")
        pid = supervisor.worker_of(loss)["pid"]
        failed = supervisor.outcome(begin(supervisor, loss, f"ECHO:last;{loss}"))
        if loss == "LOSE":
            failed = supervisor.outcome(begin(supervisor, loss, "ECHO:never read"))
        assert "the agent has lost the conversation" in failed["error"]["message"]
        told = ask(supervisor, loss, "RECALL")
        assert "ECHO:before" in told
        assert "ECHO:last" in told
        assert "ECHO:never read" not in told
        assert strategies(supervisor, loss) == ["loaded"]
        assert supervisor.worker_of(loss)["pid"] == pid


def test_an_agent_whose_wrapper_has_exited_is_the_worker_until_it_ends(supervisor: Supervisor) -> None:
    ask(supervisor, "wrapped", "ECHO:before;SETSID:sleep 302", "wrapped")
    first = supervisor.worker_of("wrapped")
    assert json.loads(ask(supervisor, "wrapped", "STATE", "wrapped"))["pid"] == first["pid"]
    assert first["rss"] > 1024**2
    run = begin(supervisor, "wrapped", "HANG", "wrapped")
    supervisor.wait_for_turn("wrapped")
    os.kill(first["pid"], signal.SIGKILL)
    assert f"worker {first['id']} ended" in supervisor.outcome(run)["error"]["message"]
    told = ask(supervisor, "wrapped", "RECALL;SETSID:sleep 303", "wrapped")
    assert "ECHO:before" in told
    second = supervisor.worker_of("wrapped")
    processes = [psutil.Process(pid) for pid in (second["pid"], int(told.rpartition("pid ")[2]))]
    assert supervisor.pool("workers", "recycle", second["id"]).returncode == 0
    assert gone_within(processes, 20), [process for process in processes if process.is_running()]


def test_an_agent_cannot_be_attached_to_by_a_front_end_of_the_bundled_one(supervisor: Supervisor) -> None:
    done = supervisor.start("attach", "--mode", "rpc", "--agent", "fix")
    _, words = done.communicate(timeout=30)
    assert done.returncode != 0
    assert "use: pool acp --agent fix" in " ".join(words.split())


@pytest.mark.parametrize(
    "quirks", [(), ("wrapper", *_ENDLESS_TURN), ("wrapper-exits", *_ENDLESS_TURN), _ENDLESS], ids=",".join
)
def test_nothing_of_an_agent_outlives_a_supervisor_that_is_killed_and_the_next_goes_on(
    tmp_path_factory: pytest.TempPathFactory, quirks: tuple[str, ...]
) -> None:
    place = tmp_path_factory.mktemp("k")
    lives = Lives(place, "[pool]\nmin = 0\nmax = 2\n" + definition("fix", place, *quirks))
    try:
        first = lives.living()
        ask(first, "s", "ECHO:before;SETSID:sleep 300;SPAWN:sleep 301")
        begin(first, "s", "HANG")
        first.wait_for_turn("s")
        processes = processes_with(first.instance(), "sleep", 2)
        assert len(processes) > 2
        first.kill()
        assert gone_within(processes, _GONE_SECONDS), [process for process in processes if process.is_running()]
        assert "ECHO:before" in ask(lives.living(), "s", "RECALL")
    finally:
        lives.stop()
