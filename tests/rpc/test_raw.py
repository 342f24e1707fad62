"""Lines that pass as they are: ids exchanged on the way in and restored on the way out, events for whoever listens."""

from typing import Any

import msgspec
import pytest

from errors import UsageError
from rpc.dialect import Dialect
from rpc.native import NativeDialect
from rpc.passthrough import RawLine, read_object
from rpc.pi.dialect import PiDialect
from rpc.settings import RpcSettings


def encode(*things: Any) -> bytes:
    return b"".join(msgspec.json.encode(thing) + b"\n" for thing in things)


def forward(dialect: Dialect, request_id: str, command: dict[str, Any]) -> list[dict[str, Any]]:
    step = dialect.forward(request_id, read_object(msgspec.json.encode(command)), 0.0)
    return [msgspec.json.decode(line) for line in step.outgoing]


def pi(*, allow_bash: bool = True) -> PiDialect:
    dialect = PiDialect(RpcSettings(), allow_bash=allow_bash)
    dialect.open(0.0)
    return dialect


def streams(dialect: Dialect) -> bool:
    return dialect.is_streaming


def raw(step: Any) -> list[tuple[Any, str | None]]:
    return [(msgspec.json.decode(line), request) for line, request, _ in step.raw]


# --- the native dialect -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", ["mine", 7, -1])
def test_an_answer_comes_back_under_the_id_that_was_given(own: Any) -> None:
    dialect = NativeDialect()
    assert forward(dialect, "41", {"id": own, "method": "ping", "odd": [1]}) == [
        {"id": "41", "method": "ping", "odd": [1]}
    ]
    step = dialect.receive(encode({"id": "41", "result": {"a": 1}}), 0.0)
    assert raw(step) == [({"id": own, "result": {"a": 1}}, "41")]
    assert [message.id for message in step.messages] == ["41"]


def test_who_gave_no_id_is_answered_only_where_it_is_refused() -> None:
    dialect = NativeDialect()
    forward(dialect, "1", {"method": "ping"})
    forward(dialect, "2", {"method": "nothing"})
    error = {"code": "unknown_method", "message": "no"}
    step = dialect.receive(encode({"id": "1", "result": {}}, {"id": "2", "error": error}), 0.0)
    assert raw(step) == [({"id": None, "error": error}, "2")]


def test_lines_are_handed_out_only_to_who_listens_and_never_what_is_none() -> None:
    dialect = NativeDialect()
    block = b'{"event":"done","data":{} }\nnoise\n\n{"event":"odd","data":{"\\ud83d":1}}\n{"event":"x","id":1}\n'
    assert dialect.receive(block, 0.0).raw == ()
    dialect.listen_raw(on=True)
    lines = block.split(b"\n")
    assert dialect.receive(block, 0.0).raw == (RawLine(lines[0], None), RawLine(lines[3], None))


def test_a_prompt_beside_another_is_told_from_one_that_begins() -> None:
    dialect = NativeDialect()
    assert not streams(dialect)
    forward(dialect, "1", {"id": 1, "method": "prompt", "params": {"text": "x"}})
    assert streams(dialect)
    dialect.receive(encode({"id": "1", "result": {}}), 0.0)
    assert not streams(dialect)


@pytest.mark.parametrize("command", [{"id": 1}, {"id": 1, "method": 5}, {"id": 1, "method": None}])
def test_what_names_no_method_is_not_passed_on(command: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        forward(NativeDialect(), "1", command)


@pytest.mark.parametrize("line", [b"null", b"[]", b"1", b'"x"', b"{", b"[" * 5000])
def test_only_an_object_is_a_request(line: bytes) -> None:
    with pytest.raises(UsageError):
        read_object(line)


def test_half_a_character_passes_both_ways() -> None:
    dialect = NativeDialect()
    command = read_object(rb'{"id":"h","method":"prompt","params":{"text":"\ud83d"}}')
    (sent,) = dialect.forward("1", command, 0.0).outgoing
    assert rb"\ud83d" in sent
    step = dialect.receive(b'{"id":"1","result":{"text":"\\ud83d"}}\n', 0.0)
    assert [line for line, *_ in step.raw] == [rb'{"id":"h","result":{"text": "\ud83d"}}']


# --- pi ---------------------------------------------------------------------------------------------------------------


def test_pi_is_sent_the_command_as_it_was_written() -> None:
    dialect = pi()
    command = {"id": {"odd": 1}, "type": "get_session_stats", "more": [1]}
    (sent,) = forward(dialect, "7", command)
    assert sent == {**command, "id": sent["id"]}
    answer = {"id": sent["id"], "type": "response", "command": "get_session_stats", "success": True, "data": {"n": 1}}
    step = dialect.receive(encode(answer), 0.0)
    assert raw(step) == [({**answer, "id": {"odd": 1}}, "7")]
    assert msgspec.json.decode(step.messages[0].result) == {"n": 1}


def test_a_prompt_of_pi_is_answered_twice_at_once_and_at_the_end_of_its_run() -> None:
    dialect = pi()
    (sent,) = forward(dialect, "7", {"type": "prompt", "message": "x"})
    step = dialect.receive(encode({"id": sent["id"], "type": "response", "command": "prompt", "success": True}), 0.0)
    assert raw(step) == [({"type": "response", "command": "prompt", "success": True}, "7")]
    assert step.messages == []
    assert dialect.is_running
    dialect.receive(encode({"type": "agent_start"}), 0.0)
    assert streams(dialect)
    step = dialect.receive(encode({"type": "agent_end", "messages": []}), 0.0)
    assert not streams(dialect)
    question = msgspec.json.decode(step.outgoing[0])
    state = {"sessionId": "s", "isStreaming": False}
    answer = {"id": question["id"], "type": "response", "command": "get_state", "success": True, "data": state}
    step = dialect.receive(encode(answer), 0.0)
    assert step.raw == ()
    assert [message.id for message in step.messages] == [None, "7"]


def test_a_new_conversation_in_a_run_ends_the_run_that_pi_says_no_more_of() -> None:
    dialect = pi()
    dialect.receive(encode({"type": "agent_start"}), 0.0)
    (sent,) = forward(dialect, "7", {"id": "n", "type": "new_session"})
    answer = {"id": sent["id"], "type": "response", "command": "new_session", "success": True}
    step = dialect.receive(encode({**answer, "data": {"cancelled": False}}), 0.0)
    assert not dialect.is_running
    assert [message.event for message in step.messages] == ["done", None]


@pytest.mark.parametrize("name", [None, 5])
def test_a_command_without_a_name_is_not_passed_on(name: Any) -> None:
    with pytest.raises(UsageError, match="a command has a type, which is a text"):
        forward(pi(), "1", {"type": name})


def test_a_shell_command_needs_the_tool() -> None:
    with pytest.raises(UsageError, match="no tool bash"):
        forward(pi(allow_bash=False), "1", {"type": "bash", "command": "x"})


def test_what_a_shell_command_prints_has_the_id_of_its_own_request_and_no_other_front_end_reads_an_id() -> None:
    dialect = pi()
    dialect.listen_raw(on=True)
    (mine,) = forward(dialect, "7", {"id": "req_1", "type": "bash", "command": "date"})
    (nameless,) = forward(dialect, "8", {"type": "bash", "command": "date"})
    own = dialect.request("9", "bash", msgspec.Raw(b'{"command":"date"}'), 0.0).outgoing[0]
    chunk = {"type": "bash_execution_update", "delta": "x"}
    ids = [mine["id"], nameless["id"], msgspec.json.decode(own)["id"], "stranger"]
    lines = dialect.receive(encode(*({**chunk, "id": identity} for identity in ids)), 0.0).raw
    decode = msgspec.json.decode
    assert [(decode(line), request, others and decode(others)) for line, request, others in lines] == [
        ({**chunk, "id": "req_1"}, "7", chunk),
        (chunk, "8", chunk),
        (chunk, None, None),
        ({**chunk, "id": "stranger"}, None, None),
    ]


def test_the_first_answer_to_a_dialog_wins() -> None:
    dialect = PiDialect(RpcSettings(), allow_bash=True, attended=lambda: True)
    dialect.listen_raw(on=True)
    asked = {"type": "extension_ui_request", "id": "d", "method": "confirm", "title": "Sure?"}
    assert raw(dialect.receive(encode(asked), 0.0)) == [(asked, None)]
    answer = {"type": "extension_ui_response", "id": "d", "confirmed": True}
    assert forward(dialect, "1", answer) == [answer]
    assert forward(dialect, "2", {**answer, "confirmed": False}) == []
