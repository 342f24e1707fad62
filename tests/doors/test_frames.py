"""What is said over the control socket is one line, whatever it holds."""

import json
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from doors.control.frames import encode_error, encode_push, encode_result
from errors import UsageError

BREAKS = st.sampled_from(["\r\n", *'\n\r\u2028\u2029\x85\x0b\x0c\x1c"\\ä'])
TEXTS = st.lists(BREAKS | st.text(max_size=3), max_size=5).map("".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


@st.composite
def raws(draw: st.DrawFn) -> msgspec.Raw:
    """JSON as it may come from elsewhere: indented, with line ends of any system, with or without escapes."""
    text = json.dumps(draw(VALUES), indent=draw(st.sampled_from([None, 2])), ensure_ascii=draw(st.booleans()))
    return msgspec.Raw(text.replace("\n", draw(st.sampled_from(["\n", "\r\n", "\r"]))).encode())


RESULTS = st.recursive(VALUES | raws(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner))


def plain(value: Any) -> Any:
    """What a result means."""
    match value:
        case msgspec.Raw():
            return json.loads(bytes(value))
        case list():
            return [plain(each) for each in value]
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case _:
            return value


def said(line: bytes) -> Any:
    """What is read from it, by a reader that ends lines wherever text may end them."""
    assert line.endswith(b"\n")
    assert len(line.decode().splitlines()) == 1
    return json.loads(line)


@given(result=RESULTS)
@example(result=msgspec.Raw(b'{\n  "pool": {\r\n    "max": 4\n  }\n}'))
@example(result=msgspec.Raw('"a\u2028b\u2029c\x85d"'.encode()))
def test_s11_every_answer_and_push_is_one_line_with_the_same_meaning(result: Any) -> None:
    assert said(encode_result(7, result)) == {"id": 7, "result": plain(result)}
    assert said(encode_push("event", {"data": result}))["data"] == {"data": plain(result)}
    refusal = said(encode_error(7, UsageError("no\u2028\n", found=[result])))
    assert refusal["error"]["data"] == {"found": [plain(result)]}
