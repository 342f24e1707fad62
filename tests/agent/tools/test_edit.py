"""The tool ``edit`` on real files."""

import os
import stat
from pathlib import Path

import pytest
import trio

from agent.tools.base import ToolError
from agent.tools.edit import EditTool
from agent.tools.file_state import HASHED_BYTES
from agent.tools.read import ReadTool
from tests.agent.tools.using import Bench


async def test_an_edit_keeps_bytes_line_ends_and_mode_and_shows_a_diff(bench: Bench, workspace: Path) -> None:
    file = workspace / "file"
    file.write_bytes(b"\xef\xbb\xbfone\r\ntwo \xe9\r\nthree\r\n")
    file.chmod(0o640)
    output = await bench.use(EditTool(), path="file", edits=[{"old_text": "one\ntwo", "new_text": "1\n2\n2b"}])
    assert file.read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n2b \xe9\r\nthree\r\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert output.text == "edited file at line 1"
    assert output.details["diff"].split("\n") == [
        "@@ -1,3 +1,4 @@",
        "-\ufeffone",
        "-two \ufffd",
        "+\ufeff1",
        "+2",
        "+2b \ufffd",
        " three",
    ]
    assert await bench.files.find_changed() == []


async def test_several_edits_are_told_by_their_lines(bench: Bench, workspace: Path) -> None:
    (workspace / "file").write_text("a\n" * 12)
    edits = [{"old_text": "a", "new_text": "b", "replace_all": True}]
    text = await bench.text(EditTool(), path="file", edits=edits)
    assert text == "edited file in 12 places, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ..."
    assert (workspace / "file").read_text() == "b\n" * 12


async def test_one_bad_edit_and_nothing_is_changed(bench: Bench, workspace: Path) -> None:
    (workspace / "file").write_text("one two")
    edits = [{"old_text": "one", "new_text": "1"}, {"old_text": "three", "new_text": "3"}]
    with pytest.raises(ToolError, match=r"file: edits\[1\].old_text does not occur .*; nothing was changed") as caught:
        await bench.use(EditTool(), path="file", edits=edits)
    assert (caught.value.error_type, caught.value.recommendations != []) == ("logical", True)
    assert (workspace / "file").read_text() == "one two"


async def test_a_file_changed_since_it_was_read_is_not_edited(bench: Bench, workspace: Path) -> None:
    edits = [{"old_text": "one", "new_text": "1"}]
    (workspace / "file").write_text("one two")
    await bench.use(ReadTool(), path="file")
    (workspace / "file").write_text("one three")
    with pytest.raises(ToolError, match="changed by someone else since you last read it; nothing was written"):
        await bench.use(EditTool(), path="file", edits=edits)
    await bench.use(ReadTool(), path="file")
    await bench.use(EditTool(), path="file", edits=edits)
    assert (workspace / "file").read_text() == "1 three"


async def test_edits_of_one_file_at_the_same_time_are_all_made(bench: Bench, workspace: Path) -> None:
    (workspace / "file").write_text(" ".join(f"<{number}>" for number in range(20)))
    async with trio.open_nursery() as nursery:
        for number in range(20):

            async def edit(number: int = number) -> None:
                await bench.use(EditTool(), path="file", edits=[{"old_text": f"<{number}>", "new_text": f"{number}"}])

            nursery.start_soon(edit)
    assert (workspace / "file").read_text() == " ".join(map(str, range(20)))


async def test_what_cannot_be_edited_is_refused(bench: Bench, workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")
    (workspace / "file").write_text("x")
    with (workspace / "huge").open("wb") as huge:
        huge.truncate(HASHED_BYTES + 1)
    (workspace / "full").write_text("a" + "." * (HASHED_BYTES - 1))
    for path, old, new, message in (
        ("none", "a", "b", "cannot edit none: No such file"),
        ("pipe", "a", "b", "named pipe"),
        (".", "a", "b", "directory"),
        ("huge", "a", "b", "huge has more than 8388608 bytes"),
        ("file", "x", "\udc80", r"edits\[0\].new_text: the character at index 0"),
        ("full", "a", "abc", "would have 8388610 characters"),
    ):
        edits = [{"old_text": old, "new_text": new, "replace_all": True}]
        with pytest.raises(ToolError, match=message):
            await bench.use(EditTool(), path=path, edits=edits)
    assert (workspace / "file").read_text() == "x"
