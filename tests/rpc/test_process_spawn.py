"""Starting a worker: what it inherits, and what is said when it cannot be started."""

import errno
import os
import resource
import secrets
from pathlib import Path

import pytest

from errors import WorkerStartFailed
from rpc.children import ChildRegistry
from rpc.process import WorkerProcess
from rpc.settings import RpcSettings
from rpc.spawn import WorkerSpec, start_process, worker_environment
from tests.rpc.procs import open_fds, spec_of
from wire.procfs import MARKER_VARIABLE, children_of

pytestmark = pytest.mark.process


def spec_for(*argv: str, cwd: str = "/", env: tuple[tuple[str, str], ...] = (("PATH", "/usr/bin:/bin"),)) -> WorkerSpec:
    return WorkerSpec(worker_id="w9", marker=f"{secrets.token_hex(4)}:w9", argv=argv, env=env, cwd=cwd)


def why_not(spec: WorkerSpec, *, passing: bool = False) -> str:
    """The reason a spec cannot be started; by then nothing is left open, running or unreaped.

    ``passing``: the next attempt may go well, so that the waiters are not refused at once.
    """
    fds, children = open_fds(), children_of(os.getpid())
    registry = ChildRegistry()
    with pytest.raises(WorkerStartFailed, match=r"^worker w9 could not be ") as caught:
        WorkerProcess.spawn(spec, registry, RpcSettings())
    assert open_fds() == fds
    assert children_of(os.getpid()) == children
    assert registry.pids() == set()
    assert caught.value.details["worker"] == "w9"
    assert caught.value.details.get("refused", False) is not passing
    return str(caught.value)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (
            spec_for("no-such-agent", "--mode", "rpc"),
            "no program 'no-such-agent' on PATH; mend `command` in its agent definition",
        ),
        (spec_for("/no/such/agent"), "there is no program /no/such/agent; mend `command`"),
        (spec_for("true", cwd="/no/such/place"), "its working directory /no/such/place does not exist"),
        (spec_for("true", cwd=__file__), f"{__file__} is not a directory"),
        (spec_for(__file__), f"{__file__} is not executable"),
        (spec_for(Path(__file__).name, env=(("PATH", str(Path(__file__).parent)),)), f"{__file__} is not executable"),
        (spec_for("/usr"), "/usr is not executable"),
        (spec_for("true", "x" * 200_000), "too long for the kernel"),
        (spec_for("true", "a\0b"), "cannot be passed on"),
        (spec_for("true", env=(("A=B", "x"),)), "cannot be passed on"),
        (spec_for(), "its command is empty"),
    ],
    ids=lambda value: "" if isinstance(value, WorkerSpec) else value[:40],
)
def test_what_cannot_be_started_is_told_with_what_to_mend(spec: WorkerSpec, reason: str) -> None:
    assert reason in why_not(spec)


def test_a_script_without_its_interpreter_is_told_as_such(tmp_path: Path) -> None:
    script = tmp_path / "agent"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    assert "its interpreter (the #! line) is missing" in why_not(spec_for(str(script)))


def fill_table_of_files() -> list[int]:
    """Open files until no more can be."""
    padding: list[int] = []
    while True:
        try:
            padding.append(os.open("/dev/null", os.O_RDONLY))
        except OSError as exc:
            assert exc.errno == errno.EMFILE  # noqa: PT017  # any other failure is the test's own
            return padding


@pytest.mark.parametrize("free", range(8))
def test_a_full_table_of_files_is_told_and_leaves_nothing_open(free: int) -> None:
    # Three pipes and the pipe that tells of a failed exec: whichever end of them is the one too many.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name.split()[0]) for name in open_fds())
    registry = ChildRegistry()
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 20, hard))
    padding = fill_table_of_files()
    try:
        for fd in padding[:free]:
            os.close(fd)
        with pytest.raises(WorkerStartFailed) as caught:
            WorkerProcess.spawn(spec_for("/bin/true"), registry, RpcSettings())
        reopened = fill_table_of_files()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in padding:
            os.close(fd)  # the first of them are the reopened ones: the lowest free number is taken
    assert len(reopened) == free
    assert "ulimit -n" in str(caught.value)
    assert registry.pids() == set()


@pytest.mark.parametrize(
    ("number", "reason"), [(errno.EMFILE, "the supervisor has no file descriptor left"), (errno.ESRCH, "it has ended")]
)
def test_a_worker_that_cannot_be_watched_is_not_left_running(
    monkeypatch: pytest.MonkeyPatch, number: int, reason: str
) -> None:
    def refuse(_pid: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    assert f"could not be watched: {reason}" in why_not(spec_of("input()", worker_id="w9"), passing=True)


@pytest.mark.parametrize(("number", "word"), [(errno.EAGAIN, "ulimit -u"), (errno.ENOMEM, "memory")])
def test_a_machine_that_is_full_is_told_as_such(number: int, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("rpc.spawn.subprocess.Popen", refuse)
    assert word in why_not(spec_for("true"), passing=True)


def test_our_ends_of_the_pipes_do_not_block_and_are_not_inherited() -> None:
    started = start_process(spec_of("pass"))
    for fd in started[1:]:
        assert not os.get_blocking(fd)
        assert not os.get_inheritable(fd)
        os.close(fd)
    assert started.popen.wait() == 0


def test_the_environment_is_what_passes_the_list_then_the_profiles_then_the_marker() -> None:
    base = {"PATH": "/bin", "HOME": "/root", "AWS_SECRET": "x", MARKER_VARIABLE: "outer:w1"}
    profile = [("HOME", "/agent"), ("TOKEN", "t"), (MARKER_VARIABLE, "forged:w1")]
    built = worker_environment(RpcSettings(), base, profile, "inner:w2")
    assert built == {MARKER_VARIABLE: "inner:w2", "PATH": "/bin", "HOME": "/agent", "TOKEN": "t"}
    assert next(iter(built)) == MARKER_VARIABLE


def test_a_spec_shows_neither_its_secrets_nor_its_prompt() -> None:
    spec = spec_for("agent", "--system-prompt", "be kind", env=(("TOKEN", "hush"),))
    assert repr(spec) == "WorkerSpec(w9 ('agent',) cwd=/)"
