"""Reading, writing, editing and listing real files: whole or not at all, never over what others changed unseen."""

import os
import socket
import stat
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.tools.base import Tool, ToolError
from agent.tools.edit import EditTool
from agent.tools.file_state import HASHED_BYTES
from agent.tools.files import replace_content
from agent.tools.ls import LsTool
from agent.tools.pages import MAX_BYTES
from agent.tools.paths import image_type, resolve_path
from agent.tools.read import MAX_IMAGE_BYTES, ReadTool
from agent.tools.write import WriteTool
from tests.agent.tools.using import Bench

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(100))
READ, WRITE, EDIT, LS = ReadTool(), WriteTool(), EditTool(), LsTool()


def names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


def one_edit(old: str, new: str, *, every: bool = False) -> dict[str, Any]:
    return {"edits": [{"old_text": old, "new_text": new, "replace_all": every}]}


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        *(
            (text.encode(), text)
            for text in ("one\ntwo\n", "no end", "\n", "a\r\nb\r\n", "z\u2028w\x0cv\n", "日本語 😀\n")
        ),
        (b"\xef\xbb\xbfa\r\n", "a\r\n"),  # a byte order mark is not shown
        (b"", "[The file is empty.]"),
        (b"caf\xe9 au lait, s'il vous plait\n", "caf\ufffd au lait, s'il vous plait\n"),  # a few bad bytes are text
    ],
)
async def test_a_short_file_is_shown_as_it_is(bench: Bench, workspace: Path, data: bytes, shown: str) -> None:
    (workspace / "file").write_bytes(data)
    assert await bench.text(READ, path="file") == shown


async def test_a_long_file_is_read_in_pages_that_say_how_to_go_on(bench: Bench, workspace: Path) -> None:
    (workspace / "long").write_text("".join(f"{number}\n" for number in range(1, 3001)))
    first = await bench.use(READ, path="long")
    assert first.text.endswith("\n2000\n\n[Showing lines 1-2000 of 3000. Use offset=2001 to go on.]")
    lines = {"first_line": 1, "last_line": 2000, "more": True, "total_lines": 3000}
    assert first.details == {"path": f"{bench.context.cwd}/long", **lines}
    assert (await bench.text(READ, path="long", offset=2001)).splitlines()[::999] == ["2001", "3000"]
    page = await bench.text(READ, path="long", offset=7, limit=2)
    assert page == "7\n8\n\n[Showing lines 7-8 of 3000. Use offset=9 to go on.]"
    with pytest.raises(ToolError, match=r"offset: 3001 is behind the end of long \(3000 lines\)"):
        await bench.use(READ, path="long", offset=3001)
    (workspace / "wide").write_text("é" * 40_000 + "\nnext\n")
    text = await bench.text(READ, path="wide")
    assert text.startswith("é" * (MAX_BYTES // 2) + "\n\n[Line 1 is longer than 50000 bytes")
    assert text.endswith("[Showing lines 1-1 of 2. Use offset=2 to go on.]")
    assert await bench.text(READ, path="wide", offset=2) == "next\n"


async def test_a_huge_file_is_paged_without_being_counted(bench: Bench, workspace: Path) -> None:
    with (workspace / "huge").open("wb") as file:
        for _ in range(10):
            file.write(b"some line\n" * 100_000)
        file.write(b"x" * 3_000_000 + b"\nlast")
    text = await bench.text(READ, path="huge", offset=1_000_000)
    assert text == "some line\n\n[Showing lines 1000000-1000000. Use offset=1000001 to go on.]"
    text = await bench.text(READ, path="huge", offset=1_000_001)
    assert text.startswith("x" * MAX_BYTES + "\n\n[Line 1000001")
    assert await bench.text(READ, path="huge", offset=1_000_002) == "last"
    with pytest.raises(ToolError, match=r"behind the end of huge \(1000002 lines\)"):
        await bench.use(READ, path="huge", offset=1_000_003)


@pytest.mark.parametrize("data", [b"\x7fELF\0\0", b"text then \0", bytes(range(128, 256)) * 9, "ab".encode("utf-16")])
async def test_binary_is_refused_in_words(bench: Bench, workspace: Path, data: bytes) -> None:
    (workspace / "data").write_bytes(data)
    with pytest.raises(ToolError, match="data is binary, or text that is not UTF-8") as caught:
        await bench.use(READ, path="data")
    assert caught.value.recommendations


async def test_an_image_is_known_by_its_content_and_has_a_bound(bench: Bench, workspace: Path) -> None:
    heads = (PNG, b"\xff\xd8\xff\xe0", b"GIF89a", b"RIFF1234WEBPVP8 ", b"RIFF1234WAVE", b"<svg/>", b"")
    kinds = ["image/png", "image/jpeg", "image/gif", "image/webp", None, None, None]
    assert [image_type(head) for head in heads] == kinds
    (workspace / "picture.txt").write_bytes(PNG)
    output = await bench.use(READ, path="picture.txt")
    assert output.text == f"[Image image/png, {len(PNG)} bytes]"
    assert [(b64decode(image.data), image.mime_type) for image in output.images] == [(PNG, "image/png")]
    (workspace / "big.png").write_bytes(PNG.ljust(MAX_IMAGE_BYTES + 1, b"x"))
    with pytest.raises(ToolError, match="at most 3750000 can be shown"):
        await bench.use(READ, path="big.png")
    os.truncate(workspace / "big.png", MAX_IMAGE_BYTES)
    assert len((await bench.use(READ, path="big.png")).images) == 1


REFUSED: list[tuple[Tool, str, dict[str, Any], str]] = [
    (READ, "pipe", {}, "pipe is a named pipe, not a file"),
    (READ, "socket", {}, "socket is a socket, not a file"),
    (READ, "folder", {}, "folder is a directory, not a file"),
    (READ, ".", {}, ". is a directory, not a file"),
    (READ, "none/below", {}, "cannot read none/below: No such file or directory"),
    (READ, "/dev/zero", {}, "/dev/zero is a character device, not a file"),
    (WRITE, ".", {"content": "x"}, "is a directory"),
    (WRITE, "folder", {"content": "x"}, "folder is a directory, not a file"),
    (WRITE, "pipe", {"content": "x"}, "pipe is a named pipe, not a file"),
    (WRITE, "new/", {"content": "x"}, "new/ ends like a directory"),
    (WRITE, "file/below", {"content": "x"}, "cannot write file/below: Not a directory"),
    (WRITE, "x" * 256, {"content": "x"}, "File name too long"),
    (WRITE, "file", {"content": "ab\udc80"}, "content: the character at index 2"),
    (EDIT, "none", one_edit("a", "b"), "cannot edit none: No such file"),
    (EDIT, "pipe", one_edit("a", "b"), "named pipe"),
    (EDIT, ".", one_edit("a", "b"), "directory"),
    (EDIT, "huge", one_edit("a", "b"), "huge has more than 8388608 bytes"),
    (EDIT, "file", one_edit("x", "\udc80"), r"edits\[0\].new_text: the character at index 0"),
    (EDIT, "full", one_edit("a", "abc", every=True), "would have 8388610 characters"),
    (LS, "file", {}, "file is a file, not a directory"),
    (LS, "pipe", {}, "pipe is a named pipe, not a directory"),
    (LS, "none", {}, "cannot list none: No such file"),
]


@pytest.mark.parametrize(("tool", "path", "more", "message"), REFUSED)
async def test_what_cannot_be_done_is_refused_in_words_and_nothing_hangs_or_changes(
    workspace: Path, tool: Tool, path: str, more: dict[str, Any], message: str
) -> None:
    os.mkfifo(workspace / "pipe")
    (workspace / "folder").mkdir()
    (workspace / "file").write_text("x")
    (workspace / "huge").touch()
    os.truncate(workspace / "huge", HASHED_BYTES + 1)
    (workspace / "full").write_text("a" + "." * (HASHED_BYTES - 1))
    bench = Bench(workspace, allow_outside=path.startswith("/"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        with pytest.raises(ToolError, match=message):
            await bench.use(tool, path=path, **more)
    assert (workspace / "file").read_text() == "x"
    assert names(workspace) == ["file", "folder", "full", "huge", "pipe", "socket"]


async def test_what_is_written_is_read_and_the_mode_of_a_file_is_kept(bench: Bench, workspace: Path) -> None:
    text = "line one\nz\u2028w\r\n"
    output = await bench.use(WRITE, path="deep/er/file.txt", content=text)
    assert output.text == "wrote 16 bytes to deep/er/file.txt (created)"
    assert output.details == {"path": f"{bench.context.cwd}/deep/er/file.txt", "bytes": 16}
    assert await bench.text(READ, path="deep/er/file.txt") == text
    assert names(workspace / "deep/er") == ["file.txt"]
    (workspace / "deep/er/file.txt").chmod(0o750)
    assert (await bench.text(WRITE, path="deep/er/file.txt", content="new")).endswith("(replaced)")
    assert stat.S_IMODE((workspace / "deep/er/file.txt").stat().st_mode) == 0o750


@pytest.mark.parametrize(("tool", "more"), [(WRITE, {"content": "mine"}), (EDIT, one_edit("t", "mine"))])
async def test_a_file_that_someone_changed_since_it_was_read_is_not_overwritten(
    bench: Bench, workspace: Path, tool: Tool, more: dict[str, Any]
) -> None:
    (workspace / "file").write_text("one")
    await bench.use(READ, path="file")
    (workspace / "file").write_text("two")
    with pytest.raises(ToolError, match=r"changed by someone else since you last .*; nothing") as caught:
        await bench.use(tool, path="file", **more)
    assert (caught.value.retryable, (workspace / "file").read_text()) == (True, "two")
    await bench.use(READ, path="file")
    await bench.use(tool, path="file", **more)
    await bench.use(WRITE, path="file", content="mine again")
    (workspace / "file").unlink()  # what was removed is made again
    await bench.use(WRITE, path="file", content="new")
    assert (workspace / "file").read_text() == "new"


def test_a_change_at_the_last_moment_is_seen(bench: Bench, workspace: Path) -> None:
    (workspace / "file").write_text("one")
    before = (workspace / "file").stat()
    (workspace / "file").write_text("theirs")
    with pytest.raises(ToolError, match="changed by someone else"):
        replace_content(resolve_path(bench.context, "file"), b"mine", expected=before)
    assert ((workspace / "file").read_text(), names(workspace)) == ("theirs", ["file"])


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back_byte_for_byte(bench: Bench, workspace: Path, content: str) -> None:
    replace_content(resolve_path(bench.context, "file"), content.encode())
    assert (workspace / "file").read_bytes() == content.encode()


async def test_an_edit_keeps_bytes_line_ends_and_mode_and_shows_a_diff(bench: Bench, workspace: Path) -> None:
    file = workspace / "file"
    file.write_bytes(b"\xef\xbb\xbfone\r\ntwo \xe9\r\nthree\r\n")
    file.chmod(0o640)
    output = await bench.use(EDIT, path="file", **one_edit("one\ntwo", "1\n2\n2b"))
    assert file.read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n2b \xe9\r\nthree\r\n"
    assert (stat.S_IMODE(file.stat().st_mode), output.text) == (0o640, "edited file at line 1")
    diff = ["@@ -1,3 +1,4 @@", "-\ufeffone", "-two \ufffd", "+\ufeff1", "+2", "+2b \ufffd", " three"]
    assert output.details["diff"].split("\n") == diff
    assert await bench.files.find_changed() == []
    file.write_text("a\n" * 12)
    await bench.use(READ, path="file")
    text = await bench.text(EDIT, path="file", **one_edit("a", "b", every=True))
    assert text == "edited file in 12 places, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ..."
    assert file.read_text() == "b\n" * 12


async def test_one_bad_edit_and_nothing_is_changed(bench: Bench, workspace: Path) -> None:
    (workspace / "file").write_text("one two")
    edits = [{"old_text": "one", "new_text": "1"}, {"old_text": "three", "new_text": "3"}]
    with pytest.raises(ToolError, match=r"file: edits\[1\].old_text does not occur .*; nothing was changed") as caught:
        await bench.use(EDIT, path="file", edits=edits)
    assert (caught.value.error_type, caught.value.recommendations != []) == ("logical", True)
    assert (workspace / "file").read_text() == "one two"


async def test_edits_of_one_file_at_the_same_time_are_all_made(bench: Bench, workspace: Path) -> None:
    (workspace / "file").write_text(" ".join(f"<{number}>" for number in range(20)))

    async def edit(number: int) -> None:
        await bench.use(EDIT, path="file", **one_edit(f"<{number}>", f"{number}"))

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(edit, number)
    assert (workspace / "file").read_text() == " ".join(map(str, range(20)))


async def test_a_directory_is_listed_with_what_its_entries_are(bench: Bench, workspace: Path) -> None:
    (workspace / "sub").mkdir()
    for name in ("b.txt", "A.txt", ".hidden", "tab\there"):
        (workspace / name).touch()
    (workspace / "link").symlink_to("sub")
    (workspace / "loose").symlink_to("/nowhere")
    os.mkfifo(workspace / "pipe")
    output = await bench.use(LS)
    shown = [".hidden", "A.txt", "b.txt", "link -> sub", "loose -> /nowhere", "pipe (a named pipe)", "sub/"]
    assert output.text.split("\n") == [*shown, r"tab\x09here"]
    assert output.details == {"path": bench.context.cwd, "entries": 8, "left_out": 0}
    assert await bench.text(LS, path="link") == "[The directory is empty.]"
    text = await bench.text(LS, limit=2)
    assert text == ".hidden\nA.txt\n[6 of 8 names left out; set limit higher, or use find with a pattern]"


async def test_a_long_list_is_cut_and_kept_in_a_file_that_can_be_read(workspace: Path) -> None:
    bench = Bench(workspace, outputs=str(workspace.parent / "outputs"))
    for number in range(300):
        (workspace / f"{number:03}{'x' * 240}").touch()
    text = await bench.text(LS)
    (full,) = (workspace.parent / "outputs").iterdir()
    assert (len(text) < 50_300, str(full) in text, len(full.read_text().split("\n"))) == (True, True, 300)
