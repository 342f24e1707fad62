"""Reading /proc: names with brackets, markers anywhere, processes that are gone."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.procfs import (
    MARKER_VARIABLE,
    all_pids,
    boot_id,
    identify,
    marker_of,
    parse_marker,
    parse_stat,
    read_stat,
    read_usage,
)

FIELDS = "S 17 200 300 0 -1 {flags} 1 0 0 0 0 0 0 0 20 0 1 0 424242" + 28 * " 7" + " {env_end} 0"


@given(st.binary(max_size=15))
def test_a_stat_line_is_read_whatever_the_program_is_called(name: bytes) -> None:
    stat = parse_stat(b"42 (" + name + b") " + FIELDS.format(flags=4194560, env_end=9).encode())
    assert stat is not None
    assert (stat.pid, stat.state, stat.parent, stat.session, stat.start_time) == (42, "S", 17, 300, 424242)


@pytest.mark.parametrize(
    ("flags", "env_end", "is_bare"),
    [(4194560, 0, True), (4194560, 140722, False), (4194564, 0, False), (2129984, 0, False)],
    ids=["inside exec", "running", "dying", "kernel thread"],
)
def test_a_process_inside_exec_is_told_from_others_without_an_environment(
    flags: int, env_end: int, *, is_bare: bool
) -> None:
    stat = parse_stat(b"42 (x) " + FIELDS.format(flags=flags, env_end=env_end).encode())
    assert stat is not None
    assert stat.lacks_environment is is_bare


def test_half_a_stat_line_is_no_process() -> None:
    assert parse_stat(b"") is None
    assert parse_stat(b"42 (x) S 17 200") is None


@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=20)), st.integers(0, 5))
def test_the_marker_is_found_wherever_it_stands(others: list[str], place: int) -> None:
    others = [other for other in others if not other.startswith(MARKER_VARIABLE)]
    pairs = [*others[:place], f"{MARKER_VARIABLE}=abc:w1", *others[place:]]
    assert parse_marker("\0".join(pairs).encode() + b"\0") == "abc:w1"


@pytest.mark.parametrize("environment", [b"", b"A=1\0", b"MY_POOL_WORKER_ID=abc:w1\0", b"A=POOL_WORKER_ID=x\0"])
def test_what_only_looks_like_a_marker_is_none(environment: bytes) -> None:
    assert parse_marker(environment) is None


def test_we_find_ourselves() -> None:
    me = read_stat(os.getpid())
    assert me is not None
    assert me.parent == os.getppid()
    assert identify(os.getpid(), "m").start_time == me.start_time
    assert os.getpid() in all_pids()
    assert len(boot_id()) == 36


def test_what_a_process_uses_is_what_others_say_of_it() -> None:
    process = psutil.Process()
    before = process.cpu_times()
    used = read_usage(os.getpid())
    after = process.cpu_times()
    assert used is not None
    tick = 1e-6  # the sums of floats
    assert before.user + before.system - tick <= used.cpu <= after.user + after.system + tick
    assert used.rss == pytest.approx(process.memory_info().rss, rel=0.1)


@pytest.mark.process
def test_a_zombie_still_has_a_start_time_but_no_marker() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", ""], env={MARKER_VARIABLE: "abc:w1"}) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        stat = read_stat(child.pid)
        assert stat is not None
        assert stat.state == "Z"
        assert marker_of(child.pid) is None
        assert read_usage(child.pid) is None
    assert read_stat(child.pid) is None


def test_what_the_guard_imports_needs_nothing_that_is_not_in_the_standard_library() -> None:
    root = Path(__file__).parents[2]
    script = (
        "import sys, types\n"
        "for room in ('rpc', 'wire'):\n"
        "    package = sys.modules[room] = types.ModuleType(room)\n"
        "    package.__path__ = [f'{sys.argv[1]}/{room}']\n"
        "import rpc.guard_main\n"
        "tops = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(tops - {'rpc', 'wire'} - sys.stdlib_module_names))"
    )
    found = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, str(root)], check=True, capture_output=True, text=True
    )
    assert found.stdout.strip() == "['__main__']" or found.stdout.strip() == "[]"


@pytest.mark.process
def test_the_marker_can_be_read_from_the_moment_of_the_spawn() -> None:
    # Without waiting for the end of exec one look in ten finds an empty environment.
    for _ in range(60):
        with subprocess.Popen(
            ["/bin/sh", "-c", "read x"], stdin=subprocess.PIPE, env={MARKER_VARIABLE: "abc:w1"}
        ) as child:
            assert marker_of(child.pid) == "abc:w1"
            child.kill()


def test_a_process_that_waits_for_a_cpu_inside_exec_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = iter([b""] * 100 + [f"{MARKER_VARIABLE}=abc:w1".encode()])
    inside = parse_stat(b"42 (x) " + FIELDS.format(flags=4194560, env_end=0).encode())
    monkeypatch.setattr("wire.procfs._read_file", lambda _: next(texts))
    monkeypatch.setattr("wire.procfs.read_stat", lambda _: inside)
    assert marker_of(1) == "abc:w1"


@pytest.mark.process
def test_an_environment_that_is_empty_for_good_is_not_waited_for() -> None:
    with subprocess.Popen(["/bin/sh", "-c", "echo; read x"], stdin=-1, stdout=-1, env={}) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert marker_of(child.pid) is None
        child.kill()
