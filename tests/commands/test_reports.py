"""What a worker's program says of itself and of its conversation, and what a person answers it, on the terminal."""

import re

import pytest

from commands.event_text import resumption_text
from commands.session_view import session_view
from commands.tables import explanation_table, workers_table
from tests.commands.documents import worker
from tests.commands.fake_pool import Bench
from tests.commands.terminal import draw

REPORT = {
    "program": "fake-agent",
    "version": "1.0.0",
    "capabilities": ["load", "close"],
    "options": ["mode"],
    "strategy": "refed",
    "model": "fake-1",
    "mode": "ask",
    "context": {"used": 11_509, "size": 200_000},
}
REPORTED = f"""\
program   fake-agent 1.0.0
can       load close
options   mode
model     fake-1
mode      ask
context   11.5k of 200k
strategy  refed: {resumption_text("refed")}"""


def test_what_a_program_says_of_its_conversation_has_columns_and_rows_where_one_says_anything() -> None:
    reporting = [worker("w1", report=REPORT), worker("w2", suspended=True, stray_lines=3)]
    rows = [re.split(r"  +", line.rstrip()) for line in draw(workers_table(reporting, 200), 200).splitlines()]
    assert [row[-4:] for row in rows] == [
        ["CONTEXT", "MODEL", "MODE", "PROGRAM"],
        ["11.5k/200k", "fake-1", "ask", "fake-agent 1.0.0"],
        ["-", "-", "-", "-"],
    ]
    assert "idle, refed" in rows[1]
    assert "refed" in draw(workers_table(reporting, 60), 60)
    assert "PROGRAM" not in draw(workers_table(reporting[1:], 200), 200)
    session = {"key": "ada", "model": None, "context": REPORT["context"], "report": REPORT, "state": "READY"}
    assert draw(session_view(session)).splitlines()[2:] == REPORTED.splitlines()
    own = draw(session_view({**session, "model": "its-own"}))
    assert ("its-own" in own, "fake-1" in own) == (True, False)
    idle = {"key": "ada", "context": REPORT["context"], "state": "READY"}
    assert "context  11.5k of 200k" in draw(session_view(idle)), "no worker"


DENIED = {"call_id": "c1", "decision": "deny", "session": "a", "note": "no"}


@pytest.mark.parametrize(
    ("command", "params", "decided", "words"),
    [
        ("approve c1", {"call_id": "c1", "decision": "allow"}, "allow", "c1 is allowed\n"),
        ("approve c1 --option no", {"call_id": "c1", "decision": "allow", "option_id": "no"}, "deny", "c1 is denied\n"),
        ("deny c1 -s a --note no", DENIED, "deny", "c1 is denied\n"),
    ],
)
def test_a_decision_is_printed_as_the_worker_has_taken_it(
    bench: Bench, command: str, params: dict[str, str], decided: str, words: str
) -> None:
    bench.pool.fixed = {"decide": {"decision": decided}}
    result = bench.run(*command.split())
    assert (result.stdout, bench.pool.calls) == (words, [("decide", params)]), result.output


@pytest.mark.parametrize(("place", "shown"), [(2, "2 of 3, the pool is full"), (None, "the pool is full")])
def test_an_explanation_says_where_a_waiting_session_stands_and_what_it_needs(place: int | None, shown: str) -> None:
    wait = {"place": place, "waiting": 3, "why": "the pool is full", "needs": "a turn has to end in bob"}
    profile = {"signature": "a1b2c3d4", "agent": "main", "role": "reviewer", "cwd": "/"}
    lines = draw(explanation_table({"profile": profile, "workers": [], "wait": wait}, 60)).splitlines()
    assert lines[1:3] == [f"waits:  {shown}", "needs:  a turn has to end in bob"]
