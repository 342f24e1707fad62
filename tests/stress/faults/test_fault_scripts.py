"""What a faulty worker writes and does, as bytes, in the place of a plain answer."""

import json
from itertools import islice
from typing import Any

import pytest

from stress.agents import AGENTS
from stress.faulty_agent import FAULT_SCRIPTS, FaultAction, FaultInjector, Step, fault_word

EVENT = b'{"event":"assistant_message","data":{"partial":"hello","seq":1}}\n'


def prompt(request_id: str, text: str, method: str = "prompt") -> bytes:
    return json.dumps({"id": request_id, "method": method, "params": {"text": text}}).encode() + b"\n"


def answer(request_id: str) -> bytes:
    return json.dumps({"id": request_id, "result": {"text": "fine"}}, separators=(",", ":")).encode() + b"\n"


def steps_of(fault: str, number: int | None = None, *, limit: int = 100_000) -> list[Step]:
    """What becomes of the answer ``a`` to a prompt that asks for the fault, after an answer to ``before``."""
    injector = FaultInjector()
    list(injector.transform(answer("before")))
    injector.on_request(prompt("a", f"DELAY=5 {fault_word(fault, number)} n0000001x00000000"))
    return list(islice(injector.transform(answer("a")), limit))


def lines_of(fault: str, number: int | None = None, *, limit: int = 100_000) -> list[bytes]:
    return [step for step in steps_of(fault, number, limit=limit) if isinstance(step, bytes)]


def is_message(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("prompt", "hello"),
        ("steer", "FAULT:garbage"),
        ("prompt", "FAULT:no-such-fault"),
        ("prompt", "he said FAULT:garbage-like things"),
        ("prompt", "NOTFAULT:garbage"),
    ],
)
def test_only_a_prompt_with_the_very_word_is_obeyed(method: str, text: str) -> None:
    injector = FaultInjector()
    injector.on_request(prompt("a", text, method))
    assert [list(injector.transform(line)) for line in (EVENT, answer("a"))] == [[EVENT], [answer("a")]]


def test_a_fault_strikes_the_answer_of_its_own_prompt_and_only_once() -> None:
    injector = FaultInjector()
    injector.on_request(prompt("a", "FAULT:duplicate"))
    lines = (EVENT, answer("b"), answer("a"), answer("a"))
    assert [len(list(injector.transform(line))) for line in lines] == [1, 1, 2, 1]


@pytest.mark.parametrize("count", [None, 5])
def test_garbage_is_no_message_and_the_answer_follows(count: int | None) -> None:
    *garbage, last = lines_of("garbage", count)
    assert len(garbage) == (count or 3)
    assert not any(is_message(line) for line in garbage)
    assert all(line.endswith(b"\n") for line in garbage)
    assert last == answer("a")


def test_bad_utf8_would_be_a_message_but_for_its_bytes() -> None:
    line, last = lines_of("bad-utf8")
    with pytest.raises(UnicodeDecodeError):
        line.decode()
    assert is_message(line.decode(errors="replace").encode())
    assert last == answer("a")


def test_one_byte_at_a_time_is_the_whole_answer() -> None:
    pieces = lines_of("one-byte")
    assert {len(piece) for piece in pieces} == {1}
    assert b"".join(pieces) == answer("a")


@pytest.mark.parametrize(
    ("fault", "acts"),
    [
        ("half-line-stall", [FaultAction.STALL]),
        ("half-line-eof", [FaultAction.CLOSE_STDOUT, FaultAction.STALL]),
        ("half-line-exit", [FaultAction.EXIT]),
    ],
)
def test_half_a_line_has_no_end(fault: str, acts: list[FaultAction]) -> None:
    half, *rest = steps_of(fault)
    assert isinstance(half, bytes)
    assert b"\n" not in half
    assert answer("a").startswith(half)
    assert 0 < len(half) < len(answer("a"))
    assert rest == acts


@pytest.mark.parametrize("size", [64 * 1024 - 1, 16 * 1024 * 1024])
def test_a_line_is_legal_and_of_exactly_its_size(size: int) -> None:
    line, last = lines_of("line", size)
    assert (len(line), line.count(b"\n"), line[-1:]) == (size, 1, b"\n")
    assert json.loads(line)["event"] == "assistant_message"
    assert last == answer("a")


def test_an_endless_line_has_no_end() -> None:
    pieces = lines_of("endless-line", limit=2000)
    assert len(pieces) == 2000
    assert all(piece and b"\n" not in piece for piece in pieces)


@pytest.mark.parametrize(
    ("fault", "ids"),
    [("duplicate", ["a", "a"]), ("unknown-id", ["never-asked", "a"]), ("late-id", ["a", "before"])],
)
def test_ids_of_answers(fault: str, ids: list[Any]) -> None:
    assert [json.loads(line)["id"] for line in lines_of(fault)] == ids


def test_a_late_answer_comes_after_the_next_one_and_is_not_lost() -> None:
    injector = FaultInjector()
    for name in ("a", "b"):
        injector.on_request(prompt(name, "FAULT:late-answer"))
    said = [list(injector.transform(answer(name))) for name in ("a", "b", "c", "d")]
    assert said == [[], [], [answer("c") + answer("a") + answer("b")], [answer("d")]]


@pytest.mark.parametrize(
    ("fault", "steps"),
    [
        ("close-stdin", [answer("a"), FaultAction.CLOSE_STDIN]),
        ("close-stdout", [FaultAction.CLOSE_STDOUT]),
        ("no-end", [FaultAction.IGNORE_THE_END, answer("a")]),
        ("heir", [answer("a"), FaultAction.HEIR, FaultAction.EXIT]),
        ("daemon", [FaultAction.DAEMON, answer("a")]),
    ],
)
def test_what_is_done_beside_the_answer(fault: str, steps: list[Step]) -> None:
    assert steps_of(fault) == steps


def test_the_faults_use_every_script_and_no_other() -> None:
    words = (*AGENTS["native"].invalid, *AGENTS["native"].unending)
    assert {word.removeprefix("FAULT:").partition("=")[0] for word in words} == set(FAULT_SCRIPTS)
    with pytest.raises(KeyError):
        fault_word("kindness")
