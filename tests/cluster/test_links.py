"""A node program's links, against a supervisor on paper: what each says of those before."""

import os
import socket
from pathlib import Path

import pytest
import trio

from cluster.frames import FROM_STRANGER, FrameKind
from cluster.link import Link
from cluster.messages import MAX_SWEPT, Bye, Hello, Welcome, decode_hello
from cluster.node.program import NodeIdentity, NodeProgram, _Refused
from cluster.wire import LinkWire, WireClosed
from errors import WorkerStartFailed
from rpc.host import WorkerHost


def _wire(end: socket.socket) -> LinkWire:
    end.settimeout(0)
    return LinkWire.of_pipes(os.dup(end.fileno()), end.detach())


async def link(program: NodeProgram, answer: Bye | Welcome | None) -> tuple[Hello, Exception]:
    """What the program says at one link, and how that ends; ``answer``: the supervisor's, None = it hangs up."""
    near, far = (_wire(end) for end in socket.socketpair())
    said: list[Hello] = []

    async def dial() -> LinkWire:
        return near

    async def supervise() -> None:
        home = Link(far)
        said.append(decode_hello((await home.receive_first(FROM_STRANGER, 30.0)).payload))
        if answer is not None:
            kind = FrameKind.BYE if isinstance(answer, Bye) else FrameKind.WELCOME
            home.send_message(kind, answer)
        else:
            far.close()

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervise)
            with pytest.raises((_Refused, WireClosed, WorkerStartFailed)) as ended:
                await program._serve_once(dial)
    far.close()
    return said[0], ended.value


@pytest.fixture
def program(tmp_path: Path) -> NodeProgram:
    return NodeProgram(NodeIdentity(name="a", state_file=tmp_path / "state" / "a"), lambda _: None)


async def test_what_was_swept_is_said_until_a_supervisor_has_taken_the_node(program: NodeProgram) -> None:
    program._swept = ("i0",)
    for _ in range(2):
        hello, _ = await link(program, Bye("not now", 0.0))
        assert hello.swept == ("i0",), "one that is refused was never known"
    cut, _ = await link(program, None)
    after_cut, _ = await link(program, None)
    assert after_cut.swept == ("i0", cut.instance)
    for _ in range(2 * MAX_SWEPT):
        await link(program, None)
    last, _ = await link(program, None)
    assert last.swept[:2] == ("i0", cut.instance)


async def test_a_link_that_fails_before_it_starts_anything_leaves_nothing(
    program: NodeProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[WorkerHost] = []
    close = WorkerHost.close

    def record(host: WorkerHost) -> None:
        closed.append(host)
        close(host)

    monkeypatch.setattr(WorkerHost, "close", record)
    (tmp_path / "file").touch()
    _, ended = await link(program, Welcome(lease=9.0, data_dir=str(tmp_path / "file")))
    assert isinstance(ended, WorkerStartFailed)
    assert len(closed) == 1, "its cgroup is removed"
