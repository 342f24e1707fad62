"""Files in answers: what lies in the workspace, has a known type and is small enough goes beside the text."""

from functools import partial
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.turns.media import Media, check_media, extract_media


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
