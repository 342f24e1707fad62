"""Alerts as the terminal of ``pool run`` shows them, whatever their texts try."""

import pytest

from heartbeat.delivery.channel import DeliveryFailed
from heartbeat.delivery.dispatcher import StdoutOutlet, render_alert
from tests.heartbeat.delivery.fakes import an_alert


def test_an_alert_is_a_head_and_its_text_below() -> None:
    written: list[str] = []
    StdoutOutlet(written.append).show(an_alert(text="first\n\nsecond", media=("/w/plot.png",)))
    assert written == [
        "2023-11-14T22:13:20Z alert main (alice, interval)\n    first\n\n    second\n    MEDIA:/w/plot.png"
    ]


@pytest.mark.parametrize(
    "trick", ["\x1b[2J", "\r", "\x00", "\x9b31m", "\x7f", "\u2028", "\u202e", "\u2066", "\x0b", "\x0c", "\x85"]
)
def test_a_text_cannot_steer_the_terminal(trick: str) -> None:
    shown = render_alert(an_alert(text=f"a{trick}b", session=f"s{trick}", agent=f"m{trick}", media=(f"f{trick}",)))
    assert trick[0] not in shown
    assert len(shown.splitlines()) == 3


def test_a_session_cannot_pretend_to_be_another_line() -> None:
    assert len(render_alert(an_alert(session="x\ny", text="z")).splitlines()) == 2


def test_line_ends_of_other_systems_are_line_ends() -> None:
    assert render_alert(an_alert(text="a\r\nb\tc")).splitlines()[1:] == ["    a", "    b\tc"]


def test_an_output_that_cannot_be_written_is_a_failure_that_may_pass() -> None:
    def broken(line: str) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(DeliveryFailed, match="Broken pipe") as caught:
        StdoutOutlet(broken).show(an_alert())
    assert not caught.value.permanent
