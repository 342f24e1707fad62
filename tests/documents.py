"""The examples of the documents: what a reader copies, found by how it begins."""

import re
import shlex
from pathlib import Path

_ROOT = Path(__file__).parents[1]
README = (_ROOT / "README.md").read_text()
AGENT_PAGE = (_ROOT / "docs" / "agent.md").read_text()
OWN_AGENT_PAGE = (_ROOT / "docs" / "own-agent.md").read_text()


PAGES = {
    str(path.relative_to(_ROOT)): path.read_text()
    for path in (_ROOT / "README.md", *sorted((_ROOT / "docs").rglob("*.md")))
    if "decisions" not in path.parts
}
"""What people read, by its name in the checkout."""


def blocks(document: str, language: str) -> list[str]:
    """The fenced code blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", document, re.DOTALL | re.MULTILINE)


def commands_of(document: str, first: str) -> list[list[str]]:
    """The commands of the one block that begins so, without their comments."""
    (block,) = [text for text in blocks(document, "sh") if text.startswith(first)]
    return [shlex.split(line, comments=True) for line in block.splitlines()]


def example(document: str, name: str) -> str:
    """The file that the document shows under this name."""
    (text,) = re.findall(rf"<!-- example: {re.escape(name)} -->\n```\w+\n(.*?)^```", document, re.DOTALL | re.MULTILINE)
    return str(text)
