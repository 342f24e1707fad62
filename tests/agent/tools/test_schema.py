"""What a model is told of a tool's input, and of an input that does not fit."""

from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools.base import Tool, ToolContext, ToolError, decode_arguments


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: Annotated[str, msgspec.Meta(min_length=1)]


class Input(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, msgspec.Meta(description="The file")]
    count: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1
    mode: Literal["fast", "slow"] = "fast"
    parts: Annotated[list[Part], msgspec.Meta(min_length=1)] = []
    deep: bool = False
    size: float | None = None


class Sample(Tool):
    name = "sample"
    description = ""
    input_type = Input

    async def run(self, arguments: Input, context: ToolContext) -> str:
        return f"{arguments} {context}"


def test_a_schema_is_in_one_piece() -> None:
    schema = Sample().schema
    assert "$ref" not in msgspec.json.encode(schema).decode()
    assert schema["type"] == "object"
    assert schema["required"] == ["path"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["path"] == {"type": "string", "description": "The file"}
    assert schema["properties"]["parts"]["items"]["properties"] == {"text": {"type": "string", "minLength": 1}}


@pytest.mark.parametrize(
    ("given", "problems"),
    [
        ({}, "path is missing (a string)"),
        ({"path": 5}, "path must be a string, and is 5"),
        ({"path": "a", "count": 0}, "count must be an integer, at least 1, at most 9, and is 0"),
        ({"path": "a", "count": "many"}, 'count must be an integer, at least 1, at most 9, and is "many"'),
        ({"path": "a", "mode": "mild"}, 'mode must be one of "fast", "slow", and is "mild"'),
        ({"path": "a", "parts": []}, "parts must be an array, at least 1 items, and is []"),
        ({"path": "a", "parts": [{"text": "x"}, {"tex": "y"}]}, "parts[1]: object contains unknown field `tex`"),
        ({"path": "a", "parts": [{"text": ""}]}, "parts[0].text: expected `str` of length >= 1"),
        ({"path": "a", "deep": "perhaps"}, 'deep must be true or false, and is "perhaps"'),
        ({"path": "a", "size": []}, "size must be a number or null, and is []"),
        (
            {"file": "a", "count": None},
            '"file" is no field of it; path is missing (a string); count must be an integer',
        ),
        ([], "it must be an object, and is []"),
        ("path", 'it must be an object, and is "path"'),
        (None, "it must be an object, and is null"),
        ({"path": {"x" * 200: 1}}, f'path must be a string, and is {{"{"x" * 78}...'),
    ],
)
def test_an_error_names_each_field_what_was_given_and_what_would_do(given: Any, problems: str) -> None:
    with pytest.raises(ToolError) as caught:
        decode_arguments(Sample(), given)
    assert str(caught.value).removeprefix("the input does not fit the tool sample: ").startswith(problems)
    assert caught.value.error_type == "validation"
    (advice,) = caught.value.recommendations
    assert advice.startswith("sample takes {path: a string; count?: an integer, at least 1, at most 9; mode?: one of ")


def test_numbers_and_booleans_may_come_as_text() -> None:
    assert decode_arguments(Sample(), {"path": "a", "count": "5", "deep": "true"}) == Input("a", 5, deep=True)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["path", "count", "mode", "parts", "deep", "size", "x"]), _json))
def test_any_input_is_taken_or_refused_in_words_that_can_be_sent(given: dict[str, Any]) -> None:
    try:
        arguments = decode_arguments(Sample(), given)
    except ToolError as error:
        assert str(error).encode()  # noqa: PT017 - most inputs are taken, or not, by chance
    else:
        assert isinstance(arguments, Input)
