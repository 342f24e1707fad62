"""The tool ``todo``: the agent's own task list, shown to front ends and restored with its conversation."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import msgspec

from agent.tools.base import Tool, ToolContext, ToolError, ToolOutput
from wire.entries import ToolResultBlock, TranscriptMessage

_MARKS = {"pending": "[ ]", "in_progress": "[~]", "completed": "[x]"}


class Todo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing to do."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=64, description="Yours to choose; unique in the list")]
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    status: Literal["pending", "in_progress", "completed"] = "pending"


class TodoInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``todos`` None: only show the list."""

    todos: Annotated[
        list[Todo] | None,
        msgspec.Meta(description="The whole list as it shall be, in order (at most 100); leave it out to see the list"),
    ] = None


class TodoTool(Tool):
    """One conversation's list; ``emit`` gets a ``todo_changed`` event for each new one."""

    name = "todo"
    description = (
        "Keep a list of what is to be done: give the whole list to replace it, or nothing to see it. For work of "
        "several steps; mark a step in_progress when you begin it and completed when it is done."
    )
    effects = "none"
    input_type = TodoInput

    def __init__(self, emit: Callable[[str, dict[str, Any]], Any]) -> None:
        self._emit = emit
        self.todos: list[Todo] = []

    async def run(self, arguments: TodoInput, context: ToolContext) -> ToolOutput:  # noqa: ARG002 - the interface's
        """Replace or show the list."""
        if arguments.todos is not None:
            _check(arguments.todos)
            if arguments.todos != self.todos:
                self.todos = arguments.todos
                self._emit("todo_changed", {"todos": msgspec.to_builtins(self.todos)})
        lines = [f"{_MARKS[todo.status]} {todo.id}: {todo.text}" for todo in self.todos]
        text = "\n".join(lines) or "The list is empty."
        return ToolOutput(text, {"todos": msgspec.to_builtins(self.todos)})


def _check(todos: Sequence[Todo]) -> None:
    if len(todos) > 100:
        raise ToolError(f"todos: {len(todos)} items, more than 100; join some, or drop what is completed", "validation")
    twice = [name for name, count in Counter(todo.id for todo in todos).items() if count > 1]
    if twice:
        raise ToolError(f"todos: the id {twice[0]!r} is used more than once", "validation")


def latest_todos(messages: Sequence[TranscriptMessage]) -> list[Todo]:
    """The list as the last successful call left it. Pure."""
    failed = {
        block.tool_use_id
        for message in messages
        for block in message.content
        if isinstance(block, ToolResultBlock) and block.is_error
    }
    for message in reversed(messages):
        for call in reversed(message.calls):
            if call.name == TodoTool.name and call.id not in failed:
                try:
                    arguments = msgspec.convert(call.input, TodoInput, strict=False)
                except msgspec.ValidationError:  # a call that is still open, and will fail
                    continue
                if arguments.todos is not None:
                    return arguments.todos
    return []
