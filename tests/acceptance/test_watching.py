"""A prompt shows what its tools do while they do it, on a terminal and in the background."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.builds import Build
from tests.acceptance.supervisor import LONGEST_YIELD_MS, POOL, Supervisor, running_supervisor
from tests.commands.terminal import on_a_terminal
from tests.wire.terminals import screen_of

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    with running_supervisor(tmp_path_factory.mktemp("w"), "--max", "1") as running:
        yield running


def test_updates_of_a_command_are_drawn_in_place_and_gone_at_the_end(supervisor: Supervisor, tmp_path: Path) -> None:
    build = Build(tmp_path, first="printf 'half%s\\n' way", yield_ms=LONGEST_YIELD_MS)
    command = [*POOL, "prompt", "--socket", str(supervisor.socket), "-s", "drawn", f"{build.prompt} ECHO:it is done"]
    with on_a_terminal(command, columns=40, NO_COLOR="") as terminal:
        terminal.read_until("\x1b[2m  │ halfway\x1b[0m\n")
        build.end()
        *_waits, begun, ended, answer = screen_of(terminal.read_until("it is done\n"))
    assert (len(begun), begun[-1]) == (39, "…")
    assert ended.startswith("  ✓ ok, code 0 (")
    assert answer == "it is done"


def test_a_command_that_goes_to_the_background_is_named_and_its_end_told(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    build = Build(tmp_path)
    poll = 'TOOL:process {"action": "poll", "session_id": "$SESSION"}'
    command = supervisor.start("prompt", "-s", "named", f"{build.prompt} {poll} DELAY=100000 ECHO:late")
    assert command.stderr is not None
    lines = iter(command.stderr)
    next(lines)
    named = next(lines)
    assert named.startswith("  … still running in the background as ")
    next(line for line in lines if "still runs" in line)  # an end that the agent's poll had seen would be no news
    build.end()
    told = next(line for line in lines if line.startswith("· Exec completed"))
    assert f"({named.split()[7]}, code 0)" in told
    supervisor.call("abort", session="named")
    command.communicate(timeout=20)
