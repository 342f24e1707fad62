"""The list of what is to be done."""

from typing import Any

import pytest

from agent.tools.base import ToolError, decode_arguments
from agent.tools.todo import TodoTool, latest_todos
from tests.agent.tools.using import Bench
from wire.entries import TextBlock, ToolResultBlock, ToolUseBlock, TranscriptMessage

Todos = list[dict[str, str]]

ONE = {"id": "1", "text": "look", "status": "completed"}
TWO = {"id": "2", "text": "leap"}


@pytest.fixture
def told() -> list[Todos]:
    return []


@pytest.fixture
def tool(told: list[Todos]) -> TodoTool:
    return TodoTool(lambda _name, data: told.append(data["todos"]))


async def test_a_list_is_replaced_shown_and_told(bench: Bench, tool: TodoTool, told: list[Todos]) -> None:
    assert await bench.text(tool) == "The list is empty."
    output = await bench.use(tool, todos=[ONE, TWO])
    assert output.text == "[x] 1: look\n[ ] 2: leap"
    assert output.details == {"todos": [ONE, TWO | {"status": "pending"}]}
    assert told == [[ONE, TWO | {"status": "pending"}]]
    assert await bench.text(tool) == output.text
    await bench.use(tool, todos=[ONE, TWO])
    assert len(told) == 1  # nothing has changed
    await bench.use(tool, todos=[])
    assert told[1:] == [[]]


@pytest.mark.parametrize(
    ("todos", "message"),
    [
        ([ONE, ONE], "the id '1' is used more than once"),
        ([{"id": str(number), "text": "x"} for number in range(101)], "101 items, more than 100"),
    ],
)
async def test_a_list_that_is_none_changes_nothing(
    bench: Bench, tool: TodoTool, told: list[Todos], todos: list[dict[str, str]], message: str
) -> None:
    with pytest.raises(ToolError, match=message):
        await bench.use(tool, todos=todos)
    assert (tool.todos, told) == ([], [])


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ({"id": "1"}, r"todos\[0\]: object missing required field `text`"),
        ({"id": "", "text": "x"}, r"todos\[0\]\.id: expected `str` of length >= 1"),
        ({"id": "1", "text": "x", "status": "done"}, r"todos\[0\]\.status: invalid enum value 'done'"),
    ],
)
def test_an_item_that_is_none_is_told(tool: TodoTool, item: dict[str, str], problem: str) -> None:
    with pytest.raises(ToolError, match=problem):
        decode_arguments(tool, {"todos": [item]})


def call(number: int, todos: Any, *, ok: bool = True) -> list[TranscriptMessage]:
    return [
        TranscriptMessage("assistant", [TextBlock("so"), ToolUseBlock(f"c{number}", "todo", {"todos": todos})]),
        TranscriptMessage("user", [ToolResultBlock(f"c{number}", {}, is_error=not ok)], origin="tool"),
    ]


@pytest.mark.parametrize(
    ("messages", "ids"),
    [
        ([], []),
        (call(1, [ONE]), ["1"]),
        ([*call(1, [ONE]), *call(2, [TWO])], ["2"]),
        ([*call(1, [ONE]), *call(2, [TWO], ok=False)], ["1"]),
        ([*call(1, [ONE]), *call(2, None)], ["1"]),
        ([*call(1, [ONE]), *call(2, "nonsense")], ["1"]),
        ([*call(1, [ONE]), *call(2, [])], []),
    ],
)
def test_a_conversation_taken_up_again_has_its_list(messages: list[TranscriptMessage], ids: list[str]) -> None:
    assert [todo.id for todo in latest_todos(messages)] == ids


async def test_a_resumed_list_is_gone_on_with(bench: Bench, tool: TodoTool, told: list[Todos]) -> None:
    tool.todos = latest_todos(call(1, [ONE]))
    assert await bench.text(tool) == "[x] 1: look"
    assert told == []
