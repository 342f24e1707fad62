"""Writing: whole or not at all, and never over what somebody else has changed unseen."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.tools.base import ToolError
from agent.tools.files import replace_content
from agent.tools.paths import resolve_path
from agent.tools.read import ReadTool
from agent.tools.write import WriteTool
from tests.agent.tools.using import Bench


def names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


async def test_what_is_written_is_read(bench: Bench, workspace: Path) -> None:
    text = "line one\nz\u2028w\r\n"
    output = await bench.use(WriteTool(), path="deep/er/file.txt", content=text)
    assert output.text == "wrote 16 bytes to deep/er/file.txt (created)"
    assert output.details == {"path": f"{bench.context.cwd}/deep/er/file.txt", "bytes": 16}
    assert await bench.text(ReadTool(), path="deep/er/file.txt") == text
    assert names(workspace / "deep/er") == ["file.txt"]


async def test_the_mode_of_an_existing_file_is_kept(bench: Bench, workspace: Path) -> None:
    script = workspace / "run.sh"
    script.write_text("old")
    script.chmod(0o750)
    assert (await bench.text(WriteTool(), path="run.sh", content="new")).endswith("(replaced)")
    assert (script.read_text(), stat.S_IMODE(script.stat().st_mode)) == ("new", 0o750)


async def test_what_is_no_file_is_not_replaced(bench: Bench, workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")
    (workspace / "folder").mkdir()
    (workspace / "file").touch()
    for path, message in (
        (".", "is a directory"),
        ("folder", "folder is a directory, not a file"),
        ("pipe", "pipe is a named pipe, not a file"),
        ("new/", "new/ ends like a directory"),
        ("file/below", "cannot write file/below: Not a directory"),
        ("x" * 256, "File name too long"),
    ):
        with pytest.raises(ToolError, match=message):
            await bench.use(WriteTool(), path=path, content="x")
    assert names(workspace) == ["file", "folder", "pipe"]


async def test_half_characters_are_refused_before_anything_is_written(bench: Bench, workspace: Path) -> None:
    with pytest.raises(ToolError, match="content: the character at index 2"):
        await bench.use(WriteTool(), path="file", content="ab\udc80")
    assert names(workspace) == []


async def test_a_file_that_someone_changed_since_it_was_read_is_not_overwritten(bench: Bench, workspace: Path) -> None:
    (workspace / "file").write_text("one")
    await bench.use(ReadTool(), path="file")
    (workspace / "file").write_text("two")
    with pytest.raises(ToolError, match="changed by someone else") as caught:
        await bench.use(WriteTool(), path="file", content="mine")
    assert caught.value.retryable
    assert (workspace / "file").read_text() == "two"
    await bench.use(ReadTool(), path="file")
    await bench.use(WriteTool(), path="file", content="mine")
    await bench.use(WriteTool(), path="file", content="mine again")
    assert (workspace / "file").read_text() == "mine again"


async def test_a_file_that_someone_removed_is_made_anew(bench: Bench, workspace: Path) -> None:
    await bench.use(WriteTool(), path="file", content="one")
    (workspace / "file").unlink()
    await bench.use(WriteTool(), path="file", content="two")
    assert (workspace / "file").read_text() == "two"


def test_a_change_at_the_last_moment_is_seen(bench: Bench, workspace: Path) -> None:
    (workspace / "file").write_text("one")
    before = (workspace / "file").stat()
    (workspace / "file").write_text("theirs")
    with pytest.raises(ToolError, match="changed by someone else"):
        replace_content(resolve_path(bench.context, "file"), b"mine", expected=before)
    assert (workspace / "file").read_text() == "theirs"
    assert names(workspace) == ["file"]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back_byte_for_byte(bench: Bench, workspace: Path, content: str) -> None:
    replace_content(resolve_path(bench.context, "file"), content.encode())
    assert (workspace / "file").read_bytes() == content.encode()
