"""The keys of ``pool top``: selection, order, filter, an opened session, approval and recycling."""

from typing import Any

import pytest
from rich.console import Console

from commands.top_controls import TopControls, Wish
from commands.top_session import SessionLines
from commands.top_view import TopModel, draw
from tests.commands.test_top_view import a_status, lines_of


class Screen:
    """A model of five sessions and three workers, and its keys. The status names ``s0`` last: it is the newest."""

    def __init__(self, **status: Any) -> None:
        self.model, self.controls = TopModel(), TopControls()
        document = a_status(sessions=5, **status)
        document["sessions"].reverse()
        self.model.update_status(document)

    def press(self, keys: str, columns: int = 80) -> list[Wish]:
        asked = (self.model.status or {})["gateway"]["permissions"]
        sessions, workers = self.model.sessions(), self.model.workers()
        wishes = self.controls.press(keys, sessions=sessions, workers=workers, asked=asked, columns=columns)
        return list(wishes)

    def shown(self) -> list[str]:
        """The names in the pane where the keys move."""
        return [record.get("key") or record["id"] for record in self._records()]

    def selected(self) -> str:
        at = self.controls.position(self.controls.pane, self._records())
        assert at is not None
        return self.shown()[at]

    def _records(self) -> list[dict[str, Any]]:
        pane = self.controls.pane
        return self.controls.arrange(pane, self.model.sessions() if pane == "sessions" else self.model.workers())


def coloured_lines(screen: Screen) -> list[str]:
    console = Console(width=80, force_terminal=True, no_color=True)
    with console.capture() as capture:
        console.print(draw(screen.model, 80, 24, now=1_000.0, controls=screen.controls))
    return capture.get().splitlines()


@pytest.mark.parametrize(
    ("keys", "selected"),
    [
        ("", "s0"),
        ("\x1b[B", "s1"),
        ("jjk", "s1"),
        ("\x1b[6~", "s4"),
        ("G\x1b[A", "s3"),
        ("Gg", "s0"),
        ("\t", "w0"),
        ("\tj\t", "s0"),
        ("/s3\r", "s3"),
        ("jj/s\r", "s2"),
    ],
)
def test_keys_select_across_panes_and_filters(keys: str, selected: str) -> None:
    screen = Screen()
    assert screen.press(keys) == []
    assert screen.selected() == selected


def test_a_selection_stays_with_its_record_and_each_pane_has_its_own_order() -> None:
    screen = Screen(workers=0)
    screen.press("jj")
    screen.model.update_status(a_status(workers=0, sessions=5))
    assert (screen.shown()[0], screen.selected()) == ("s4", "s2")
    screen.press("s")
    assert (screen.shown()[0], screen.controls.sorted_by) == ("s4", "used")
    screen.press("s")
    assert (screen.shown()[0], screen.selected(), screen.controls.sorted_by) == ("s0", "s2", "key")
    screen.press("\t")
    assert screen.controls.sorted_by is None


def test_a_filter_is_typed_letter_by_letter_and_escape_ends_it() -> None:
    screen = Screen()
    assert screen.press("/sq\x7f4") == [], "no letter is a command while it is typed"
    assert screen.shown() == ["s4"]
    assert screen.press("\rq") == [Wish("quit", {})]
    screen.press("\x1b")
    assert len(screen.shown()) == 5
    screen.press("/nothing\r")
    assert screen.shown() == []
    assert screen.press("ja\rr") == [], "nothing is selected"


def test_a_worker_is_replaced_after_a_yes_only() -> None:
    screen = Screen()
    screen.press("\tj")
    assert (screen.press("r"), screen.press("n"), screen.press("r")) == ([], [], [])
    assert "replace worker w1" in lines_of(screen.model, 80, 24, controls=screen.controls)[-1]
    assert screen.press("y") == [Wish("workers.recycle", {"worker": "w1"})]
    screen.press("\tr")
    assert screen.controls.message == "this session has no worker"


def test_a_call_is_approved_where_all_of_it_was_shown() -> None:
    screen = Screen(asks=1)
    assert screen.press("a", columns=400) == []
    assert screen.press("y") == [Wish("decide", {"session": "s0", "call_id": "c1", "decision": "allow"})]
    screen.press("a", columns=80)
    assert (screen.controls.question, "longer than a line" in screen.controls.message) == (None, True)
    screen.press("ja", columns=400)
    assert "no tool call of this session" in screen.controls.message


def test_an_opened_session_shows_the_end_of_its_messages_and_scrolls() -> None:
    screen = Screen()
    assert screen.press("j\r") == [Wish("sessions.history", {"session": "s1"})]
    messages = [{"role": "user", "content": f"word {number}."} for number in range(60)]

    def drawn(history: Any) -> list[str]:
        opened = SessionLines()
        opened.update(history, 0)
        lines = lines_of(screen.model, 60, 24, controls=screen.controls, opened=opened)
        assert len(lines) == 24
        return lines

    end = "\n".join(drawn({"messages": messages}))
    assert ("SESSION s1" in end, "word 59." in end, "word 0." in end) == (True, True, False)
    screen.press("\x1b[H")
    begin = drawn({"messages": messages})
    assert "word 0." in "\n".join(begin)
    screen.press("\x1b[B")
    assert drawn({"messages": messages}) != begin, "the first step down moves at once"
    assert "cannot be read" in "\n".join(drawn(None))
    screen.press("\x1b")
    assert "EVENTS" in "\n".join(drawn(None))


def test_a_selected_record_far_down_is_scrolled_into_view() -> None:
    screen = Screen()
    screen.model.update_status(a_status(workers=0, sessions=60))
    screen.press("G")
    lines = lines_of(screen.model, 80, 24, controls=screen.controls)
    assert any(screen.selected() in line for line in lines)
    assert [line for line in coloured_lines(screen) if "\x1b[7m" in line and screen.selected() in line]
    assert any("of them above" in line for line in lines)
