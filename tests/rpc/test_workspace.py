"""Files of a workspace that others ask for: what is read, and what is not."""

import os
import re
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from rpc import workspace as workspace_module
from rpc.workspace import read_workspace_file


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "workspace"
    (place / "sub").mkdir(parents=True)
    (place / "sub" / "a.txt").write_bytes(b"12345")
    (place / "in.txt").symlink_to("sub/a.txt")
    (place / "up").symlink_to(tmp_path)
    (place / "out.txt").symlink_to(tmp_path / "secret.txt")
    (place / "loop").symlink_to("loop")
    (place / "zero").symlink_to("/dev/zero")
    (tmp_path / "secret.txt").write_bytes(b"secret")
    os.mkfifo(place / "pipe")
    return place


@pytest.mark.parametrize("name", ["sub/a.txt", "in.txt", "./sub/../in.txt", "up/workspace/in.txt"])
def test_a_file_inside_is_read_up_to_the_limit(workspace: Path, name: str) -> None:
    assert read_workspace_file(workspace, name, 9) == b"12345"
    assert read_workspace_file(workspace, name, 3) == b"123"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        *(
            ("../secret.txt", "outside"),
            ("up/secret.txt", "outside"),
            ("out.txt", "outside"),
            ("/etc/passwd", "outside"),
        ),
        *(("zero", "outside"), ("pipe", "regular"), ("sub", "regular"), ("", "regular"), ("loop", "symbolic links")),
        *(("none", "No such file"), ("sub/a.txt/x", "Not a directory"), ("n" * 300, "too long"), ("a\0b", "null")),
    ],
)
def test_nothing_else_is_read_or_waited_for(workspace: Path, name: str, why: str) -> None:
    def open_files() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    before = open_files()
    with pytest.raises((OSError, ValueError), match=re.compile(why, re.IGNORECASE)):
        read_workspace_file(workspace, name, 9)
    assert open_files() == before


def _a_file(place: Path, secret: Path) -> None:
    (place / "sub" / "a.txt").unlink()
    (place / "sub" / "a.txt").symlink_to(secret)


def _a_directory(place: Path, secret: Path) -> None:
    (place / "sub").rename(place / "old")
    (secret.parent / "a.txt").write_bytes(b"secret")
    (place / "sub").symlink_to(secret.parent)


@pytest.mark.parametrize("exchange", [_a_file, _a_directory])
def test_what_is_exchanged_for_a_link_after_the_look_is_not_read(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, exchange: Callable[[Path, Path], None]
) -> None:
    look = os.path.realpath
    looks: list[str] = []

    def look_then_exchange(path: str, *, strict: bool) -> str:
        looks.append(look(path, strict=strict))
        if len(looks) == 2:
            exchange(workspace, workspace.parent / "secret.txt")
        return looks[-1]

    monkeypatch.setattr("os.path.realpath", look_then_exchange)
    with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
        read_workspace_file(workspace, "sub/a.txt", 9)


async def test_a_file_system_that_does_not_answer_holds_up_no_caller_and_no_more_threads_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, left = threading.Event(), threading.Event()

    def hang(*_: object) -> bytes:
        answers.wait(20)
        left.set()
        return b""

    monkeypatch.setattr(workspace_module, "read_workspace_file", hang)
    limiter = trio.CapacityLimiter(1)
    try:
        for _ in range(3):  # the first hangs in its thread, the others find no room for one
            with trio.move_on_after(0.01) as scope:
                await workspace_module.fetch_workspace_file(str(tmp_path), "a", 9, limiter)
            assert scope.cancelled_caught
        assert limiter.borrowed_tokens == 1
    finally:
        answers.set()
        await trio.to_thread.run_sync(partial(left.wait, 20))
