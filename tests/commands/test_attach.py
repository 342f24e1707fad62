"""``pool attach``: the loop between stdin, stdout and the control socket, with a supervisor made of a socket pair."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from commands.attach import AttachProgram
from commands.attach_lines import MOST_LINE_BYTES, AttachMessage, StderrWriter, encode_send, read_message
from doors.control.client_socket import MessageReader
from errors import NoSupervisor, PoolError, PoolSaturated, ProtocolViolation, UsageError

OPENED = b'{"id":"1","result":{"attachment":"a1","session":"s","worker":"w1","greeting":[{"g":1}]}}\n'
LEFT = b'{"event":"attach_ended","data":{"attachment":"a1","code":"left","message":""}}\n'


@contextmanager
def program(serve: Callable[[socket.socket], None], *, stderr: int = 2) -> Iterator[tuple[AttachProgram, int, int]]:
    """The program, the end of a pipe that its stdin is, the end of one that its stdout is."""
    ours, theirs = socket.socketpair()
    stdin, say = os.pipe()
    hear, stdout = os.pipe()
    thread = threading.Thread(target=serve, args=(theirs,))
    thread.start()
    try:
        yield AttachProgram(ours, Path("/s"), stdin=stdin, stdout=stdout, stderr=stderr), say, hear
    finally:
        ours.close()
        thread.join(10)
        theirs.close()
        for fd in (stdin, say, hear, stdout):
            os.close(fd)


def hang_up(say: int) -> None:
    """Close the writing end of a pipe, and keep its number taken."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, say)
    os.close(null)


def sent(*lines: bytes, taken: int = 0) -> bytes:
    return b'{"event":"attach","data":{"attachment":"a1","taken":%d,"lines":[%b]}}\n' % (taken, b",".join(lines))


def read_line(line: bytes) -> AttachMessage:
    [message] = MessageReader().feed(line)
    return read_message(message)


def words(text: str) -> bytes:
    data = {"attachment": "a1", "words": text + "\n"}
    return msgspec.json.encode({"event": "attach_words", "data": data}) + b"\n"


def answering(*answers: bytes) -> Callable[[socket.socket], None]:
    """A supervisor that reads the first request, answers this, and hangs up."""

    def serve(peer: socket.socket) -> None:
        peer.recv(1 << 16)
        peer.sendall(b"".join(answers))
        peer.shutdown(socket.SHUT_RDWR)

    return serve


def reset(peer: socket.socket) -> None:
    peer.recv(1, socket.MSG_PEEK)
    peer.close()  # with something unread: a reset, not an end


BEHIND = b'{"event":"attach_ended","data":{"code":"behind","message":"read faster"}}\n'
UNREAD = OPENED + sent(b'["%b"]' % (b"x" * 500_000))


@pytest.mark.parametrize(
    ("serve", "error", "words"),
    [
        (answering(UNREAD), UsageError, "output is not read"),
        (answering(OPENED), NoSupervisor, ""),
        (reset, NoSupervisor, ""),
        (answering(b'{"id":1,"error":{"code":"saturated","message":"full"}}\n'), PoolSaturated, "full"),
        (answering(b'{"id":"1","result":{}}\n'), ProtocolViolation, ""),
        (answering(b"HTTP/1.1 400 Bad Request\n"), ProtocolViolation, ""),
        (answering(b""), NoSupervisor, ""),
    ],
)
def test_whatever_ends_it_before_its_time_is_an_error(
    serve: Callable[[socket.socket], None], error: type[PoolError], words: str
) -> None:
    with program(serve) as (running, _, _hear), pytest.raises(error, match=words or None):
        running.run({})


def test_what_is_said_reaches_stdout_byte_by_byte_before_the_reason_of_an_end() -> None:
    with program(answering(OPENED, sent(b'{"a" : 1.0}', '["\u2028"]'.encode()), LEFT)) as (running, _, hear):
        assert running.run({}) == 0
        assert os.read(hear, 1 << 16) == b'{"g":1}\n{"a" : 1.0}\n["\xe2\x80\xa8"]\n'
    with program(answering(OPENED, sent(b"1"), BEHIND)) as (running, _, hear):
        with pytest.raises(PoolError, match="read faster"):
            running.run({})
        assert os.read(hear, 1 << 16) == b'{"g":1}\n1\n'


def test_a_closed_stdout_ends_it() -> None:
    with program(answering(OPENED)) as (running, _, hear):
        hang_up(hear)
        assert running.run({}) == 1


def test_no_more_is_read_than_the_supervisor_keeps_up_with() -> None:
    seen: list[bytes] = []

    def serve(peer: socket.socket) -> None:
        peer.recv(1 << 16)
        peer.sendall(OPENED)
        reader = peer.makefile("rb")
        seen.extend(reader.readline() for _ in range(32))
        peer.sendall(sent(taken=32))
        seen.extend(reader.readline() for _ in range(9))
        peer.sendall(LEFT)

    with program(serve) as (running, say, _):
        os.write(say, b"".join(b'{"id":%d}\n' % number for number in range(40)))
        os.close(say)
        spare, _ = os.pipe()
        os.dup2(spare, say)
        assert running.run({}) == 0
    *requests, last = [msgspec.json.decode(line) for line in seen]
    assert [request["params"].get("line", {}).get("id") for request in requests] == list(range(40))
    assert last["method"] == "attach.end"


def test_a_stdin_that_ends_before_the_worker_is_there_wants_none() -> None:
    hung_up = threading.Event()

    def serve(peer: socket.socket) -> None:
        peer.recv(1 << 16)
        hung_up.wait(20)

    with program(serve) as (running, say, _):
        hang_up(say)
        with pytest.raises(SystemExit) as ended:
            running.run({})
        hung_up.set()
        assert ended.value.code == 0


def test_a_stdin_that_has_ended_is_still_told_what_is_wrong_with_the_arguments() -> None:
    with program(answering(b'{"id":1,"error":{"code":"usage","message":"unknown agent"}}\n')) as (running, say, _):
        hang_up(say)
        with pytest.raises(UsageError, match="unknown agent"):
            running.run({})


def test_what_is_said_before_the_worker_is_there_reaches_it_and_what_its_program_wrote_goes_to_stderr(
    capfd: pytest.CaptureFixture[str],
) -> None:
    heard: list[bytes] = []
    has_ended = threading.Event()

    def serve(peer: socket.socket) -> None:
        peer.recv(1 << 16)
        has_ended.wait(20)
        peer.sendall(OPENED.replace(b'"greeting"', b'"words":"Warning: \\u001b[1mno model\\n","greeting"'))
        while b"attach.end" not in b"".join(heard):
            heard.append(peer.recv(1 << 16))
        peer.sendall(LEFT)

    with program(serve) as (running, say, _):
        os.write(say, b'{"id":1,"method":"ping"}\n')
        hang_up(say)
        has_ended.set()
        assert running.run({}) == 0
    assert b'"line":{"id":1,"method":"ping"}' in b"".join(heard)
    assert capfd.readouterr().err == "Warning: [1mno model\n"


@pytest.mark.parametrize("is_read", [True, False])
def test_the_agents_stderr_comes_to_stderr_and_one_that_is_closed_or_not_read_holds_up_nothing(
    *, is_read: bool
) -> None:
    said = (words("first"), words("x" * 1_000_000) * 3, sent(b"{}"), LEFT)
    read, written = os.pipe()
    if not is_read:
        os.close(read)
    with program(answering(OPENED, *said), stderr=written) as (running, _, hear):
        assert running.run({}) == 0
        assert os.read(hear, 1 << 16) == b'{"g":1}\n{}\n'
        if is_read:
            assert os.read(read, 100).startswith(b"first\nxxx")
            os.close(read)
    os.close(written)


def test_of_stderr_that_is_not_read_a_bounded_part_waits_and_a_note_says_that_lines_are_missing() -> None:
    fill = "x" * 1023 + "\n"
    out, end = os.pipe()
    with os.fdopen(out, "rb", buffering=0) as reader:
        stderr = StderrWriter(end)
        for _ in range(2000):
            stderr.add(fill)
        os.set_blocking(out, False)
        read = b""
        while stderr.has_pending:
            read += reader.read(1 << 20) or b""
            stderr.write()
        os.set_blocking(out, True)
        stderr.add("later\n")
        os.close(end)
        *lines, note, later = (read + reader.readall()).splitlines(keepends=True)
    assert (set(lines), len(lines) < 600) == ({fill.encode()}, True)
    assert note + later == b"[lines of the agent's stderr were left out: they were not read]\nlater\n"


def test_a_reader_that_has_left_ends_the_writing() -> None:
    out, end = os.pipe()
    os.close(out)
    stderr = StderrWriter(end)
    stderr.add("one\n")
    stderr.add("two\n")
    assert not stderr.has_pending
    os.close(end)


# --- lines ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [b"\xff{}", b"null", b"[1]", b"{", b"", b"{}{}", b"1" * 10_000])
def test_what_is_no_object_goes_as_text_in_one_frame(line: bytes) -> None:
    frame = encode_send(1, "a", line)
    assert frame.count(b"\n") == 1
    assert msgspec.json.decode(frame)["params"]["text"] == line[:1000].decode(errors="replace")


def test_of_what_is_too_large_only_what_its_answer_needs_is_sent() -> None:
    line = b'{"id":"x","type":"prompt","message":"%b"}' % (b"x" * MOST_LINE_BYTES)
    params = msgspec.json.decode(encode_send(1, "a", line))["params"]
    assert params["line"] == {"id": "x", "type": "prompt"}
    assert "may have" in params["refusal"]
    huge = b'{"id":"%b","type":"prompt"}' % (b"x" * MOST_LINE_BYTES)
    assert msgspec.json.decode(encode_send(1, "a", huge))["params"]["line"] == {"type": "prompt"}


def test_lines_go_and_come_as_they_were_written() -> None:
    line = b'{ "id" : 1.0, "x":"\xe2\x80\xa8" }'
    assert b'"line":' + line + b"}}\n" in encode_send(1, "a", line)
    assert read_line(sent(b'{"a": 1}', b"2", taken=3)).lines == b'{"a": 1}\n2\n'
    line = rb'{"id":1,"message":"\ud83d"}'
    assert msgspec.json.decode(encode_send(1, "a", line))["params"]["text"] == line.decode()
    assert read_line(sent(msgspec.json.encode(line.decode()))).lines == line + b"\n"
