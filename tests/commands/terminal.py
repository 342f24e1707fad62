"""A terminal, or a file, as a view writes to it; and what a renderable looks like on it."""

from rich.console import Console, RenderableType

from tests.wire.terminals import Terminal

__all__ = ["Terminal", "draw"]


def draw(view: RenderableType, width: int = 140, *, crop: bool = True) -> str:
    """The view without colours, and without spaces at the end of a line."""
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as captured:
        console.print(view, crop=crop)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
