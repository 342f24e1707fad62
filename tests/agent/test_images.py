"""Images that a prompt names or holds: loaded from the workspace and from nowhere else."""

import base64
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.images import ImageLimits, PromptImages, load_images

PNG = b"\x89PNG\r\n\x1a\n" + b"p" * 20
JPEG = b"\xff\xd8\xff\xe0" + b"j" * 20
GIF = b"GIF89a" + b"g" * 20
WEBP = b"RIFF\x00\x00\x00\x00WEBP" + b"w" * 20
URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


def load(text: str, workspace: Path, **limits: int) -> PromptImages:
    return load_images(text, os.path.realpath(workspace), ImageLimits(**limits))


def contents(found: PromptImages) -> list[bytes]:
    return [base64.b64decode(image.data) for image in found.images]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("look at a.png", ["a.png"]),
        ("a.png", ["a.png"]),
        ("a.png, b.JPG; and a.png.", ["a.png", "b.JPG"]),
        ("@a.png!", ["a.png"]),
        ("![shot](sub/c.gif)", ["sub/c.gif"]),
        ("<sub/c.gif> [a.png] `b.JPG`", ["sub/c.gif", "a.png", "b.JPG"]),
        ('what is in "my shot.webp"?', ["my shot.webp"]),
        ("what is in 'my shot.webp'?", ["my shot.webp"]),
        ("what is in my shot.webp?", []),
        ("./a.png\nsub/../b.JPG", ["./a.png", "sub/../b.JPG"]),
        ("a.png.bak a.pngx xa.png a.png/b http://host/a.png none.png", []),
        ("a.PNG", []),
    ],
)
def test_files_are_found_by_their_names_in_the_text(text: str, names: list[str], workspace: Path) -> None:
    files = {"a.png": PNG, "b.JPG": JPEG, "sub/c.gif": GIF, "my shot.webp": WEBP}
    for name, data in files.items():
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_bytes(data)
    found = load(text, workspace)
    assert contents(found) == [(workspace / name).read_bytes() for name in names]
    assert (found.text, found.notes) == (text, [])


def test_a_full_path_inside_the_workspace_is_loaded(workspace: Path) -> None:
    (workspace / "a.png").write_bytes(PNG)
    assert contents(load(f"see {workspace}/a.png", workspace)) == [PNG]


def test_nothing_outside_the_workspace_is_loaded_whatever_leads_there(workspace: Path) -> None:
    outside = workspace.parent / "outside.png"
    outside.write_bytes(PNG)
    (workspace / "link.png").symlink_to(outside)
    (workspace / "up").symlink_to(workspace.parent)
    for name in ("../outside.png", str(outside), "link.png", "up/outside.png", "~/outside.png", "../work2/a.png"):
        found = load(f"see {name}", workspace)
        assert found.images == []
        assert found.notes == (
            [] if name.startswith("~") else [f"{name} was not loaded: it lies outside the workspace"]
        )


def test_a_link_within_the_workspace_is_followed(workspace: Path) -> None:
    (workspace / "a.bin").write_bytes(PNG)
    (workspace / "link.png").symlink_to("a.bin")
    assert contents(load("link.png", workspace)) == [PNG]


def test_the_type_is_what_the_bytes_say(workspace: Path) -> None:
    (workspace / "really.png").write_bytes(JPEG)
    (workspace / "text.png").write_text("no image")
    found = load("really.png text.png", workspace)
    assert [image.mime_type for image in found.images] == ["image/jpeg"]
    assert found.notes == ["text.png was not loaded: it holds no PNG, JPEG, GIF or WebP image"]


def test_what_is_no_file_is_not_waited_for(workspace: Path) -> None:
    os.mkfifo(workspace / "pipe.png")
    (workspace / "dir.png").mkdir()
    found = load("pipe.png dir.png", workspace)
    assert (found.images, len(found.notes)) == ([], 2)
    assert load("x" * 300 + ".png a\0b.png", workspace) == PromptImages("x" * 300 + ".png a\0b.png", [], [])


def test_a_link_that_leads_round_and_round_is_no_file(workspace: Path) -> None:
    (workspace / "loop.png").symlink_to("loop.png")
    assert load("loop.png", workspace).notes == ["loop.png was not loaded: it is no file"]


def test_a_data_url_becomes_an_image_and_leaves_the_text(workspace: Path) -> None:
    found = load(f"what is {URL}? and {URL}", workspace)
    assert contents(found) == [PNG, PNG]
    assert found.text == "what is [image 1: image/png]? and [image 2: image/png]"


@pytest.mark.parametrize("data", ["x", "AAAA", "", "=="])
def test_a_data_url_that_is_no_image_is_told_in_the_text(data: str, workspace: Path) -> None:
    found = load(f"see data:image/png;base64,{data}", workspace)
    assert found.images == []
    assert found.text.startswith("see [image left out: it ")
    assert len(found.notes) == 1


def test_count_and_sizes_are_bounded(workspace: Path) -> None:
    for name in ("a", "b", "c"):
        (workspace / f"{name}.png").write_bytes(PNG)
    text = "a.png b.png c.png"
    assert len(load(text, workspace, count=2).images) == 2
    assert len(load(text, workspace, names=1).images) == 1
    assert load(text, workspace, one=len(PNG) - 1).images == []
    assert len(load(text, workspace, together=2 * len(PNG)).images) == 2
    assert "at most 2 images" in load(text, workspace, count=2).notes[0]
    assert load(URL, workspace, one=10).notes == ["an image in the text was not loaded: it is larger than 10 bytes"]
    (workspace / "sparse.png").touch()
    os.truncate(workspace / "sparse.png", 1 << 40)
    assert "no PNG" in load("sparse.png", workspace).notes[0]


@given(st.text(st.sampled_from("a.png/\"' @()[]<>`\n:~")), st.text())
def test_no_text_is_an_error(odd: str, any_text: str) -> None:
    found = load_images(odd + any_text, "/proc/self/no-such-workspace")
    assert found.images == []


def test_a_huge_prompt_takes_no_time(workspace: Path) -> None:
    before = time.process_time()
    for text in ("x" * 4_000_000, ".png" * 1_000_000, "data:image/png;base64," * 100_000, "data:image/" * 300_000):
        load(text, workspace)
    assert time.process_time() - before < 5
