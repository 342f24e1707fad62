"""System prompts of a worker as private files: its arguments, which every user can read, hold their names."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from errors import WorkerStartFailed
from wire.files import replace_file

PROMPT_DIR = "prompts"
"""Where they lie in the data directory."""


class PromptArgument(msgspec.Struct, frozen=True):
    """The text that belongs at index ``at`` of the arguments, and what stands there before its file's path."""

    at: int
    text: str
    prefix: str = ""

    def __repr__(self) -> str:
        return f"PromptArgument({self.at}, {len(self.text)} characters)"


@contextmanager
def prompt_files(
    worker_id: str, argv: tuple[str, ...], prompts: tuple[PromptArgument, ...], directory: Path
) -> Iterator[tuple[str, ...]]:
    """``argv`` with its prompts in files of ``directory``, which are removed at the end. Raises WorkerStartFailed."""
    words, written = list(argv), list[Path]()
    try:
        for prompt in prompts:
            path = (directory / f"{worker_id}-{prompt.at}.md").absolute()
            _write(path, prompt.text)
            written.append(path)
            words[prompt.at] = f"{prompt.prefix}{path}"
        yield tuple(words)
    finally:
        for path in written:
            path.unlink(missing_ok=True)


def remove_leftover_prompts(directory: Path) -> None:
    """Remove what workers of a killed supervisor left; call it when none of them is left."""
    for path in directory.glob("*.md"):
        with suppress(OSError):  # not a file of ours
            path.unlink()


def _write(path: Path, text: str) -> None:
    try:
        replace_file(path, os.fsencode(text))
    except OSError as exc:
        raise WorkerStartFailed(f"the system prompt cannot be written to {path}: {exc.strerror}") from exc
