"""What a renderable looks like on a terminal."""

from rich.console import Console, RenderableType


def draw(view: RenderableType, width: int = 140, *, crop: bool = True) -> str:
    """The view without colours, and without spaces at the end of a line."""
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as captured:
        console.print(view, crop=crop)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
