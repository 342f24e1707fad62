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
FILES = {
    "a.png": PNG,
    "b.JPG": b"\xff\xd8\xff\xe0" + b"j" * 20,
    "sub/c.gif": b"GIF89a" + b"g" * 20,
    "my shot.webp": b"RIFF\x00\x00\x00\x00WEBP" + b"w" * 20,
    "really.png": b"\xff\xd8\xff\xe0",
    "text.png": b"no image",
}
URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


@pytest.fixture(autouse=True)
def files(workspace: Path) -> None:
    (workspace / "sub").mkdir()
    for name, data in FILES.items():
        (workspace / name).write_bytes(data)
    (workspace / "link.png").symlink_to("a.png")
    (workspace / "loop.png").symlink_to("loop.png")
    os.mkfifo(workspace / "pipe.png")


def load(text: str, workspace: Path, **limits: int) -> PromptImages:
    return load_images(text, os.path.realpath(workspace), ImageLimits(**limits))


def contents(found: PromptImages) -> list[bytes]:
    return [base64.b64decode(image.data) for image in found.images]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("look at a.png", ["a.png"]),
        ("a.png, b.JPG; and a.png.", ["a.png", "b.JPG"]),
        ("@a.png!", ["a.png"]),
        ("![shot](sub/c.gif)", ["sub/c.gif"]),
        ("<sub/c.gif> [a.png] `b.JPG`", ["sub/c.gif", "a.png", "b.JPG"]),
        ('what is in "my shot.webp"?', ["my shot.webp"]),
        ("what is in 'my shot.webp'?", ["my shot.webp"]),
        ("what is in my shot.webp?", []),
        ("./a.png\nsub/../b.JPG", ["./a.png", "sub/../b.JPG"]),
        ("a.png.bak a.pngx xa.png a.png/b http://host/a.png none.png", []),
        ("a.PNG " + "x" * 300 + ".png a\0b.png", []),
        ("link.png", ["a.png"]),
        ("see {workspace}/a.png", ["a.png"]),
    ],
)
def test_files_are_found_by_their_names_in_the_text(text: str, names: list[str], workspace: Path) -> None:
    text = text.replace("{workspace}", str(workspace))
    found = load(text, workspace)
    assert contents(found) == [(workspace / name).read_bytes() for name in names]
    assert (found.text, found.notes) == (text, [])


def test_nothing_outside_the_workspace_is_loaded_whatever_leads_there(workspace: Path) -> None:
    outside = workspace.parent / "outside.png"
    outside.write_bytes(PNG)
    (workspace / "out.png").symlink_to(outside)
    (workspace / "up").symlink_to(workspace.parent)
    for name in ("../outside.png", str(outside), "out.png", "up/outside.png", "~/outside.png", "../work2/a.png"):
        found = load(f"see {name}", workspace)
        noted = [] if name.startswith("~") else [f"{name} was not loaded: it lies outside the workspace"]
        assert (found.images, found.notes) == ([], noted)


def test_the_type_is_what_the_bytes_say_and_what_is_no_file_is_not_waited_for(workspace: Path) -> None:
    found = load("really.png text.png loop.png pipe.png", workspace)
    assert [image.mime_type for image in found.images] == ["image/jpeg"]
    assert found.notes[0] == "text.png was not loaded: it holds no PNG, JPEG, GIF or WebP image"
    assert "loop.png was not loaded: it is no file" in found.notes
    assert len(found.notes) == 3


@pytest.mark.parametrize("data", ["x", "AAAA", "", "=="])
def test_a_data_url_becomes_an_image_and_leaves_the_text(data: str, workspace: Path) -> None:
    found = load(f"what is {URL}? and {URL}", workspace)
    assert contents(found) == [PNG, PNG]
    assert found.text == "what is [image 1: image/png]? and [image 2: image/png]"
    found = load(f"see data:image/png;base64,{data}", workspace)
    assert (found.images, len(found.notes)) == ([], 1)
    assert found.text.startswith("see [image left out: it ")


def test_count_and_sizes_are_bounded(workspace: Path) -> None:
    for name in ("b", "c"):
        (workspace / f"{name}.png").write_bytes(PNG)
    text = "a.png b.png c.png"
    for limits, count in (({"count": 2}, 2), ({"names": 1}, 1), ({"one": 27}, 0), ({"together": 56}, 2)):
        assert len(load(text, workspace, **limits).images) == count
    assert "at most 2 images" in load(text, workspace, count=2).notes[0]
    assert load(URL, workspace, one=10).notes == ["an image in the text was not loaded: it is larger than 10 bytes"]
    (workspace / "sparse.png").touch()
    os.truncate(workspace / "sparse.png", 1 << 40)
    assert "no PNG" in load("sparse.png", workspace).notes[0]


@given(st.text(st.sampled_from("a.png/\"' @()[]<>`\n:~")), st.text())
def test_no_text_is_an_error_and_a_huge_one_takes_no_time(odd: str, any_text: str) -> None:
    assert load_images(odd + any_text, "/proc/self/no-such-workspace").images == []


def test_a_huge_prompt_takes_no_time(workspace: Path) -> None:
    before = time.process_time()
    for text in ("x" * 4_000_000, ".png" * 1_000_000, "data:image/png;base64," * 100_000, "data:image/" * 300_000):
        load(text, workspace)
    assert time.process_time() - before < 5
