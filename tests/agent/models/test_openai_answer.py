"""Reading a chat-completions answer: the same pieces however the bytes are cut, and nothing that it cannot read."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.models.base import CallPiece, ModelError, Piece, StopPiece, TextPiece, ThinkingPiece, UsagePiece
from agent.models.openai_stream import AnswerLimits, StreamedAnswer, WholeAnswer

Json = dict[str, Any]
END = b"data: [DONE]\n\n"


def event(delta: Json | None = None, finish: str | None = None, **more: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: " + json.dumps({"id": "x", "choices": choices, **more}).encode() + b"\n\n"


def call(index: int | None, arguments: Any = None, **more: Any) -> bytes:
    function = {"arguments": arguments, **({"name": more.pop("name")} if "name" in more else {})}
    return event({"tool_calls": [{"index": index, **more, "function": function}]})


def joined(pieces: list[Piece]) -> list[Piece]:
    """The same pieces, whatever came at once."""
    result: list[Piece] = []
    for piece in pieces:
        last = result[-1] if result else None
        if isinstance(piece, TextPiece | ThinkingPiece):
            if type(piece) is type(last):
                assert isinstance(last, TextPiece | ThinkingPiece)
                result[-1] = type(piece)([*last.parts, *piece.parts])
                continue
            piece = type(piece)(list(piece.parts))  # noqa: PLW2901 - the same piece, its parts a list
        result.append(piece)
    return result


def read(*chunks: bytes, limits: AnswerLimits | None = None) -> list[Piece]:
    answer = StreamedAnswer(limits or AnswerLimits())
    pieces = [piece for chunk in chunks for piece in answer.feed(chunk)]
    return joined(pieces + answer.close())


def calls_of(*chunks: bytes) -> list[CallPiece]:
    return [piece for piece in read(*chunks, END) if isinstance(piece, CallPiece)]


# --- text -------------------------------------------------------------------------------------------------------------


def test_text_and_thought_come_in_order_and_are_counted() -> None:
    stream = [
        event({"role": "assistant", "content": ""}),
        event({"reasoning_content": "hm"}),
        event({"reasoning": ", well", "content": None}),
        event({"content": "he"}),
        event({"content": "llo", "tool_calls": None}),
        event({}, "stop"),
        event(usage={"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}),
        END,
    ]
    assert read(*stream) == [ThinkingPiece(["hm", ", well"]), TextPiece(["he", "llo"]), UsagePiece(3, 2)]


def test_deltas_that_come_at_once_are_one_piece_with_many_parts() -> None:
    answer = StreamedAnswer(AnswerLimits())
    assert answer.feed(event({"content": "a"}) + event({"content": "b"})) == [TextPiece(["a", "b"])]
    assert answer.feed(event({"content": "c"})[:10]) == []


def test_a_sum_that_is_told_again_and_again_counts_once() -> None:
    stream = [event({"content": "a"}, usage={"prompt_tokens": 3, "completion_tokens": n}) for n in (1, 2)]
    assert read(*stream, END)[-1] == UsagePiece(3, 2)


def test_content_may_come_in_parts() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "hello"}]
    assert read(event({"content": [*parts, {"type": "reference"}, "?"]}), END) == [
        ThinkingPiece(["hm"]),
        TextPiece(["hello"]),
    ]


def test_a_refusal_is_what_the_model_says() -> None:
    assert read(event({"refusal": "I will not."}), END) == [TextPiece(["I will not."])]


def test_half_a_character_spoils_nothing_else() -> None:
    stream = [rb'data: {"choices": [{"delta": {"content": "a\ud83d \ud83d\ude00 \\ud83d"}}]}' + b"\n\n", END]
    assert read(*stream) == [TextPiece(["a\ufffd \U0001f600 \\ud83d"])]


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [[END], [event({}, "stop")], [event({}, "stop").rstrip(b"\n")], [END.strip()]])
def test_an_answer_ends_with_its_last_word_or_its_reason(ending: list[bytes]) -> None:
    assert read(event({"content": "a"}), *ending) == [TextPiece(["a"])]


@pytest.mark.parametrize("stream", [[], [b": hello\n\n"], [event({"content": "a"})], [event({"content": "a"})[:-9]]])
def test_a_stream_that_is_cut_is_an_error_that_may_pass(stream: list[bytes]) -> None:
    with pytest.raises(ModelError) as failure:
        read(*stream)
    assert failure.value.transient


def test_what_comes_after_the_last_word_is_passed_over() -> None:
    assert read(event({"content": "a"}), END + b"data: rubbish\n\n") == [TextPiece(["a"])]


def test_an_answer_that_was_cut_at_its_length_says_so() -> None:
    assert read(event({"content": "a"}, "length"), END) == [TextPiece(["a"]), StopPiece("length")]


def test_a_content_filter_is_an_error_after_what_it_let_through() -> None:
    answer = StreamedAnswer(AnswerLimits())
    assert answer.feed(event({"content": "a"}) + event({}, "content_filter") + END) == [TextPiece(["a"])]
    with pytest.raises(ModelError, match="content filter") as failure:
        answer.close()
    assert not failure.value.transient


@pytest.mark.parametrize(
    ("stream", "message", "transient"),
    [
        (b"data: {nonsense\n\n", "cannot be read", False),
        (b"data: [1]\n\n", "cannot be read", False),
        (b"data: \xff\n\n", "cannot be read", False),
        (b"data: " + b'{"error":' * 100_000 + b"\n\n", "cannot be read", False),
        (b'data: {"choices": [{"delta": {"content": 5}}]}\n\n', "cannot be read", False),
        (event(error={"message": "overloaded", "code": 503}), "failed: overloaded", True),
        (event(error={"message": "no such tool", "code": "invalid"}), "failed: no such tool", False),
        (event(error="out of order"), "failed: out of order", False),
    ],
)
def test_what_is_no_piece_of_an_answer_is_an_error(stream: bytes, message: str, *, transient: bool) -> None:
    with pytest.raises(ModelError, match=message) as failure:
        read(stream, END)
    assert failure.value.transient == transient
    assert len(str(failure.value)) < 400


def test_everything_is_bounded() -> None:
    for stream, limits in (
        ([event({"content": "x" * 300})], AnswerLimits(event_bytes=200)),
        ([event({"content": "x" * 10})] * 30, AnswerLimits(answer_chars=200)),
        ([call(0, "x" * 10)] * 30, AnswerLimits(answer_chars=200)),
        ([call(index, {"path": "x" * 10}) for index in range(30)], AnswerLimits(answer_chars=200)),
        ([call(index, "") for index in range(200)], AnswerLimits()),
    ):
        with pytest.raises(ModelError, match=r"too much at once|longer than 200|more than 128"):
            read(*stream, END, limits=limits)


# --- tool calls -------------------------------------------------------------------------------------------------------


def test_a_call_is_put_together_from_its_pieces() -> None:
    stream = [call(0, "", id="c1", type="function", name="read"), call(0, '{"pa'), call(0, 'th": "a"}')]
    assert calls_of(*stream) == [CallPiece("read", {"path": "a"})]


def test_the_name_of_a_call_is_cut_to_a_length_that_can_be_told_again_and_again() -> None:
    (made,) = calls_of(call(0, "{}", id="i" * 1000, name="n" * 1000))
    assert made.name == "n" * 200


def test_calls_whose_pieces_are_mixed_are_told_apart_by_index() -> None:
    stream = [
        call(1, '{"b"', id="c2", name="two"),
        call(0, '{"a"', id="c1", name="one"),
        call(1, ": 2}"),
        call(0, ": 1}"),
    ]
    assert calls_of(*stream) == [CallPiece("two", {"b": 2}), CallPiece("one", {"a": 1})]


def test_calls_that_all_have_index_0_are_told_apart_by_id() -> None:
    stream = [call(0, '{"a": 1}', id="c1", name="one"), call(0, '{"b": 2}', id="c2", name="one")]
    assert calls_of(*stream) == [CallPiece("one", {"a": 1}), CallPiece("one", {"b": 2})]


def test_calls_without_an_index_are_told_apart_by_id_or_name() -> None:
    by_id = [call(None, '{"a"', id="c1", name="x"), call(None, "{", id="c2", name="x"), call(None, ": 1}", id="c1")]
    assert [piece.input for piece in calls_of(*by_id, call(None, "}", id="c2"))] == [{"a": 1}, {}]
    by_name = [call(None, "{}", name="x"), call(None, '{"b"', name="y"), call(None, ": 2}")]
    assert calls_of(*by_name) == [CallPiece("x", {}), CallPiece("y", {"b": 2})]


def test_an_id_that_comes_with_every_piece_is_one_call() -> None:
    stream = [call(0, '{"a"', id="c1", name="x"), call(0, ": 1}", id="c1", name="x")]
    assert calls_of(*stream) == [CallPiece("x", {"a": 1})]


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        (None, {}),
        ("", {}),
        (" \n", {}),
        ({"a": 1}, {"a": 1}),
        ('{"a": 1', '{"a": 1'),
        ("[" * 100_000, "[" * 100_000),
        ("[1]", [1]),
        ("null", None),
    ],
)
def test_arguments_are_decoded_or_passed_on_as_they_are(arguments: Any, given: Any) -> None:
    assert calls_of(call(0, arguments, id="c1", name="x"))[0].input == given


def test_a_last_call_whose_arguments_were_cut_off_is_not_one_without_arguments() -> None:
    stream = [call(0, "", id="c1", name="x"), call(1, "", id="c2", name="x")]
    assert [piece.input for piece in calls_of(*stream)] == [{}, {}]
    assert [piece.input for piece in calls_of(*stream, event({}, "length"))] == [{}, ""]


# --- however it is cut ------------------------------------------------------------------------------------------------

_texts = st.text(min_size=1, max_size=8)
_deltas = st.one_of(
    _texts.map(lambda text: event({"content": text})),
    _texts.map(lambda text: event({"reasoning_content": text})),
    _texts.map(lambda text: b": " + text.encode().translate(None, b"\r\n") + b"\n"),
    st.tuples(st.integers(0, 2), _texts).map(lambda part: call(part[0], part[1], id=f"c{part[0]}", name="x")),
    st.just(b"\r\n\r\n"),
    st.just(event({"content": "a"}).replace(b"\n", b"\r\n")),
)


@given(st.lists(_deltas, max_size=12), st.sampled_from([END, event({}, "length"), event({}, "stop") + END]), st.data())
def test_however_the_bytes_are_cut_the_pieces_are_the_same(
    deltas: list[bytes], end: bytes, data: st.DataObject
) -> None:
    stream = b"".join([*deltas, end])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    chunks = [stream[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert read(*chunks) == read(stream) == read(*(bytes([byte]) for byte in stream))


# --- as a whole -------------------------------------------------------------------------------------------------------


def whole(body: Json, limit: int = 10_000) -> list[Piece]:
    answer = WholeAnswer(AnswerLimits(event_bytes=limit))
    data = json.dumps(body).encode()
    assert answer.feed(data[:20]) == answer.feed(data[20:]) == []
    return answer.close()


def test_an_answer_as_a_whole_has_the_same_pieces() -> None:
    function = {"name": "x", "arguments": '{"a": 1}'}
    message = {"content": "hello", "tool_calls": [{"id": "c1", "type": "function", "function": function}]}
    body = {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": -5}}
    assert whole(body) == [TextPiece(["hello"]), CallPiece("x", {"a": 1}), UsagePiece(0, 0)]


def test_a_whole_answer_is_bounded_and_may_be_an_error() -> None:
    with pytest.raises(ModelError, match="more than 30 bytes"):
        whole({"choices": [], "filler": "x" * 100}, limit=30)
    with pytest.raises(ModelError, match="no luck"):
        whole({"error": {"message": "no luck"}})
