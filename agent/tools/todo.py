"""Todo.

The tool ``todo``: the agent's own list of what is to be done, shown to whoever watches.

A conversation's list of what is to be done, before the tool that changes it is needed: told, and taken up again.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from agent.tools.base import Effects, ToolContext, ToolError, ToolOutput
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


class TodoTool:
    """Keeps one conversation's list; ``on_change`` is told each new one (for the event ``todo_changed``)."""

    name = "todo"
    description = (
        "Keep a list of what is to be done: give the whole list to replace it, or nothing to see it. For work of "
        "several steps; mark a step in_progress when you begin it and completed when it is done."
    )
    effects: ClassVar[Effects] = "none"
    timeout: ClassVar[float | None] = 60.0
    input_type = TodoInput

    def __init__(self, on_change: Callable[[Sequence[Todo]], None]) -> None:
        self._on_change = on_change
        self._todos: tuple[Todo, ...] = ()

    @property
    def todos(self) -> tuple[Todo, ...]:
        """The list as it is."""
        return self._todos

    def restore(self, todos: Sequence[Todo]) -> None:
        """Go on with a list from before (``latest_todos``), or with an empty one; nobody is told."""
        self._todos = tuple(todos)

    async def run(self, arguments: TodoInput, context: ToolContext) -> ToolOutput:  # noqa: ARG002 - the interface's
        """See the interface."""
        if arguments.todos is not None:
            _check(arguments.todos)
            if tuple(arguments.todos) != self._todos:
                self._todos = tuple(arguments.todos)
                self._on_change(self._todos)
        return ToolOutput(_text(self._todos), {"todos": [msgspec.to_builtins(todo) for todo in self._todos]})


def _check(todos: Sequence[Todo]) -> None:
    if len(todos) > 100:
        raise ToolError(f"todos: {len(todos)} items, more than 100; join some, or drop what is completed", "validation")
    twice = [name for name, count in Counter(todo.id for todo in todos).items() if count > 1]
    if twice:
        raise ToolError(f"todos: the id {twice[0]!r} is used more than once", "validation")


def _text(todos: Sequence[Todo]) -> str:
    if not todos:
        return "The list is empty."
    return "\n".join(f"{_MARKS[todo.status]} {todo.id}: {todo.text}" for todo in todos)


def latest_todos(messages: Sequence[TranscriptMessage]) -> list[Todo]:
    """The list as the last call that succeeded left it, for a conversation that is taken up again; pure."""
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


class LazyTodoTool:
    """Holds the tool ``todo`` together with the conversation that it belongs to; imports it late."""

    def __init__(self, say: Callable[[str, dict[str, Any]], Any]) -> None:
        self._emit = say
        self._tool: TodoTool | None = None
        self._messages: Sequence[TranscriptMessage] = ()

    def tool(self) -> "TodoTool":
        """The tool, with the list of the conversation."""
        if self._tool is None:
            self._tool = TodoTool(self._emit_change)
            self._restore(self._tool)
        return self._tool

    def resume(self, messages: Sequence[TranscriptMessage]) -> None:
        """Another conversation: go on with its list."""
        self._messages = messages
        if self._tool is not None:
            self._restore(self._tool)

    def _restore(self, tool: "TodoTool") -> None:

        tool.restore(latest_todos(self._messages))

    def _emit_change(self, todos: "Sequence[Todo]") -> None:
        self._emit("todo_changed", {"todos": [msgspec.to_builtins(todo) for todo in todos]})
