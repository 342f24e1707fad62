"""Tables that fit the terminal: which columns are shown at a width, and how wide each of them is. Pure."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from rich.table import Table
from rich.text import Text

__all__ = ["UNBOUNDED", "Column", "fit_columns", "make_table"]

UNBOUNDED = 10_000
_GAP = 2
_LEAST_STRETCH = 12


class Column(NamedTuple):
    """One column: its heading, how a record fills it, and how it gives way on a narrow terminal.

    A stretching column may be cut short, to 12 characters at the least; an optional one may be left out, the highest
    number first; any other is always shown whole.
    """

    heading: str
    cell: Callable[[dict[str, Any]], str | Text]
    right: bool = False
    stretches: bool = False
    optional: int = 0


def make_table(columns: Sequence[Column], records: Sequence[dict[str, Any]], width: int, *, empty: str) -> Table | Text:
    """The records as a table of at most ``width`` characters where the columns allow it; ``empty`` where none are."""
    if not records:
        return Text(empty, "dim")
    rows = [[_as_text(column.cell(record)) for column in columns] for record in records]
    natural = [max(len(column.heading), *(row[index].cell_len for row in rows)) for index, column in enumerate(columns)]
    widths = fit_columns(columns, natural, width)
    table = Table(box=None, padding=(0, _GAP, 0, 0), header_style="bold", pad_edge=False)
    for index in widths:
        justify: Literal["left", "right"] = "right" if columns[index].right else "left"
        table.add_column(
            columns[index].heading, justify=justify, no_wrap=True, overflow="ellipsis", width=widths[index]
        )
    for row in rows:
        table.add_row(*(row[index] for index in widths))
    return table


def fit_columns(columns: Sequence[Column], natural: Sequence[int], width: int) -> dict[int, int]:
    """The columns to show by index, in order, with their widths; ``natural``: what each would need."""
    shown = list(range(len(columns)))
    while _least(columns, natural, shown) > width:
        optional = [index for index in shown if columns[index].optional]
        if not optional:
            break
        shown.remove(max(optional, key=lambda index: columns[index].optional))
    fixed = sum(natural[index] for index in shown if not columns[index].stretches)
    spare = width - fixed - _GAP * (len(shown) - 1)
    return {**dict.fromkeys(shown, 0), **_share(columns, natural, shown, spare)}


def _least(columns: Sequence[Column], natural: Sequence[int], shown: Sequence[int]) -> int:
    cells = sum(min(natural[index], _LEAST_STRETCH) if columns[index].stretches else natural[index] for index in shown)
    return cells + _GAP * (len(shown) - 1)


def _share(columns: Sequence[Column], natural: Sequence[int], shown: Sequence[int], spare: int) -> dict[int, int]:
    """Each stretching column gets what it needs or an equal part of what is left, the modest ones first."""
    widths = {index: natural[index] for index in shown if not columns[index].stretches}
    stretching = sorted((index for index in shown if columns[index].stretches), key=lambda index: natural[index])
    for rank, index in enumerate(stretching):
        part = max(spare // (len(stretching) - rank), min(natural[index], _LEAST_STRETCH))
        widths[index] = min(natural[index], part)
        spare -= widths[index]
    return widths


def _as_text(content: str | Text) -> Text:
    return content if isinstance(content, Text) else Text(content)
