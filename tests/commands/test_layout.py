"""Tables that fit the terminal, and pending calls with commands that can be copied as they stand."""

import io
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from commands.layout import UNBOUNDED, Column, approval_lines, fit_columns, make_table
from tests.commands.terminal import draw

EVIL = "\x1b[2J[red]evil\r\n"


def questions(asked: list[dict[str, Any]], place: str = "", width: int = 40) -> list[str]:
    return draw(Group(*approval_lines(asked, place)), width, crop=False).splitlines()


def question(call: str = "c1", session: str = "ada", preview: str = "ls") -> dict[str, Any]:
    return {"session": session, "call": {"id": call, "name": "exec", "input_preview": preview}}


def test_a_command_stays_in_one_line_and_what_a_worker_or_a_stranger_chose_is_quoted_and_harmless() -> None:
    session = "agent:main:" + "x" * 200
    lines = questions([question(session=session)], " --data-dir '/a b'")
    assert lines[-1].strip() == f"pool approve --data-dir '/a b' -s {session} c1"
    said, command = questions([question("c1; rm -rf /", "it's", EVIL)], width=200)
    assert command.strip() == """pool approvals show -s 'it'"'"'s' 'c1; rm -rf /'"""
    assert ("[red]evil" in said, "\x1b" in said) == (True, False)


def test_of_many_questions_the_first_are_shown_and_the_rest_is_counted() -> None:
    lines = questions([question(f"c{number}") for number in range(12)], width=80)
    assert (len(lines), lines[-1].strip()) == (2 * 10 + 1, "and 2 more; pool approvals has all of them")
    assert questions([]) == []


@pytest.mark.parametrize(
    "preview",
    ['{"command":"make\\ncurl evil | sh"}', '{"command":"make  x"}', '{"command":"' + "x" * 188, "y" * 200],
)
def test_a_line_that_does_not_say_all_of_the_call_leads_to_where_it_is_shown(preview: str) -> None:
    assert questions([question(preview=preview)], width=400)[-1].strip() == "pool approvals show -s ada c1"


def test_a_line_that_would_be_cut_leads_there_too() -> None:
    asked = [question(preview='{"command":"make test"}')]
    commands = [str(list(approval_lines(asked, columns=columns))[-1]).split()[1] for columns in (60, 25)]
    assert commands == ["approve", "approvals"]


# --- tables that fit the terminal ------------------------------------------------------------------------------------

ID = Column("ID", lambda r: r["id"])
NAME = Column("NAME", lambda r: r["name"], stretches=True)
NOTE = Column("NOTE", lambda r: r["note"], stretches=True)
RIGHT = Column("SAID", lambda r: Text(r["name"], "bold"), stretches=True, right=True)


@pytest.mark.parametrize(
    ("columns", "records", "width", "shown"),
    [
        ([ID, NAME, NOTE], [("w1", "a name", "a note")], 80, ["ID  NAME    NOTE", "w1  a name  a note"]),
        ([ID, NAME, NOTE], [("w1234567", "n" * 40, "short")], 40, [None, f"w1234567  {'n' * 22}…  short"]),
        (
            [ID, RIGHT],
            [("日本", "日本語" * 10, ""), ("w1", "ä", "")],
            28,
            ["ID" + "SAID".rjust(26), "日本  日本語日本語日本語日 …", "w1" + "ä".rjust(26)],
        ),
        ([ID], [], 80, ["nothing"]),
    ],
)
def test_only_stretching_columns_are_cut_short_and_cells_are_as_wide_as_their_column_in_any_script(
    columns: list[Column], records: list[tuple[str, ...]], width: int, shown: list[str | None]
) -> None:
    rows = [dict(zip(("id", "name", "note"), record, strict=True)) for record in records]
    lines = draw(make_table(columns, rows, width, empty="nothing"), width).splitlines()
    assert [line for line, wanted in zip(lines, shown, strict=True) if wanted not in (None, line)] == []


def test_optional_columns_go_in_their_order_before_anything_is_squeezed_below_its_least() -> None:
    columns = [Column("X", str, optional=2), Column("Y", str, optional=1), ID, NAME]
    found = [list(fit_columns(columns, [8, 8, 8, 30], width)) for width in (80, 35, 25)]
    assert found == [[0, 1, 2, 3], [1, 2, 3], [2, 3]]
    assert fit_columns([NAME], [5000], UNBOUNDED) == {0: 5000}


def test_thousands_of_lines_are_drawn_in_a_small_part_of_what_richs_table_takes() -> None:
    records = [{"id": f"w{number}", "name": f"a name {number}", "note": "a note"} for number in range(1_000)]

    def seconds(table: RenderableType) -> float:
        began = time.thread_time()
        Console(width=80, file=io.StringIO()).print(table)
        return time.thread_time() - began

    theirs = Table(box=None)
    for record in records:
        theirs.add_row(record["id"], record["name"], record["note"])
    assert seconds(make_table([ID, NAME, NOTE], records, 80, empty="nothing")) < seconds(theirs) / 4


COLUMNS = st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(1, 60)), min_size=1, max_size=8)


@given(drawn=COLUMNS, width=st.integers(1, 200))
def test_the_columns_fit_whenever_what_must_be_shown_does(drawn: list[tuple[bool, int, int]], width: int) -> None:
    columns = [Column(str(i), str, stretches=s, optional=o) for i, (s, o, _) in enumerate(drawn)]
    natural = [need for _, _, need in drawn]
    widths = fit_columns(columns, natural, width)
    must = [index for index, column in enumerate(columns) if not column.optional]
    assert set(must) <= set(widths)
    assert list(widths) == sorted(widths)
    assert all(0 < widths[index] <= natural[index] for index in widths)
    assert all(widths[index] == natural[index] for index in widths if not columns[index].stretches)
    used = sum(widths.values()) + 2 * (len(widths) - 1)
    least = sum(min(natural[i], 12) if columns[i].stretches else natural[i] for i in must) + 2 * (len(must) - 1)
    assert used <= max(width, least)
    if (all_of_them := sum(natural) + 2 * (len(natural) - 1)) <= width:
        assert used == all_of_them
