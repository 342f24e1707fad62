"""``pool logs -f`` over workers that come and go, without a supervisor: which files are open, which lines are shown."""

import io
from contextlib import ExitStack
from pathlib import Path

from commands.log_view import LogView
from commands.logs import FollowedLogs, LogsRequest
from wire.log_file import line_head, log_path


def write(directory: Path, name: str, *texts: str) -> None:
    with log_path(directory, name).open("ab") as file:
        for text in texts:
            file.write(line_head(0.0, "pool") + text.encode() + b"\n")


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_follower_of_all_workers_keeps_no_file_of_one_that_has_ended_and_shows_its_lines_once(tmp_path: Path) -> None:
    out = io.StringIO()
    with ExitStack() as stack:
        view = LogView(out, {}, as_json=False, shows_names=True)
        followed = FollowedLogs(LogsRequest(tmp_path, None, 10, None), view, stack)
        write(tmp_path, "w1", "started")
        followed.show_past(keep_open=True)
        before = open_files()
        for name in (f"w{number}" for number in range(1, 50)):
            write(tmp_path, name, "begins", "ended: exited with code 0")
            followed.read([name])
            followed.read([name])  # what was read already may be announced again
        assert open_files() < before
    shown = [line.split(" ", 1)[1] for line in out.getvalue().splitlines()]
    assert len(shown) == len(set(shown)) == 1 + 49 * 2
