"""The private agent dir of a worker."""

import shutil
import stat
from pathlib import Path

import pytest

from errors import WorkerStartFailed
from rpc.pi import agent_dir as home_module
from rpc.pi.agent_dir import PrivateAgentDir


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "agent"
    (source / "sessions" / "--work--").mkdir(parents=True)
    (source / "sessions" / "--work--" / "old.jsonl").write_text("{}")
    (source / "extensions").mkdir()
    (source / "extensions" / "mine.ts").write_text("export default () => {}")
    for name in ("settings.json", "models.json", "auth.json", "AGENTS.md", "pi-debug.log"):
        (source / name).write_text(f"the {name}")
    (source / "settings.json.lock").mkdir()
    return source


@pytest.fixture
def agent_dir(source: Path, tmp_path: Path) -> PrivateAgentDir:
    return PrivateAgentDir(source, tmp_path / "w1", tmp_path / "sessions")


def test_settings_are_copied_for_the_user_alone_so_that_a_setter_changes_no_others(
    agent_dir: PrivateAgentDir, source: Path
) -> None:
    (source / "models.json").chmod(0o644)
    with agent_dir as home:
        (home.path / "settings.json").write_text("changed")
        assert (source / "settings.json").read_text() == "the settings.json"
        assert (home.path / "models.json").read_text() == "the models.json"
        assert (home.path / "AGENTS.md").read_text() == "the AGENTS.md"
        assert stat.S_IMODE(home.path.stat().st_mode) == 0o700
        assert stat.S_IMODE((home.path / "models.json").stat().st_mode) == 0o600


def test_a_renewed_login_reaches_all_workers(agent_dir: PrivateAgentDir, source: Path) -> None:
    with agent_dir as home:
        (home.path / "auth.json").write_text("renewed")
        assert (source / "auth.json").read_text() == "renewed"


def test_transcripts_and_remains_of_others_are_left_out(agent_dir: PrivateAgentDir, tmp_path: Path) -> None:
    with agent_dir as home:
        names = {entry.name for entry in home.path.iterdir()}
        assert names == {"settings.json", "models.json", "auth.json", "AGENTS.md", "extensions"}
        assert home.environ == {
            "PI_CODING_AGENT_DIR": str(home.path),
            "PI_CODING_AGENT_SESSION_DIR": str(tmp_path / "sessions"),
        }


def test_removing_a_copy_removes_nothing_that_it_links_to(agent_dir: PrivateAgentDir, source: Path) -> None:
    home = agent_dir
    home.make()
    assert (home.path / "extensions" / "mine.ts").exists()
    home.remove()
    home.remove()
    assert not home.path.exists()
    assert (source / "extensions" / "mine.ts").exists()
    assert (source / "auth.json").exists()


def test_links_in_the_source_are_followed_once_and_broken_ones_left_out(
    agent_dir: PrivateAgentDir, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "dotfiles").mkdir()
    (tmp_path / "dotfiles" / "settings.json").write_text("from the dotfiles")
    (source / "settings.json").unlink()
    (source / "settings.json").symlink_to(tmp_path / "dotfiles" / "settings.json")
    (source / "skills").symlink_to(tmp_path / "dotfiles")
    (source / "prompts").symlink_to(tmp_path / "nowhere")
    (source / "loop").symlink_to(source / "loop")
    with agent_dir as home:
        (home.path / "settings.json").write_text("changed")
        assert (tmp_path / "dotfiles" / "settings.json").read_text() == "from the dotfiles"
        assert (home.path / "skills" / "settings.json").exists()
        assert not (home.path / "prompts").is_symlink()
        assert not (home.path / "loop").is_symlink()


def test_what_a_killed_supervisor_left_is_replaced(agent_dir: PrivateAgentDir, tmp_path: Path) -> None:
    (tmp_path / "w1").mkdir()
    (tmp_path / "w1" / "settings.json").write_text("stale")
    with agent_dir as home:
        assert (home.path / "settings.json").read_text() == "the settings.json"


def test_a_link_in_the_copys_place_is_not_followed(agent_dir: PrivateAgentDir, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("keep")
    (tmp_path / "w1").symlink_to(tmp_path / "precious")
    with agent_dir as home:
        assert not home.path.is_symlink()
    assert (tmp_path / "precious" / "file").read_text() == "keep"


def test_without_an_agent_dir_a_worker_gets_an_empty_one(agent_dir: PrivateAgentDir, tmp_path: Path) -> None:
    with PrivateAgentDir(tmp_path / "none", tmp_path / "w1", tmp_path / "sessions") as home:
        assert list(home.path.iterdir()) == []


def test_large_files_are_linked(agent_dir: PrivateAgentDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_module, "MAX_FILE_BYTES", 3)
    with agent_dir as home:
        assert (home.path / "AGENTS.md").is_symlink()


def test_a_copy_that_cannot_be_made_fails_the_start(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkerStartFailed, match="cannot be copied"):
        PrivateAgentDir(source, tmp_path / "file" / "w1", tmp_path / "sessions").make()


def test_a_copy_that_cannot_be_removed_fails_nobody_and_is_removed_by_the_next_worker(
    agent_dir: PrivateAgentDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("Too many open files")

    with monkeypatch.context() as patched, agent_dir as home:
        (home.path / "left").write_text("behind")
        patched.setattr(shutil, "rmtree", refuse)
        home.__exit__(None, None, None)
        assert (home.path / "left").exists()
        patched.undo()
        with home:
            assert not (home.path / "left").exists()
