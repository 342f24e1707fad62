"""No path leads out of the working directory: not by dots, not by links, not by links made at the worst moment."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools.base import ToolError
from agent.tools.edit import EditTool
from agent.tools.find import FindTool
from agent.tools.grep import GrepTool
from agent.tools.ls import LsTool
from agent.tools.names import escape_name, unescape_name
from agent.tools.paths import MAX_PATH, open_directory, open_parent, open_regular, resolve_path
from agent.tools.read import ReadTool
from agent.tools.write import WriteTool
from tests.agent.tools.using import Bench

OUTSIDE = "/etc/passwd ../outside link/passwd a/../../b loose ~/x ~ link/new/deeper hop/passwd .."


@pytest.mark.parametrize("path", OUTSIDE.split())
async def test_nothing_outside_is_read_written_or_edited(bench: Bench, workspace: Path, path: str) -> None:
    (workspace / "link").symlink_to("/etc")
    (workspace / "hop").symlink_to("link")
    (workspace / "loose").symlink_to("../outside")
    (workspace.parent / "outside").write_text("secret")
    edits = [{"old_text": "s", "new_text": "x"}]
    for call in (
        bench.use(ReadTool(), path=path),
        bench.use(WriteTool(), path=path, content="x"),
        bench.use(EditTool(), path=path, edits=edits),
    ):
        with pytest.raises(ToolError, match="outside the working directory") as caught:
            await call
        assert caught.value.error_type == "validation"
    assert (workspace.parent / "outside").read_text() == "secret"


async def test_links_inside_are_followed_and_outside_is_open_where_that_is_allowed(
    bench: Bench, workspace: Path
) -> None:
    (workspace / "real").mkdir()
    (workspace / "dir").symlink_to("real")
    (workspace / "name").symlink_to(workspace / "real" / "file")
    await bench.use(WriteTool(), path="dir/file", content="one")
    await bench.use(WriteTool(), path="name", content="two")
    assert ((workspace / "real/file").read_text(), (workspace / "name").is_symlink()) == ("two", True)
    bench.context.environment["HOME"] = str(workspace)  # a home that holds the workspace can be named by its sign
    await bench.use(WriteTool(), path="~/a", content="x")
    await bench.use(WriteTool(), path="./~", content="y")
    assert ((workspace / "a").read_text(), (workspace / "~").read_text()) == ("x", "y")
    bench = Bench(workspace, allow_outside=True)
    await bench.use(WriteTool(), path="../beside", content="x")
    assert await bench.text(ReadTool(), path=str(workspace.parent / "beside")) == "x"
    await bench.use(WriteTool(), path="~/note", content="at home")
    assert (workspace.parent / "home/note").read_text() == "at home"


@pytest.mark.parametrize("outside", [False, True])
async def test_outputs_of_other_conversations_are_closed_wherever_they_lie(workspace: Path, *, outside: bool) -> None:
    own, other = workspace / "kept/a.jsonl.tool-outputs", workspace / "kept/b.jsonl.tool-outputs"
    for directory in (own, other):
        directory.mkdir(parents=True)
        (directory / "full.txt").write_text("all of it")
    (workspace / "link").symlink_to(other)
    bench = Bench(workspace, outputs=str(own), allow_outside=outside)
    assert await bench.text(ReadTool(), path=str(own / "full.txt")) == "all of it"
    edits = [{"old_text": "all", "new_text": "x"}]
    for call in (
        bench.use(ReadTool(), path=str(other / "full.txt")),
        bench.use(ReadTool(), path="link/full.txt"),
        bench.use(WriteTool(), path="link/full.txt", content="x"),
        bench.use(EditTool(), path="kept/a.jsonl.tool-outputs/full.txt", edits=edits),
        bench.use(LsTool(), path="link"),
        bench.use(FindTool(), path=str(other), pattern="*"),
        bench.use(GrepTool(), path=str(other), pattern="all"),
    ):
        with pytest.raises(ToolError, match="where the outputs of a conversation are kept"):
            await call


@pytest.mark.parametrize("swapped", ["sub", "sub/deep", "sub/deep/file"])
def test_a_link_made_after_the_look_is_not_followed(bench: Bench, workspace: Path, swapped: str) -> None:
    (workspace / "sub/deep").mkdir(parents=True)
    (workspace / "sub/deep/file").write_text("mine")
    secret = workspace.parent / "secret"
    (secret / "deep").mkdir(parents=True)
    (secret / "deep/file").write_text("secret")
    (secret / "file").write_text("secret")
    place = resolve_path(bench.context, "sub/deep/file")
    new = resolve_path(bench.context, "sub/deep/new/file")
    (workspace / swapped).rename(workspace / "away")
    (workspace / swapped).symlink_to(secret / "file" if swapped.endswith("file") else secret)
    with pytest.raises((OSError, ToolError)):
        open_regular(place)
    if not swapped.endswith("file"):
        with pytest.raises(OSError, match=r"."), open_parent(new, make=True):
            pytest.fail("the link was followed")
        with pytest.raises(OSError, match=r"."):
            open_directory(place)
    assert not (secret / "new").exists()
    assert not (secret / "deep/new").exists()


def test_a_link_that_comes_between_the_look_and_the_opening_is_not_followed(
    bench: Bench, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "file").write_text("mine")
    (workspace.parent / "secret").write_text("secret")
    place = resolve_path(bench.context, "file")
    look = os.stat

    def look_and_swap(*given: Any, **more: Any) -> os.stat_result:
        seen = look(*given, **more)
        (workspace / "file").unlink()
        (workspace / "file").symlink_to(workspace.parent / "secret")
        return seen

    monkeypatch.setattr(os, "stat", look_and_swap)
    with pytest.raises(OSError, match="symbolic links"):
        open_regular(place)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "is empty"),
        ("a\0b", "NUL"),
        ("x" * (MAX_PATH + 1), "has 4097 characters"),
        ("\ud800", "half of a surrogate pair"),
        ("x" * 256, "File name too long"),
        ("circle/below", "cannot read circle"),
        ("file/below", "Not a directory"),
    ],
)
async def test_what_is_no_path_is_refused_in_words(bench: Bench, workspace: Path, path: str, message: str) -> None:
    (workspace / "circle").symlink_to("circle")
    (workspace / "file").touch()
    with pytest.raises(ToolError, match=message) as caught:
        await bench.use(ReadTool(), path=path)
    str(caught.value).encode()
    assert caught.value.recommendations or caught.value.error_type == "validation"


async def test_paths_longer_than_the_system_takes_at_once_still_work(bench: Bench, workspace: Path) -> None:
    path = "/".join(["d" * 250] * 15) + "/file"
    await bench.use(WriteTool(), path=path, content="deep")
    assert await bench.text(ReadTool(), path=path) == "deep"
    assert len(str(workspace / path)) > 3750


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_what_may_not_be_read_or_written_is_told(bench: Bench, workspace: Path) -> None:
    for name, mode in (("closed", 0), ("fixed", 0o444)):
        (workspace / name).write_text("x")
        (workspace / name).chmod(mode)
    with pytest.raises(ToolError, match="cannot read closed: Permission denied"):
        await bench.use(ReadTool(), path="closed")
    with pytest.raises(ToolError, match="cannot write fixed: it is read-only"):
        await bench.use(WriteTool(), path="fixed", content="y")


@pytest.mark.parametrize("name", [b"caf\xe9", b"two\nlines", b"bell\x07", "nbsp\xa0".encode(), "日本 😀".encode()])
async def test_a_file_of_any_name_is_found_by_the_name_that_is_shown(
    bench: Bench, workspace: Path, name: bytes
) -> None:
    (workspace / os.fsdecode(name)).write_text("found")
    assert await bench.text(ReadTool(), path=escape_name(os.fsdecode(name))) == "found"


@given(st.binary(min_size=1, max_size=40))
def test_shown_names_are_printable_and_lead_back(name: bytes) -> None:
    text = os.fsdecode(name)
    assert escape_name(text).isprintable()
    escape_name(text).encode()
    if b"\\x" not in name:
        assert (unescape_name(escape_name(text)) or escape_name(text)) == text
