"""Files in answers: what lies in the workspace, has a known type and is small enough goes beside the text."""

import os
from functools import partial
from pathlib import Path

import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st

from errors import WorkerExited
from gateway.turns.file_copies import FileCopies
from gateway.turns.media import Media, check_media, extract_media, media_names


def allow_all(name: str) -> Media | None:
    return Media(name, "image/png", 1)


def allow_none(_name: str) -> Media | None:
    return None


@pytest.mark.parametrize(
    ("text", "left", "names"),
    [
        ("MEDIA:a.png", "", ["a.png"]),
        ("Here:\nMEDIA: pics/my cat.png \nDone.", "Here:\nDone.", ["pics/my cat.png"]),
        ("one\r\n\tMEDIA:a.png\r\ntwo", "one\r\ntwo", ["a.png"]),
        ("MEDIA:a.png\nMEDIA:b.png\nMEDIA:a.png", "", ["a.png", "b.png"]),
        ("say MEDIA:a.png", "say MEDIA:a.png", []),
        ("media:a.png", "media:a.png", []),
        ("MEDIA:", "MEDIA:", []),
        ("MEDIA:  \n", "MEDIA:  \n", []),
        ("```\nMEDIA:a.png\n```\nMEDIA:b.png", "```\nMEDIA:a.png\n```", ["b.png"]),
        ("````\n```\nMEDIA:a.png\n````\nMEDIA:b.png", "````\n```\nMEDIA:a.png\n````", ["b.png"]),
        ("~~~\n```\nMEDIA:a.png", "~~~\n```\nMEDIA:a.png", []),
    ],
)
def test_lines_of_their_own_name_files_and_leave_the_text(text: str, left: str, names: list[str]) -> None:
    assert extract_media(text, allow_all) == (left, [Media(name, "image/png", 1) for name in names])


@given(st.text(alphabet="MEDIA:a`~ \n.", max_size=60))
@example(" Here:\nMEDIA:../secret.png\n")
@example("MEDIA:a" + " " * 2**20 + "b")
def test_what_may_not_be_handed_over_stays_text(text: str) -> None:
    assert extract_media(text, allow_none) == (text, [])


def test_no_answer_hands_over_files_without_end() -> None:
    text = "\n".join(f"MEDIA:{number}.png" for number in range(25))
    left, media = extract_media(text, allow_all)
    assert len(media) == 20
    assert left.splitlines() == [f"MEDIA:{number}.png" for number in range(20, 25)]


# --- the file system --------------------------------------------------------------------------------------------------


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "workspace"
    (place / "sub").mkdir(parents=True)
    (place / "sub" / "a.PNG").write_bytes(b"12345")
    (place / "run.sh").write_text("rm")
    (place / "dir.png").mkdir()
    (tmp_path / "secret.png").write_bytes(b"x")
    (place / "out.png").symlink_to(tmp_path / "secret.png")
    (place / "in.png").symlink_to("sub/a.PNG")
    (place / "loop.png").symlink_to("loop.png")
    (place / "script.png").symlink_to("run.sh")
    (place / "up").symlink_to(tmp_path)
    return place


def test_a_file_of_the_workspace_may_be_handed_over(workspace: Path, tmp_path: Path) -> None:
    expected = Media(str(workspace / "sub" / "a.PNG"), "image/png", 5)
    assert check_media("sub/a.PNG", workspace, largest=5) == expected
    assert check_media("./sub/../in.png", workspace) == expected
    (tmp_path / "link").symlink_to(workspace)
    text, media = extract_media("MEDIA:sub/a.PNG", partial(check_media, workspace=tmp_path / "link"))
    assert (text, [found.size for found in media]) == ("", [5])


@pytest.mark.parametrize(
    "name",
    [
        *("missing.png", "run.sh", "sub", "dir.png", "../secret.png", "out.png", "loop.png", "up/secret.png"),
        *("script.png", "a\0.png", "x" * 300 + ".png", "https://example.org/a.png", "sub/../../secret.png", "~/a.png"),
    ],
)
def test_anything_else_may_not(workspace: Path, name: str) -> None:
    assert check_media(name, workspace) is None


def test_a_large_file_may_not_nor_one_by_an_absolute_path_or_of_a_workspace_that_is_gone(workspace: Path) -> None:
    assert check_media("sub/a.PNG", workspace, largest=4) is None
    assert check_media(str(workspace / "sub" / "a.PNG"), workspace) is None
    assert check_media("a.png", workspace / "gone") is None


# --- on a node --------------------------------------------------------------------------------------------------------


async def test_copies_are_bounded_and_the_oldest_make_room(tmp_path: Path) -> None:
    copies, known = FileCopies(tmp_path / "media", total=25, most=3), dict[str, Media]()

    async def fetch(name: str, _limit: int) -> bytes:
        await trio.lowlevel.checkpoint()
        return name.encode() + bytes(4)

    for number in range(6):
        await copies.copy([f"{number}.png"], fetch, known)
        os.utime(known[f"{number}.png"].path, (number, number))
    assert sorted(path.name[-5:] for path in (tmp_path / "media").iterdir()) == ["4.png", "5.png"]
    await copies.copy(["x" * 300 + ".png", "5.png"], fetch, known)  # one that is known is not read again
    assert [path.read_bytes()[:5] for path in (tmp_path / "media").iterdir()] == [b"xxxxx"], "larger than there is room"
    assert os.stat(known["x" * 300 + ".png"].path).st_mode & 0o77 == 0  # noqa: PTH116 - a test's


@pytest.mark.parametrize("name", ["/etc/a.png", "a\0.png", "a.sh", "a"])
async def test_what_may_not_be_handed_over_is_not_asked_of_a_node(tmp_path: Path, name: str) -> None:
    async def fetch(name: str, _limit: int) -> bytes:
        await trio.lowlevel.checkpoint()
        raise AssertionError(name)

    known: dict[str, Media] = {}
    await FileCopies(tmp_path).copy([name], fetch, known)
    assert known == {}


async def test_a_node_that_is_lost_leaves_the_text_as_it_is(tmp_path: Path) -> None:
    async def fetch(_name: str, _limit: int) -> bytes:
        await trio.lowlevel.checkpoint()
        raise WorkerExited("its node was lost")

    known: dict[str, Media] = {}
    await FileCopies(tmp_path).copy(["a.png"], fetch, known)
    assert known == {}


@given(st.text(alphabet="MEDIA:a`~ \n.", max_size=60))
def test_the_names_of_a_text_are_those_that_would_be_looked_at(text: str) -> None:
    looked_at: list[str] = []

    def note(name: str) -> None:
        looked_at.append(name)

    extract_media(text, note)
    assert media_names(text) == list(dict.fromkeys(looked_at))[:20]
