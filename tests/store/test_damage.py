import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from store.opening import MIGRATIONS
from tests.store.opening import AFTER_A_CRASH, NOW, damaged, fill, opened


def overwrite(path: Path, start: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(content)


def garbage_header(path: Path) -> None:
    overwrite(path, 0, b"this is what somebody else has written here, with an editor perhaps")


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_in_the_header(path: Path) -> None:
    os.truncate(path, 50)


def garbage_in_a_table(path: Path) -> None:
    for page in range(2, path.stat().st_size // 4096):
        overwrite(path, page * 4096, b"\xff" * 64)


def garbage_log(path: Path) -> None:
    path.with_name("pool.db-wal").write_bytes(b"no log at all" * 100)


def by_sql(*statements: str) -> Callable[[Path], None]:
    def harm(path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA writable_schema = ON")
            for statement in statements:
                connection.execute(statement)

    return harm


def another_program(path: Path) -> None:
    path.unlink()
    by_sql("CREATE TABLE recipes (name TEXT)")(path)


def no_such_format(path: Path) -> None:
    overwrite(path, 18, b"\x42")


NO_UTF_8 = "UPDATE sessions SET agent = CAST(x'ff' AS TEXT)"
FLIPPED = "UPDATE sqlite_master SET sql = replace(sql, 'transcript TEXT', 'transcript TEXU')"


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (by_sql(NO_UTF_8), "Could not decode to UTF-8"),
        (by_sql(FLIPPED), "its tables are not those of its format"),
        (by_sql("DROP TABLE runs"), "its tables are not those of its format"),
        (by_sql("DROP TABLE meta"), "its tables are not those of its format"),
        (by_sql("DROP INDEX events_of_session"), "its tables are not those of its format"),
        (by_sql("PRAGMA user_version = 1"), "its tables are not those of its format"),
        (by_sql("PRAGMA user_version = -2147483646"), "which no version of this program has"),
        (by_sql("PRAGMA user_version = 33554434"), "which no version of this program has"),
        (by_sql("PRAGMA user_version = 0"), "its making was cut short"),
        (by_sql("DELETE FROM meta"), "it holds what cannot be read"),
        (by_sql("UPDATE meta SET value = 'many'"), "it holds what cannot be read"),
        (by_sql("UPDATE meta SET value = -5 WHERE name = 'reserved'"), "seqs up to -5, which cannot be"),
        (by_sql("UPDATE sessions SET data = 5"), "it holds what cannot be read"),
        (by_sql("UPDATE sessions SET created_at = 'yesterday'"), "it holds what cannot be read"),
        (by_sql("UPDATE sessions SET key = NULL"), "it holds what cannot be read"),
        (by_sql("UPDATE runs SET request = 'text'"), "it holds what cannot be read"),
        (by_sql("UPDATE runs SET state = 'odd'"), "it holds what cannot be read"),
        (by_sql("INSERT INTO documents VALUES ('k', x'ff', 7)"), "it holds what cannot be read"),
        (no_such_format, "a format that SQLite does not have"),
        (garbage_header, "not an SQLite file"),
        (emptied, "it is empty"),
        (cut_off, "cut off"),
        (cut_in_the_header, "cut off|not a database|malformed"),
        (garbage_in_a_table, "malformed"),
        (garbage_log, "write-ahead log is not one"),
        (another_program, "no store of this program"),
    ],
)
def test_a_damaged_file_is_set_aside_and_a_new_one_begun(path: Path, harm: Callable[[Path], None], reason: str) -> None:
    fill(path)
    harm(path)
    content = path.read_bytes()
    aside = path.with_name("pool.db.damaged-20231114T221320Z")
    with opened(path) as found:
        assert found.loaded.quarantined is not None
        assert found.loaded.quarantined.startswith(f"{path} was renamed to {aside}: ")
        assert any(part in found.loaded.quarantined for part in reason.split("|"))
        assert aside.read_bytes() == content
        assert (found.loaded.sessions, found.loaded.runs) == ([], [])
        assert found.loaded.first_seq > int(NOW * 1_000_000)
        assert found.database.purged_through == found.loaded.first_seq - 1
        found.database.close_cleanly()
    with opened(path) as again:
        assert (again.loaded.quarantined, again.loaded.first_seq) == (None, found.reserved + 1)


@pytest.mark.parametrize("cleanly", [True, False])
@settings(max_examples=50)
@given(flips=st.lists(st.tuples(st.integers(0, 2**30), st.integers(0, 7)), min_size=1, max_size=3), near=st.booleans())
def test_whatever_bits_are_flipped_a_store_is_opened_or_set_aside(
    tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[int, int]], *, near: bool, cleanly: bool
) -> None:
    path = tmp_path_factory.mktemp("flips") / "pool.db"
    fill(path, cleanly=cleanly, rows=30)
    content = bytearray(path.read_bytes())
    for place, bit in flips:
        content[place % (4096 if near else len(content))] ^= 1 << bit
    path.write_bytes(content)
    assume(int.from_bytes(content[60:64], "big") not in range(len(MIGRATIONS) + 1, 100))  # of a newer version
    with opened(path):
        pass


def test_damage_that_only_a_check_finds_is_found_after_a_crash(path: Path) -> None:
    fill(path, rows=3000)
    with opened(path):
        pass  # it is closed without the mark
    overwrite(path, (path.stat().st_size // 4096 - 20) * 4096, b"\xff" * 4096)
    with opened(path) as found:
        assert found.loaded.quarantined is not None
        assert found.loaded.sessions == []


def test_the_log_of_a_damaged_file_goes_with_it(path: Path) -> None:
    fill(path, cleanly=False)
    garbage_log(path)
    with opened(path):
        assert "pool.db.damaged-20231114T221320Z-wal" in damaged(path)


def test_two_files_damaged_in_the_same_second_are_both_kept(path: Path) -> None:
    for _ in range(3):
        fill(path)
        garbage_header(path)
    with opened(path):
        assert damaged(path) == [f"pool.db.damaged-20231114T221320Z{end}" for end in ("", "-2", "-3")]


def test_damaged_files_are_never_removed_but_told_when_they_become_many(path: Path) -> None:
    told = []
    for number in range(5):
        fill(path)
        overwrite(path, 0, b"%d" % number * 100)
        with opened(path) as found:
            told.append((found.loaded.quarantined or "").partition("not an SQLite file")[2])
        path.unlink()
    size = sum(path.with_name(name).stat().st_size for name in damaged(path))
    assert told[:3] == ["", "", ""]
    assert told[4] == f"; 5 damaged files are kept, {size / 1024**2:.1f} MiB in all; remove those that are not needed"
    assert len(damaged(path)) == 5


def test_seqs_go_on_above_what_a_damaged_file_can_still_tell(path: Path) -> None:
    fill(path)
    by_sql(f"UPDATE meta SET value = {2**52} WHERE name = 'reserved'")(path)
    garbage_log(path)
    with opened(path) as found:
        assert found.loaded.first_seq == 2**52 + AFTER_A_CRASH + 1


def test_a_log_that_a_power_cut_left_unwritten_is_no_damage(path: Path) -> None:
    fill(path)
    path.with_name("pool.db-wal").write_bytes(bytes(10_000))
    with opened(path) as found:
        assert (found.loaded.quarantined, len(found.loaded.sessions)) == (None, 1)


def test_a_log_that_ends_too_early_loses_its_end_only(path: Path) -> None:
    fill(path, cleanly=False)
    log = path.with_name("pool.db-wal")
    os.truncate(log, log.stat().st_size - 100)
    with opened(path) as found:
        assert found.loaded.quarantined is None
