import os
from pathlib import Path

import pytest

from tests.security.people import NOBODY, needs_root
from wire.files import foreign_write_access


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("x")
    return tmp_path / "file"


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664, 0o444])
def test_a_file_of_ours_is_ours_also_where_our_group_may_write_it(file: Path, mode: int) -> None:
    file.chmod(mode)
    assert foreign_write_access(file) is None


def test_a_file_that_everybody_can_write_is_not(file: Path) -> None:
    file.chmod(0o666)
    found = foreign_write_access(file)
    assert found is not None
    assert found.startswith("can be written by every user (owner the user ")
    assert found.endswith(", mode 0666)")


@needs_root
def test_who_else_can_write_is_said_with_owner_and_mode(file: Path) -> None:
    file.chmod(0o640)
    os.chown(file, NOBODY, 0)
    assert foreign_write_access(file) == "belongs to the user nobody (uid 65534), mode 0640"
    os.chown(file, 54321, 0)
    assert foreign_write_access(file) == "belongs to the uid 54321, mode 0640"
    os.chown(file, 0, NOBODY)
    assert foreign_write_access(file) is None
    file.chmod(0o660)
    assert foreign_write_access(file) == "can be written by the group 65534 (owner the user root (uid 0), mode 0660)"


@needs_root
def test_a_link_of_another_user_is_not_ours_whatever_it_leads_to(file: Path) -> None:
    link = file.with_name("link")
    link.symlink_to(file)
    assert foreign_write_access(link) is None
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    assert foreign_write_access(link) == "belongs to the user nobody (uid 65534)"


def test_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        foreign_write_access(tmp_path / "none")
