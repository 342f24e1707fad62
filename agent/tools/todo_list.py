"""A conversation's list of what is to be done, before the tool that changes it is needed: told, and taken up again."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from wire.entries import TranscriptMessage

if TYPE_CHECKING:
    from agent.tools.todo import Todo, TodoTool

__all__ = ["TodoList"]


class TodoList:
    """Holds the tool ``todo`` together with the conversation that it belongs to; imports it late."""

    def __init__(self, say: Callable[[str, dict[str, Any]], Any]) -> None:
        self._say = say
        self._tool: TodoTool | None = None
        self._messages: Sequence[TranscriptMessage] = ()

    def tool(self) -> "TodoTool":
        """The tool, with the list of the conversation."""
        from agent.tools.todo import TodoTool  # noqa: PLC0415 - a worker is ready before it has imported its tools

        if self._tool is None:
            self._tool = TodoTool(self._tell)
            self._restore(self._tool)
        return self._tool

    def resume(self, messages: Sequence[TranscriptMessage]) -> None:
        """Another conversation: go on with its list."""
        self._messages = messages
        if self._tool is not None:
            self._restore(self._tool)

    def _restore(self, tool: "TodoTool") -> None:
        from agent.tools.todo import todos_of  # noqa: PLC0415 - see above

        tool.restore(todos_of(self._messages))

    def _tell(self, todos: "Sequence[Todo]") -> None:
        self._say("todo_changed", {"todos": [msgspec.to_builtins(todo) for todo in todos]})
