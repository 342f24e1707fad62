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


def text(content: Any) -> bytes:
    return event({"content": content})


def call(index: int | None, arguments: Any = None, **more: Any) -> bytes:
    function = {"arguments": arguments, **({"name": more.pop("name")} if "name" in more else {})}
    return event({"tool_calls": [{"index": index, **more, "function": function}]})


def usage(given: int, made: int) -> bytes:
    return event(usage={"prompt_tokens": given, "completion_tokens": made})


def joined(pieces: list[Piece]) -> list[Piece]:
    """The same pieces, whatever came at once."""
    result: list[Piece] = []
    for piece in pieces:
        last = result[-1] if result else None
        if isinstance(piece, TextPiece | ThinkingPiece):
            if isinstance(last, TextPiece | ThinkingPiece) and type(piece) is type(last):
                result[-1] = type(piece)([*last.parts, *piece.parts])
                continue
            piece = type(piece)(list(piece.parts))  # noqa: PLW2901 - the same piece, its parts a list
        result.append(piece)
    return result


def read(*chunks: bytes, limits: AnswerLimits | None = None) -> list[Piece]:
    answer = StreamedAnswer(limits or AnswerLimits())
    pieces = [piece for chunk in chunks for piece in answer.feed(chunk)]
    return joined(pieces + answer.close())


PARTS = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "hello"}]
HALF_A_CHARACTER = rb'data: {"choices": [{"delta": {"content": "a\ud83d \ud83d\ude00 \\ud83d"}}]}' + b"\n\n"
STOP = event({}, "stop")
BY_ID = [call(None, '{"a"', id="c1", name="x"), call(None, "{", id="c2", name="x"), call(None, ": 1}", id="c1")]
TWO_CALLS = [call(0, "", id="c1", name="x"), call(1, "", id="c2", name="x")]
ONE_A, ONE_B = CallPiece("x", {"a": 1}), CallPiece("y", {"b": 2})


@pytest.mark.parametrize(
    ("stream", "pieces"),
    [
        # thought, text and count
        (
            [
                *(event({"role": "assistant", "content": ""}), event({"reasoning_content": "hm"})),
                *(event({"reasoning": ", well", "content": None}), text("he")),
                *(event({"content": "llo", "tool_calls": None}), event({}, "stop"), usage(3, 2), END),
            ],
            [ThinkingPiece(["hm", ", well"]), TextPiece(["he", "llo"]), UsagePiece(3, 2)],
        ),
        ([usage(3, 1), usage(3, 2), END], [UsagePiece(3, 2)]),  # the last sum counts
        ([text([*PARTS, {"type": "reference"}, "?"]), END], [ThinkingPiece(["hm"]), TextPiece(["hello"])]),
        ([event({"refusal": "I will not."}), END], [TextPiece(["I will not."])]),
        ([HALF_A_CHARACTER, END], [TextPiece(["a\ufffd \U0001f600 \\ud83d"])]),
        # every way to end
        *(
            ([text("a"), ending], [TextPiece(["a"])])
            for ending in (END, STOP, STOP.rstrip(b"\n"), END.strip(), END + b"data: rubbish\n\n")
        ),
        ([event({"content": "a"}, "length"), END], [TextPiece(["a"]), StopPiece("length")]),
        # calls: in pieces; told apart by index, by id where all have index 0 or none has one, and by name
        ([call(0, "", id="c1", type="function", name="x"), call(0, '{"a'), call(0, '": 1}'), END], [ONE_A]),
        ([call(1, '{"b"', name="y"), call(0, '{"a"', name="x"), call(1, ": 2}"), call(0, ": 1}"), END], [ONE_B, ONE_A]),
        ([call(0, '{"a": 1}', id="c1", name="x"), call(0, '{"b": 2}', id="c2", name="y"), END], [ONE_A, ONE_B]),
        ([*BY_ID, call(None, "}", id="c2"), END], [ONE_A, CallPiece("x", {})]),
        (
            [call(None, "{}", name="x"), call(None, '{"b"', name="y"), call(None, ": 2}"), END],
            [CallPiece("x", {}), ONE_B],
        ),
        ([call(0, '{"a"', id="c1", name="x"), call(0, ": 1}", id="c1", name="x"), END], [ONE_A]),
        ([call(0, "{}", id="i" * 999, name="n" * 999), END], [CallPiece("n" * 200, {})]),
        # of a cut answer the last call's missing arguments are not "none"
        ([*TWO_CALLS, event({}, "length"), END], [CallPiece("x", {}), CallPiece("x", ""), StopPiece("length")]),
        *(
            ([call(0, arguments, id="c1", name="x"), END], [CallPiece("x", given)])
            for arguments, given in [
                *((None, {}), ("", {}), (" \n", {}), ({"a": 1}, {"a": 1}), ('{"a": 1', '{"a": 1')),
                *(("[" * 100_000, "[" * 100_000), ("[1]", [1]), ("null", None)),
            ]
        ),
    ],
)
def test_an_answer_is_read(stream: list[bytes], pieces: list[Piece]) -> None:
    assert read(*stream) == pieces


def test_deltas_that_come_at_once_are_one_piece_with_many_parts() -> None:
    answer = StreamedAnswer(AnswerLimits())
    assert answer.feed(text("a") + text("b")) == [TextPiece(["a", "b"])]
    assert answer.feed(text("c")[:10]) == []


@pytest.mark.parametrize("stream", [[], [b": hello\n\n"], [text("a")], [text("a")[:-9]]])
def test_a_stream_that_is_cut_is_an_error_that_may_pass(stream: list[bytes]) -> None:
    with pytest.raises(ModelError) as failure:
        read(*stream)
    assert failure.value.transient


def test_a_content_filter_is_an_error_after_what_it_let_through() -> None:
    answer = StreamedAnswer(AnswerLimits())
    assert answer.feed(text("a") + event({}, "content_filter") + END) == [TextPiece(["a"])]
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
    assert (failure.value.transient, len(str(failure.value)) < 400) == (transient, True)


@pytest.mark.parametrize(
    ("stream", "limits"),
    [
        ([text("x" * 300)], AnswerLimits(event_bytes=200)),
        ([text("x" * 10)] * 30, AnswerLimits(answer_chars=200)),
        ([call(0, "x" * 10)] * 30, AnswerLimits(answer_chars=200)),
        ([call(index, {"path": "x" * 10}) for index in range(30)], AnswerLimits(answer_chars=200)),
        ([call(index, "") for index in range(200)], AnswerLimits()),
    ],
)
def test_everything_is_bounded(stream: list[bytes], limits: AnswerLimits) -> None:
    with pytest.raises(ModelError, match=r"too much at once|longer than 200|more than 128"):
        read(*stream, END, limits=limits)


_texts = st.text(min_size=1, max_size=8)
_deltas = st.one_of(
    _texts.map(text),
    _texts.map(lambda said: event({"reasoning_content": said})),
    _texts.map(lambda said: b": " + said.encode().translate(None, b"\r\n") + b"\n"),
    st.tuples(st.integers(0, 2), _texts).map(lambda part: call(part[0], part[1], id=f"c{part[0]}", name="x")),
    st.just(b"\r\n\r\n"),
    st.just(text("a").replace(b"\n", b"\r\n")),
)


@given(st.lists(_deltas, max_size=12), st.sampled_from([END, event({}, "length"), event({}, "stop") + END]), st.data())
def test_however_the_bytes_are_cut_the_pieces_are_the_same(
    deltas: list[bytes], end: bytes, data: st.DataObject
) -> None:
    stream = b"".join([*deltas, end])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    chunks = [stream[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert read(*chunks) == read(stream) == read(*(bytes([byte]) for byte in stream))


def whole(body: Json, limit: int = 10_000) -> list[Piece]:
    answer = WholeAnswer(AnswerLimits(event_bytes=limit))
    data = json.dumps(body).encode()
    assert answer.feed(data[:20]) == answer.feed(data[20:]) == []
    return answer.close()


def test_an_answer_as_a_whole_has_the_same_pieces_is_bounded_and_may_be_an_error() -> None:
    function = {"name": "x", "arguments": '{"a": 1}'}
    message = {"content": "hello", "tool_calls": [{"id": "c1", "type": "function", "function": function}]}
    body = {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": -5}}
    assert whole(body) == [TextPiece(["hello"]), ONE_A, UsagePiece(0, 0)]
    with pytest.raises(ModelError, match="more than 30 bytes"):
        whole({"choices": [], "filler": "x" * 100}, limit=30)
    with pytest.raises(ModelError, match="no luck"):
        whole({"error": {"message": "no luck"}})
