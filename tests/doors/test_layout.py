"""Tables that fit the terminal."""

import io
import time

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from commands.layout import UNBOUNDED, Column, fit_columns, make_table

ID = Column("ID", lambda r: r["id"])
NAME = Column("NAME", lambda r: r["name"], stretches=True)
NOTE = Column("NOTE", lambda r: r["note"], stretches=True)
FIRST_TO_GO = Column("X", lambda r: r["id"], optional=2)
THEN = Column("Y", lambda r: r["id"], optional=1)


def lines(columns: list[Column], records: list[dict[str, str]], width: int) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(make_table(columns, records, width, empty="nothing"))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_everything_is_shown_where_there_is_room() -> None:
    record = {"id": "w1", "name": "a name", "note": "a note"}
    assert lines([ID, NAME, NOTE], [record], 80) == ["ID  NAME    NOTE", "w1  a name  a note"]


def test_only_stretching_columns_are_cut_short_and_say_so() -> None:
    record = {"id": "w1234567", "name": "n" * 40, "note": "short"}
    shown = lines([ID, NAME, NOTE], [record], 40)
    assert shown[1].startswith("w1234567  nnnn")
    assert shown[1].endswith("n…  short")
    assert len(shown[1]) == 40


def test_optional_columns_go_in_their_order_before_anything_is_squeezed_below_its_least() -> None:
    natural = [8, 8, 8, 30]
    columns = [FIRST_TO_GO, THEN, ID, NAME]
    assert list(fit_columns(columns, natural, 80)) == [0, 1, 2, 3]
    assert list(fit_columns(columns, natural, 35)) == [1, 2, 3]
    assert list(fit_columns(columns, natural, 25)) == [2, 3]


def test_ten_thousand_lines_are_drawn_in_a_small_part_of_what_richs_table_takes() -> None:
    records = [{"id": f"w{number}", "name": f"a name {number}", "note": "a note"} for number in range(2_000)]

    def seconds(table: RenderableType) -> float:
        began = time.thread_time()
        Console(width=80, file=io.StringIO()).print(table)
        return time.thread_time() - began

    theirs = Table(box=None)
    for record in records:
        theirs.add_row(record["id"], record["name"], record["note"])
    assert seconds(make_table([ID, NAME, NOTE], records, 80, empty="nothing")) < seconds(theirs) / 4


def test_a_cell_is_as_wide_as_its_column_in_any_script_and_to_the_right_where_it_stands_there() -> None:
    said = Column("SAID", lambda r: Text(r["name"], "bold"), stretches=True, right=True)
    records = [{"id": "日本", "name": "日本語" * 10}, {"id": "w1", "name": "ä"}]
    assert lines([ID, said], records, 28) == [
        "ID" + "SAID".rjust(26),
        "日本  日本語日本語日本語日 …",
        "w1" + "ä".rjust(26),
    ]


def test_no_records_are_told_in_words() -> None:
    assert lines([ID], [], 80) == ["nothing"]


columns_and_needs = st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(1, 60)), min_size=1, max_size=8)


@given(drawn=columns_and_needs, width=st.integers(1, 200))
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
    if sum(natural) + 2 * (len(natural) - 1) <= width:
        assert used == sum(natural) + 2 * (len(natural) - 1)


def test_without_a_bound_nothing_is_cut() -> None:
    assert fit_columns([NAME], [5000], UNBOUNDED) == {0: 5000}
