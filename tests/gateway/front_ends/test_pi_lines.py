"""Lines of pi on their way to the front ends: whose they are, and whether a run is on after them. Pure."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from errors import WorkerExited
from gateway.front_ends.protocol import FRONT_ENDS, ObservedRun
from gateway.front_ends.session import AttachedSession
from rpc.passthrough import RawLine

START, SETTLED = b'{"type":"agent_start"}', b'{"type":"agent_settled"}'
END = b'{"type":"agent_end","messages":[]}'
RETRIED, DONE = END[:-1] + b',"willRetry":true}', END[:-1] + b',"willRetry":false}'


class Front:
    """Somebody attached, who keeps what it reads."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def send_lines(self, lines: Iterable[bytes]) -> None:
        self.lines += lines


def port(*fronts: Front) -> AttachedSession:
    nothing = cast("Any", SimpleNamespace(pool=None))
    made = AttachedSession("alice", nothing, FRONT_ENDS["pi"], nothing, start_soon=nothing, release_transcript=nothing)
    made.front_ends = cast("Any", list(fronts))
    return made


def take(to: AttachedSession, *lines: bytes) -> None:
    to.receive_raw(tuple(RawLine(line, None) for line in lines))


@pytest.mark.parametrize(
    ("lines", "is_open"),
    [
        ([START], True),
        ([START, END], False),
        ([START, DONE], False),
        ([START, RETRIED], True),
        ([START, RETRIED, START, DONE, SETTLED], False),
        ([START, DONE, SETTLED, START, DONE], True),  # it may go on with texts of its queue until it settles
        ([SETTLED, RETRIED], False),
    ],
)
def test_a_run_of_pi_is_on_until_it_will_not_go_on_by_itself(lines: list[bytes], is_open: bool) -> None:  # noqa: FBT001 - a parameter of the test
    seen = ObservedRun()
    for line in lines:
        seen = FRONT_ENDS["pi"].next_run_state(seen, line)
    assert seen.is_open is is_open


def test_a_front_end_of_any_release_reads_that_the_run_of_a_lost_worker_is_over() -> None:
    front = Front()
    attached = port(front)
    take(attached, START)
    attached.worker_lost(WorkerExited("gone"))
    attached.worker_lost(WorkerExited("gone again"))
    told = [msgspec.json.decode(line)["type"] for line in front.lines]
    assert told == ["agent_start", "message_end", "agent_end", "agent_settled"]


def test_an_event_of_a_request_has_its_id_for_the_front_end_that_made_it_and_keeps_its_place() -> None:
    mine, other = Front(), Front()
    attached = port(mine, other)
    attached._forwarded["7"] = cast("Any", SimpleNamespace(front_end=mine))
    attached.receive_raw((RawLine(b"before", None), RawLine(b"with id", "7", b"without"), RawLine(b"after", None)))
    assert mine.lines == [b"before", b"with id", b"after"]
    assert other.lines == [b"before", b"without", b"after"]
