"""A supervisor as a child process: one that does not start is told of, whatever another has left in its folder."""

import socket
from pathlib import Path

import pytest

from commands.demo import SupervisorProcess
from errors import PoolError


@pytest.mark.process
def test_a_start_that_fails_beside_the_socket_of_one_that_was_killed_is_told_of(short_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(short_dir / "s"))
    refused = SupervisorProcess(short_dir, "[pool]\nmax = 0\n")
    with pytest.raises(PoolError, match="did not start"), refused:
        pass
    assert "pool.max: must be 1 or more" in refused.log_tail()
