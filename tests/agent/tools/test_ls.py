"""Listing a directory."""

import os
from pathlib import Path

import pytest

from agent.tools.base import ToolError
from agent.tools.ls import LsTool
from tests.agent.tools.using import Bench


async def test_a_directory_is_listed_with_what_its_entries_are(bench: Bench, workspace: Path) -> None:
    (workspace / "sub").mkdir()
    for name in ("b.txt", "A.txt", ".hidden", "tab\there"):
        (workspace / name).touch()
    (workspace / "link").symlink_to("sub")
    (workspace / "loose").symlink_to("/nowhere")
    os.mkfifo(workspace / "pipe")
    output = await bench.use(LsTool())
    assert output.text.split("\n") == [
        ".hidden",
        "A.txt",
        "b.txt",
        "link -> sub",
        "loose -> /nowhere",
        "pipe (a named pipe)",
        "sub/",
        r"tab\x09here",
    ]
    assert output.details == {"path": bench.context.cwd, "entries": 8, "left_out": 0}
    assert await bench.text(LsTool(), path="sub") == "[The directory is empty.]"
    assert await bench.text(LsTool(), path="link") == "[The directory is empty.]"


async def test_what_is_left_out_is_counted(bench: Bench, workspace: Path) -> None:
    for number in range(30):
        (workspace / f"file-{number:02}").touch()
    text = await bench.text(LsTool(), limit=2)
    assert text == "file-00\nfile-01\n[28 of 30 names left out; set limit higher, or use find with a pattern]"


async def test_a_long_list_is_cut_and_kept_in_a_file_that_can_be_read(workspace: Path) -> None:
    bench = Bench(workspace, outputs=str(workspace.parent / "outputs"))
    for number in range(300):
        (workspace / f"{number:03}{'x' * 240}").touch()
    text = await bench.text(LsTool())
    (full,) = (workspace.parent / "outputs").iterdir()
    assert len(text) < 50_300
    assert str(full) in text
    assert len(full.read_text().split("\n")) == 300


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("file", "file is a file, not a directory"),
        ("pipe", "pipe is a named pipe, not a directory"),
        ("none", "cannot list none: No such file"),
        ("..", "outside the working directory"),
        ("out", "outside the working directory"),
    ],
)
async def test_what_cannot_be_listed_is_told(bench: Bench, workspace: Path, path: str, message: str) -> None:
    (workspace / "file").touch()
    (workspace / "out").symlink_to("/etc")
    os.mkfifo(workspace / "pipe")
    with pytest.raises(ToolError, match=message):
        await bench.use(LsTool(), path=path)
