"""Reading: pages, images, and clear words about what cannot be read."""

import os
import socket
from base64 import b64decode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools.base import ToolError
from agent.tools.pages import MAX_BYTES, MAX_LINES, PageBuilder, cut_text
from agent.tools.paths import image_type, looks_binary
from agent.tools.read import MAX_IMAGE_BYTES, ReadTool
from tests.agent.tools.using import Bench

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(100))


@pytest.mark.parametrize("text", ["one\ntwo\n", "no end", "\n", "a\r\nb\r\n", "z\u2028w\x0cv\n", "日本語 😀\n"])
async def test_a_short_file_is_shown_as_it_is(bench: Bench, workspace: Path, text: str) -> None:
    (workspace / "file").write_bytes(text.encode())
    assert await bench.text(ReadTool(), path="file") == text


async def test_a_byte_order_mark_is_not_shown(bench: Bench, workspace: Path) -> None:
    (workspace / "file").write_bytes(b"\xef\xbb\xbfa\r\n")
    assert await bench.text(ReadTool(), path="file") == "a\r\n"


async def test_an_empty_file_is_said_to_be_empty(bench: Bench, workspace: Path) -> None:
    (workspace / "file").touch()
    assert await bench.text(ReadTool(), path="file") == "[The file is empty.]"


async def test_a_long_file_is_read_in_pages_that_say_how_to_go_on(bench: Bench, workspace: Path) -> None:
    (workspace / "long").write_text("".join(f"{number}\n" for number in range(1, 3001)))
    first = await bench.use(ReadTool(), path="long")
    assert first.text.endswith("\n2000\n\n[Showing lines 1-2000 of 3000. Use offset=2001 to go on.]")
    assert first.details == {
        "path": f"{bench.context.cwd}/long",
        "first_line": 1,
        "last_line": 2000,
        "more": True,
        "total_lines": 3000,
    }
    assert (await bench.text(ReadTool(), path="long", offset=2001)).splitlines()[::999] == ["2001", "3000"]
    page = await bench.text(ReadTool(), path="long", offset=7, limit=2)
    assert page == "7\n8\n\n[Showing lines 7-8 of 3000. Use offset=9 to go on.]"


@pytest.mark.parametrize("offset", [4, 5000])
async def test_an_offset_behind_the_end_says_where_the_end_is(bench: Bench, workspace: Path, offset: int) -> None:
    (workspace / "short").write_text("1\n2\n3")
    with pytest.raises(ToolError, match=rf"offset: {offset} is behind the end of short \(3 lines\)"):
        await bench.use(ReadTool(), path="short", offset=offset)
    assert await bench.text(ReadTool(), path="short", offset=3) == "3"


async def test_a_line_that_is_too_long_is_shown_in_part(bench: Bench, workspace: Path) -> None:
    (workspace / "wide").write_text("é" * 40_000 + "\nnext\n")
    text = await bench.text(ReadTool(), path="wide")
    assert text.startswith("é" * (MAX_BYTES // 2) + "\n\n[Line 1 is longer than 50000 bytes")
    assert text.endswith("[Showing lines 1-1 of 2. Use offset=2 to go on.]")
    assert await bench.text(ReadTool(), path="wide", offset=2) == "next\n"


async def test_a_huge_file_is_paged_without_being_counted(bench: Bench, workspace: Path) -> None:
    with (workspace / "huge").open("wb") as file:
        for _ in range(10):
            file.write(b"some line\n" * 100_000)
        file.write(b"x" * 3_000_000 + b"\nlast")
    text = await bench.text(ReadTool(), path="huge", offset=1_000_000)
    assert text == "some line\n\n[Showing lines 1000000-1000000. Use offset=1000001 to go on.]"
    assert (await bench.text(ReadTool(), path="huge", offset=1_000_001)).startswith(
        "x" * MAX_BYTES + "\n\n[Line 1000001"
    )
    assert await bench.text(ReadTool(), path="huge", offset=1_000_002) == "last"
    with pytest.raises(ToolError, match=r"behind the end of huge \(1000002 lines\)"):
        await bench.use(ReadTool(), path="huge", offset=1_000_003)


@pytest.mark.parametrize("data", [b"\x7fELF\0\0", b"text then \0", bytes(range(128, 256)) * 9, "ab".encode("utf-16")])
async def test_binary_is_refused_in_words(bench: Bench, workspace: Path, data: bytes) -> None:
    (workspace / "data").write_bytes(data)
    with pytest.raises(ToolError, match="data is binary, or text that is not UTF-8") as caught:
        await bench.use(ReadTool(), path="data")
    assert caught.value.recommendations


async def test_a_few_bad_bytes_do_not_make_a_text_binary(bench: Bench, workspace: Path) -> None:
    (workspace / "latin").write_bytes(b"caf\xe9 au lait, s'il vous plait\n")
    assert await bench.text(ReadTool(), path="latin") == "caf\ufffd au lait, s'il vous plait\n"


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF1234WEBPVP8 ", "image/webp"),
        (b"RIFF1234WAVE", None),
        (b"<svg/>", None),
        (b"", None),
    ],
)
def test_images_are_known_by_their_content(head: bytes, kind: str | None) -> None:
    assert image_type(head) == kind


async def test_an_image_comes_as_an_image_whatever_its_name(bench: Bench, workspace: Path) -> None:
    (workspace / "picture.txt").write_bytes(PNG)
    output = await bench.use(ReadTool(), path="picture.txt")
    assert output.text == f"[Image image/png, {len(PNG)} bytes]"
    assert [(b64decode(image.data), image.mime_type) for image in output.images] == [(PNG, "image/png")]


async def test_an_image_that_is_too_large_is_refused(bench: Bench, workspace: Path) -> None:
    (workspace / "big.png").write_bytes(PNG.ljust(MAX_IMAGE_BYTES + 1, b"x"))
    with pytest.raises(ToolError, match="at most 3750000 can be shown"):
        await bench.use(ReadTool(), path="big.png")
    (workspace / "big.png").write_bytes(PNG.ljust(MAX_IMAGE_BYTES, b"x"))
    assert len((await bench.use(ReadTool(), path="big.png")).images) == 1


async def test_what_is_no_file_is_named_and_nothing_hangs(bench: Bench, workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")
    (workspace / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        for path, message in (
            ("pipe", "pipe is a named pipe, not a file"),
            ("socket", "socket is a socket, not a file"),
            ("folder", "folder is a directory, not a file"),
            (".", ". is a directory, not a file"),
            ("none", "cannot read none: No such file or directory"),
            ("none/below", "cannot read none/below: No such file or directory"),
        ):
            with pytest.raises(ToolError, match=message):
                await bench.use(ReadTool(), path=path)


async def test_a_device_is_not_opened(workspace: Path) -> None:
    with pytest.raises(ToolError, match="/dev/zero is a character device, not a file"):
        await Bench(workspace, allow_outside=True).use(ReadTool(), path="/dev/zero")


@given(st.binary(max_size=200))
def test_text_within_any_cut_is_never_called_binary_for_the_cut(noise: bytes) -> None:
    text = noise.decode("latin-1").replace("\0", "").replace("\ufffd", "")
    printable = "".join(char for char in text if char >= " " or char == "\n").encode()
    for end in range(len(printable) + 1):
        assert not looks_binary(printable[:end])


@given(st.text(min_size=1), st.integers(min_value=0, max_value=400))
def test_a_cut_never_splits_a_character(text: str, at: int) -> None:
    data = text.encode()
    cut = cut_text(data[:at])
    assert text.startswith(cut)
    assert len(cut.encode()) > min(at, len(data)) - 4


@given(st.lists(st.binary(max_size=3000).map(lambda line: line.replace(b"\n", b"") + b"\n"), max_size=60), st.data())
def test_a_page_holds_whole_lines_within_the_bounds(lines: list[bytes], data: st.DataObject) -> None:
    limit = data.draw(st.integers(1, 80))
    builder = PageBuilder(1, limit)
    more = not builder.feed(lines)
    page = builder.page(more=more)
    shown = lines[: page.last]
    assert page.text == b"".join(shown).decode(errors="replace")
    assert len(b"".join(shown)) <= MAX_BYTES
    assert len(shown) <= min(limit, MAX_LINES)
    assert more == (len(shown) < len(lines))
    if more:
        assert len(shown) == limit or len(b"".join(lines[: page.last + 1])) > MAX_BYTES


@pytest.mark.parametrize(
    ("taken", "note"),
    [
        ([b"a\n"], ""),
        ([b"a\n", b"b\n", b"c\n"], "\n[Showing lines 5-6 of 9. Use offset=7 to go on.]"),
        ([b"x" * 60_000], "\n\n[Line 5 is longer than 50000 bytes: this is its beginning. Use exec for the rest.]"),
    ],
)
def test_a_page_says_what_it_leaves_out(taken: list[bytes], note: str) -> None:
    builder = PageBuilder(5, 2)
    assert builder.page(more=not builder.feed(taken)).footer(9) == note
