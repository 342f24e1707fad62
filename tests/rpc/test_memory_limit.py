"""What the cgroups allow, in both versions; and which process the kernel is to end first."""

from pathlib import Path

import pytest

from rpc.cgroup import CgroupLocation, MemoryLimit, memory_limit
from tests.rpc.procs import running, spec_of

MIB = 1024**2


@pytest.mark.parametrize(
    ("v2", "v1", "expected"),
    [
        ({"app/worker": 300, "app": 400}, {}, ("v2/app/worker/memory.max", 300)),
        ({"app/worker": None, "app": 400}, {}, ("v2/app/memory.max", 400)),
        ({}, {"app/worker": 500, "app": 200, "": 900}, ("v1/app/memory.limit_in_bytes", 200)),
        ({"app/worker": 300}, {"app": 200}, ("v1/app/memory.limit_in_bytes", 200)),
        ({"app/worker": None}, {}, None),
        ({}, {}, None),
    ],
)
def test_the_lowest_limit_of_a_cgroup_and_its_parents_holds(
    tmp_path: Path, v2: dict[str, int | None], v1: dict[str, int | None], expected: tuple[str, int] | None
) -> None:
    (tmp_path / "memory.max").write_text("1")  # outside the hierarchy
    for place, name, limits in (("v2", "memory.max", v2), ("v1", "memory.limit_in_bytes", v1)):
        (tmp_path / place / "app/worker").mkdir(parents=True)
        for directory, size in limits.items():
            (tmp_path / place / directory / name).write_text("max\n" if size is None else f"{size * MIB}\n")
    mounts = {"": tmp_path / "v2", "memory": tmp_path / "v1"}
    found = memory_limit(lambda controller: CgroupLocation(mounts[controller] / "app/worker", mounts[controller]))
    assert found == (None if expected is None else MemoryLimit(expected[1] * MIB, tmp_path / expected[0]))


def test_where_there_are_no_cgroups_there_is_no_limit() -> None:
    assert memory_limit(lambda _: None) is None


@pytest.mark.process
async def test_a_worker_goes_before_the_supervisor_where_memory_is_short() -> None:
    own = int(Path("/proc/self/oom_score_adj").read_text())  # noqa: ASYNC240
    async with running(spec_of("import time; time.sleep(60)")) as process:
        theirs = int(Path(f"/proc/{process.pid}/oom_score_adj").read_text())  # noqa: ASYNC240
        assert theirs == min(own + 500, 1000)
