"""Cgroups: finding our own, making and killing others, the memory they allow; and doing without."""

import time
from pathlib import Path

import pytest

from rpc.cgroup import Cgroup, CgroupLocation, MemoryLimit, find_cgroup, memory_limit, orphan_guarantee
from tests.rpc.procs import running, spec_of

PLAIN = "31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = (
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "37 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
)
CONTAINER = "31 23 0:28 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"


@pytest.mark.parametrize(
    ("mountinfo", "membership", "found"),
    [
        (PLAIN, "0::/user.slice/session-1.scope\n", "/sys/fs/cgroup/user.slice/session-1.scope"),
        (PLAIN, "0::/\n", "/sys/fs/cgroup"),
        (HYBRID, "8:pids:/x\n0::/app\n", "/sys/fs/cgroup/unified/app"),
        (CONTAINER, "0::/docker/abc/app\n", "/sys/fs/cgroup/app"),
        (CONTAINER, "0::/elsewhere\n", None),
        (PLAIN.replace("/sys/fs/cgroup", "/my\\040groups"), "0::/a\n", "/my groups/a"),
        (PLAIN, "8:pids:/x\n", None),
        ("", "0::/\n", None),
        ("not a mount\n", "0::/\n", None),
    ],
)
def test_our_cgroup_is_found_through_the_mounts(mountinfo: str, membership: str, found: str | None) -> None:
    place = find_cgroup(mountinfo, membership)
    assert (place and place.path) == (Path(found) if found else None)


@pytest.mark.parametrize(
    ("membership", "found"),
    [("8:cpu,pids:/x/y\n0::/app\n", "/sys/fs/cgroup/pids/x/y"), ("0::/app\n", None), ("8:pids\n", None)],
)
def test_a_controller_of_the_first_version_has_a_hierarchy_of_its_own(membership: str, found: str | None) -> None:
    place = find_cgroup(HYBRID, membership, "pids")
    assert (place and (str(place.path), str(place.mount))) == (found and (found, "/sys/fs/cgroup/pids"))


def test_a_directory_that_is_no_cgroup_is_refused_and_not_left_behind(tmp_path: Path) -> None:
    assert Cgroup.make(tmp_path / "pool-x") is None
    assert not (tmp_path / "pool-x").exists()
    assert Cgroup.make(tmp_path / "no" / "parent") is None


def test_a_cgroup_that_vanished_is_empty_and_cannot_be_used(tmp_path: Path) -> None:
    gone = Cgroup(tmp_path / "gone")
    assert not gone.add(1)
    assert not gone.kill()
    assert gone.wait_empty(0)
    assert gone.remove()
    assert gone.for_worker("w1") is None


@pytest.mark.parametrize("name", ["", "..", "a/b", "cgroup.procs", ".hidden"])
def test_a_worker_id_cannot_name_anything_but_a_cgroup_of_its_own(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be the name"):
        Cgroup(tmp_path).for_worker(name)


def test_a_cgroup_is_made_empty_and_removed() -> None:
    cgroup = Cgroup.for_instance(f"test-{time.monotonic_ns()}")
    if cgroup is None:
        pytest.skip("no writable cgroup v2 on this machine")
    worker = cgroup.for_worker("w1")
    assert worker is not None
    assert worker.wait_empty(0)
    assert worker.kill()
    assert cgroup.remove()  # with what is below it
    assert not cgroup.path.exists()


def test_the_guarantee_is_the_best_that_holds() -> None:
    assert orphan_guarantee(cgroup=True, subreaper=True, limit_mark=True).level == "cgroup"
    assert orphan_guarantee(cgroup=False, subreaper=True, limit_mark=True).level == "subreaper"
    assert orphan_guarantee(cgroup=False, subreaper=False, limit_mark=True).level == "marker"
    assert "RLIMIT_RTTIME" in orphan_guarantee(cgroup=False, subreaper=True, limit_mark=True).description
    assert "RLIMIT_RTTIME" not in orphan_guarantee(cgroup=False, subreaper=True, limit_mark=False).description


def test_without_proc_nothing_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rpc.cgroup.Path.exists", lambda _: False)
    assert orphan_guarantee(cgroup=False, subreaper=False, limit_mark=False).level == "none"


def test_only_a_cgroup_with_a_supervisors_name_is_taken_over() -> None:
    assert Cgroup.from_previous("abc", Path("/sys/fs/cgroup")) is None
    assert Cgroup.from_previous("abc", Path("/sys/fs/cgroup/pool-other")) is None
    left = Cgroup.from_previous("abc", Path("/cg/pool-abc"))
    assert left is not None
    assert left.path == Path("/cg/pool-abc")


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
