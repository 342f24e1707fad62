import msgspec
import pytest

from rpc.native import NativeDialect
from wire.messages import Message


def receive(dialect: NativeDialect, *lines: bytes) -> list[Message]:
    return dialect.receive(b"".join(line + b"\n" for line in lines), 0.0).messages


def ask(dialect: NativeDialect, request_id: str, method: str, params: bytes = b"{}") -> bytes:
    [line] = dialect.request(request_id, method, msgspec.Raw(params), 0.0).outgoing
    return line


def test_a_request_is_written_as_one_line_of_json() -> None:
    line = ask(NativeDialect(), "17", "prompt", b'{"text":"hi"}')
    assert line == b'{"id":"17","method":"prompt","params":{"text":"hi"}}\n'


def test_odd_method_names_cannot_break_out_of_the_line() -> None:
    line = ask(NativeDialect(), "1", 'x","y":"\n')
    assert line.count(b"\n") == 1
    assert msgspec.json.decode(line)["method"] == 'x","y":"\n'


def test_events_and_answers_pass_through_in_order() -> None:
    messages = receive(NativeDialect(), b'{"event":"a","data":{"x":1}}', b'{"id":"1","result":null}', b'{"event":"b"}')
    assert [(message.event, message.id) for message in messages] == [("a", None), (None, "1"), ("b", None)]
    assert bytes(messages[0].data) == b'{"x":1}'


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b'{"id":"1"}',
        b'{"id":"1","error":null}',
        b'{"id":null,"result":1}',
        b'{"result":1}',
        b'{"method":"prompt","params":{}}',
        b'{"event":"a","id":"1"}',
        b'{"event":null}',
        b'{"id":"1","error":{"message":"no code"}}',
        b'{"event":"ready","data":[]}',
        b'{"event":"ready","data":{"pid":"seven"}}',
        b'{"event":"background"}',
        b'{"event":"background","data":{"running":"many"}}',
        b'{"event":"exec_exit","data":{"summary":"of none"}}',
    ],
)
def test_what_is_neither_event_nor_answer_is_contamination(line: bytes) -> None:
    step = NativeDialect().receive(b'{"event":"before"}\n' + line + b'\n{"event":"after"}\n', 0.0)
    assert [message.event for message in step.messages] == ["before", "after"]
    assert step.invalid_lines == [line]
    assert (step.leading_run, step.longest_run, step.trailing_run) == (0, 1, 0)


def test_an_answer_to_a_line_that_the_worker_could_not_read_has_no_id() -> None:
    [message] = receive(NativeDialect(), b'{"id":null,"error":{"code":"parse_error"}}')
    assert message.error is not None
    assert message.error.code == "parse_error"


def test_unknown_events_and_members_are_let_through() -> None:
    [message] = receive(NativeDialect(), b'{"event":"of_tomorrow","data":[1],"result":2,"more":{"x":1}}')
    assert message.event == "of_tomorrow"


def test_a_turn_lasts_from_its_first_event_to_done() -> None:
    dialect = NativeDialect()
    ask(dialect, "1", "prompt")
    seen = [dialect.is_running]
    for line in (b'{"event":"run_start"}', b'{"event":"assistant_message"}', b'{"event":"done"}'):
        receive(dialect, line)
        seen.append(dialect.is_running)
    assert seen == [False, True, True, False]


@pytest.mark.parametrize("answer", [b'"result":{}', b'"error":{"code":"boom"}'])
def test_the_prompts_answer_ends_a_turn_too(answer: bytes) -> None:
    dialect = NativeDialect()
    ask(dialect, "1", "prompt")
    receive(dialect, b'{"event":"run_start"}')
    receive(dialect, b'{"id":"1",' + answer + b"}")
    assert not dialect.is_running


@pytest.mark.parametrize("answer", [b'{"id":"2","error":{"code":"busy"}}', b'{"id":"3","result":{}}'])
def test_a_refused_second_prompt_or_another_answer_does_not_end_the_first(answer: bytes) -> None:
    dialect = NativeDialect()
    ask(dialect, "1", "prompt")
    receive(dialect, b'{"event":"run_start"}')
    ask(dialect, "2", "prompt")
    ask(dialect, "3", "ping")
    receive(dialect, answer)
    assert dialect.is_running


def test_a_forgotten_prompt_leaves_nothing_behind_and_its_late_answer_passes_for_the_client_to_count() -> None:
    dialect = NativeDialect()
    ask(dialect, "1", "prompt")
    dialect.forget("1")
    assert dialect._prompts == set()
    assert [message.id for message in receive(dialect, b'{"id":"1","result":{}}')] == ["1"]


def test_it_has_no_times_of_its_own() -> None:
    dialect = NativeDialect()
    assert dialect.next_deadline() is None
    step = dialect.expire(0.0)
    assert (step.messages, step.outgoing, step.invalid_lines) == ([], [], [])


READY_LINE = b'{"event":"ready","data":{"protocol":1,"agent":"a"}}'
ANSWER, REFUSAL = b'{"id":"ready?","result":{"session_id":"s"}}', b'{"id":"ready?","error":{"code":"not_yet"}}'


@pytest.mark.parametrize(
    ("lines", "ready"),
    [
        ([ANSWER], [""]),
        ([READY_LINE, ANSWER], ["a"]),
        ([ANSWER, READY_LINE], ["", "a"]),
        ([ANSWER, ANSWER], [""]),
        ([REFUSAL], []),
        ([REFUSAL, READY_LINE], ["a"]),
    ],
)
def test_a_worker_that_answers_the_first_question_is_ready_whatever_else_it_says(
    lines: list[bytes], ready: list[str]
) -> None:
    dialect = NativeDialect()
    [question] = dialect.open(0.0).outgoing
    assert msgspec.json.decode(question) == {"id": "ready?", "method": "get_state", "params": {}}
    told = receive(dialect, *lines)
    assert [(each.event, msgspec.json.decode(each.data)["agent"]) for each in told] == [("ready", a) for a in ready]
