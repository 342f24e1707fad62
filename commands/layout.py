"""Tables that fit the terminal, and the lines of pending tool calls. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from commands.event_text import approve_command, call_text, reason_text, show_command
from wire.call_page import CallPage, Tone, page_lines
from wire.run_view import describes_whole_input
from wire.terminal import clean, display_width

UNBOUNDED = 10_000
_GAP = 2
_MIN_STRETCHED = 12
_INVERTED = Style(reverse=True)


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


class TableRows:
    """Lines of cells under headings, a renderable. Rich's own table takes ten times as long."""

    def __init__(
        self, columns: Sequence[Column], rows: Sequence[Sequence[str | Text]], widths: Mapping[int, int]
    ) -> None:
        """``widths`` in characters of the columns to show, by index."""
        self.selected: int | None = None
        """The record that is shown inverted."""
        self._rows: list[Sequence[str | Text]] = [[Text(column.heading, "bold") for column in columns], *rows]
        self._columns = [(index, width, columns[index].right) for index, width in widths.items()]
        self._headings = [column.heading for column in columns]

    @property
    def line_count(self) -> int:
        """How many lines they take, the headings' among them."""
        return len(self._rows)

    def cut_records(self, heading: str) -> list[int]:
        """The records of which this column does not show everything."""
        wanted = self._headings.index(heading)
        width = next((width for index, width, _ in self._columns if index == wanted), 0)
        return [at for at, row in enumerate(self._rows[1:]) if _cell_width(row[wanted]) > width]

    def __rich_console__(self, console: Console, _options: ConsoleOptions) -> Iterator[Segment]:
        gap = Segment(" " * _GAP)
        for line, row in enumerate(self._rows):
            if self.selected is not None and line == self.selected + 1:
                yield from Segment.apply_style(self._draw_row(row, gap, console), post_style=_INVERTED)
            else:
                yield from self._draw_row(row, gap, console)
            yield Segment.line()

    def _draw_row(self, row: Sequence[str | Text], gap: Segment, console: Console) -> Iterator[Segment]:
        for number, (index, width, right) in enumerate(self._columns):
            if number:
                yield gap
            yield from _draw(row[index], width, console, right=right)


def make_table(
    columns: Sequence[Column], records: Sequence[dict[str, Any]], width: int, *, empty: str
) -> TableRows | Text:
    """The records as a table of at most ``width`` characters where the columns allow it; ``empty`` where none are."""
    if not records:
        return Text(empty, "dim")
    rows = [[column.cell(record) for column in columns] for record in records]
    natural = [
        max(len(column.heading), *(_cell_width(row[index]) for row in rows)) for index, column in enumerate(columns)
    ]
    return TableRows(columns, rows, fit_columns(columns, natural, width))


def fit_columns(columns: Sequence[Column], natural: Sequence[int], width: int) -> dict[int, int]:
    """The columns to show by index, in order, with their widths; ``natural``: what each would need."""
    shown = list(range(len(columns)))
    while _min_width(columns, natural, shown) > width:
        optional = [index for index in shown if columns[index].optional]
        if not optional:
            break
        shown.remove(max(optional, key=lambda index: columns[index].optional))
    fixed = sum(natural[index] for index in shown if not columns[index].stretches)
    spare = width - fixed - _GAP * (len(shown) - 1)
    return {**dict.fromkeys(shown, 0), **_distribute(columns, natural, shown, spare)}


def _min_width(columns: Sequence[Column], natural: Sequence[int], shown: Sequence[int]) -> int:
    cells = sum(min(natural[index], _MIN_STRETCHED) if columns[index].stretches else natural[index] for index in shown)
    return cells + _GAP * (len(shown) - 1)


def _distribute(columns: Sequence[Column], natural: Sequence[int], shown: Sequence[int], spare: int) -> dict[int, int]:
    """Each stretching column gets what it needs or an equal part of what is left, the modest ones first."""
    widths = {index: natural[index] for index in shown if not columns[index].stretches}
    stretching = sorted((index for index in shown if columns[index].stretches), key=lambda index: natural[index])
    for rank, index in enumerate(stretching):
        part = max(spare // (len(stretching) - rank), min(natural[index], _MIN_STRETCHED))
        widths[index] = min(natural[index], part)
        spare -= widths[index]
    return widths


def _cell_width(content: str | Text) -> int:
    return cell_len(content if isinstance(content, str) else content.plain)


def _draw(content: str | Text, width: int, console: Console, *, right: bool) -> Iterator[Segment]:
    """One cell in exactly ``width`` characters; what is too long ends in an ellipsis."""
    if isinstance(content, str) and content.isascii() and len(content) <= width:  # most are: it is ten times as fast
        yield Segment(content.rjust(width) if right else content.ljust(width))
        return
    text = content.copy() if isinstance(content, Text) else Text(content)
    text.truncate(width, overflow="ellipsis")
    missing = width - text.cell_len
    if right:
        text.pad_left(missing)
    else:
        text.pad_right(missing)
    yield from text.render(console)


_STYLES: Mapping[Tone, str] = {"plain": "", "name": "dim", "added": "green", "removed": "red", "place": "dim"}
_APPROVALS_SHOWN = 10
_KEY_END_CHARS = 36
_REASON_CHARS = 160


def approval_lines(
    asked: Sequence[dict[str, Any]], place: str = "", *, margin: int = 10, columns: int | None = None
) -> Iterator[Text]:
    """``asked``: ``{session, call}`` each. ``place``: the options by which shown commands find the supervisor.

    ``margin``: columns before the text, the word ``asks`` in them. A command is never cut and never broken: it is to be
    copied. It approves (``pool deny`` takes the same arguments) only where the line says all of the call and has
    ``columns`` enough, so that it is not cut; else it shows the call.
    """
    for question in asked[:_APPROVALS_SHOWN]:
        said = f"{short_key(question['session'])}: {call_text(question)}"
        yield Text.assemble(("asks".ljust(margin), "yellow"), said, (reason_text(question)[:_REASON_CHARS], "dim"))
        fits = columns is None or margin + display_width(said) <= columns
        is_all = describes_whole_input(question["call"].get("input_preview")) and fits
        command = (approve_command if is_all else show_command)(question, question["session"], place)
        yield Text(f"{' ' * margin}{command}", "bold", no_wrap=True, overflow="ignore")
    if len(asked) > _APPROVALS_SHOWN:
        yield Text(f"{' ' * margin}and {len(asked) - _APPROVALS_SHOWN} more; pool approvals has all of them", "dim")


def page_texts(page: CallPage, columns: int, *, margin: int = 0) -> Iterator[Text]:
    """What a call would do, behind a margin; nothing of what lies behind the page."""
    for line in page_lines(page, columns - margin):
        yield Text(" " * margin + line.text, _STYLES[line.tone], no_wrap=True, overflow="ignore")


def short_key(key: str | None) -> str:
    """A session's key, of a long one both its ends: one of them must not push everything else off the line."""
    text = clean(key)
    return text if len(text) <= 2 * _KEY_END_CHARS + 1 else f"{text[:_KEY_END_CHARS]}…{text[-_KEY_END_CHARS:]}"
