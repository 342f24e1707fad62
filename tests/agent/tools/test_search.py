"""``find`` and ``grep`` over real trees, each in a child process that always ends."""

import os
from pathlib import Path

import psutil
import pytest
import trio

from agent.tools.base import ToolError
from agent.tools.find import FindTool
from agent.tools.grep import GrepTool
from agent.tools.names import escape_name
from agent.tools.paths import resolve_path
from agent.tools.search import search as running
from agent.tools.search.search import Query, SearchResult, SearchSummary, search, skipped_notes
from tests.agent.tools.using import Bench
from wire.procfs import children_of

pytestmark = pytest.mark.process


@pytest.fixture
def tree(workspace: Path) -> Path:
    for path, text in {
        "README.md": "Alpha\nbeta\n",
        "src/a.py": "def alpha():\n    return 1\n\n\ndef beta():\n    return alpha()\n",
        "src/deep/b.ts": "const alpha = 1\r\n",
        "src/deep/.hidden": "alpha\n",
        "build/out.py": "alpha\n",
        ".git/config": "alpha\n",
        ".gitignore": "build/\n*.log\n",
        "src/keep/.gitignore": "!*.log\n",
        "src/x.log": "alpha\n",
        "src/keep/y.log": "alpha\n",
        "data.bin": "alpha\0\n",
    }.items():
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_bytes(text.encode())
    return workspace


IGNORED = "[not searched: 2 names that .gitignore leaves out (see include_ignored)]"
CUT = "[1 of 2 matching lines in 1 files are shown; narrow the search, or set limit higher]"


@pytest.mark.parametrize(
    ("arguments", "paths"),
    [
        ({"pattern": "*.py"}, ["src/a.py"]),
        ({"pattern": "*.{py,ts}"}, ["src/a.py", "src/deep/b.ts"]),
        ({"pattern": "src/**/*.ts"}, ["src/deep/b.ts"]),
        ({"pattern": "*", "path": "src/deep"}, ["src/deep/.hidden", "src/deep/b.ts"]),
        ({"pattern": "deep"}, ["src/deep/"]),
        ({"pattern": "*.log"}, ["src/keep/y.log"]),
        ({"pattern": "*.log", "path": "src"}, ["src/keep/y.log"]),
        ({"pattern": "*.log", "include_ignored": True}, ["src/keep/y.log", "src/x.log"]),
        ({"pattern": "out.py", "path": "build"}, ["build/out.py"]),  # asked for by name
        ({"pattern": "config", "include_ignored": True}, ["No paths match."]),
        ({"pattern": "nothing"}, ["No paths match.", IGNORED]),
    ],
)
async def test_find(bench: Bench, tree: Path, arguments: dict[str, object], paths: list[str]) -> None:
    assert (await bench.text(FindTool(), **arguments)).split("\n") == paths


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({"pattern": "alpha", "glob": "*.py"}, ["src/a.py:1: def alpha():", "src/a.py:6:     return alpha()"]),
        ({"pattern": "^alpha$", "path": "src/deep"}, ["src/deep/.hidden:1: alpha"]),
        ({"pattern": "= 1$"}, ["src/deep/b.ts:1: const alpha = 1", "[not searched: 1 binary files]"]),
        ({"pattern": "ALPHA", "path": "README.md", "ignore_case": True}, ["README.md:1: Alpha"]),
        ({"pattern": "alpha()", "literal": True, "path": "src/a.py", "limit": 1},
         ["src/a.py:1: def alpha():", CUT]),
        ({"pattern": "def", "path": "src/a.py", "context": 1},
         ["src/a.py:1: def alpha():", "src/a.py-2-     return 1", "--", "src/a.py-4- ", "src/a.py:5: def beta():",
          "src/a.py-6-     return alpha()"]),
        ({"pattern": "alpha", "path": "data.bin"}, ["No lines match.", "[not searched: 1 binary files]"]),
        ({"pattern": "alpha", "path": "src/x.log"}, ["src/x.log:1: alpha"]),
    ],
)  # fmt: skip
async def test_grep(bench: Bench, tree: Path, arguments: dict[str, object], lines: list[str]) -> None:
    assert (await bench.text(GrepTool(), **arguments)).split("\n") == lines


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pattern": "("}, "pattern: missing .* at position 0"),
        ({"pattern": "(?P<x>a)(?P<x>b)"}, "pattern: redefinition of group name"),
        ({"pattern": "(" * 900 + ")" * 900}, "pattern: "),
        ({"pattern": "a\nb"}, "pattern: it holds a line end"),
        ({"pattern": "\udc80"}, "pattern: the character at index 0"),
        ({"pattern": "a", "glob": "\ud800"}, "glob: the character at index 0"),
        ({"pattern": "a", "path": "none"}, "cannot search none: No such file"),
        ({"pattern": "a", "path": ".."}, "outside the working directory"),
        ({"pattern": "a", "path": "pipe"}, "pipe is a named pipe, and cannot be searched"),
    ],
)
async def test_what_cannot_be_searched_is_told(
    bench: Bench, workspace: Path, arguments: dict[str, str], message: str
) -> None:
    os.mkfifo(workspace / "pipe")
    with pytest.raises(ToolError, match=message):
        await bench.use(GrepTool(), **arguments)


# The time of a search is taken from the processor that it uses: what it finds in it does not depend on who else runs.
OF_THE_PROCESSOR = "import signal; signal.SIGALRM, signal.ITIMER_REAL = signal.SIGVTALRM, signal.ITIMER_VIRTUAL; "


async def test_a_pattern_that_takes_forever_is_stopped_in_the_middle_of_a_line(
    bench: Bench, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_BOOT", OF_THE_PROCESSOR + running._BOOT)
    monkeypatch.setattr(running, "_GRACE", 1000)
    for name, text in (("a", "aaab\naab\n"), ("b", "a" * 100 + "c\n"), ("c", "aaab\n")):
        (workspace / name).write_text(text)
    before = children_of(os.getpid())
    place = resolve_path(bench.context, ".")
    outcome = await search(Query(pattern="(a+)+b", limit=10), place, bench.context, seconds=0.3)
    assert outcome.lines == ["a:1: aaab", "a:2: aab"]
    assert outcome.end is not None  # it ended itself: who is killed tells no end
    assert (outcome.end.stopped_at, outcome.end.matches) == ("b", 2)
    outcome = await search(Query(pattern="(a+)+b", limit=1), place, bench.context)
    assert outcome.lines == ["a:1: aaab"]  # what is beyond the limit is counted for a second at most
    assert skipped_notes(outcome, "lines")[0].startswith("[1 of at least 2 lines in 1 files are shown")
    assert children_of(os.getpid()) <= before


async def test_a_child_that_does_not_end_itself_is_killed_and_one_that_dies_is_a_failure(
    bench: Bench, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_BOOT", "import time; time.sleep(60)")
    monkeypatch.setattr(running, "_GRACE", 0.1)
    before = children_of(os.getpid())
    place, query = resolve_path(bench.context, "."), Query(glob="*", limit=1)
    outcome = await search(query, place, bench.context, seconds=0.1)
    assert (outcome.lines, outcome.end) == ([], None)
    assert children_of(os.getpid()) <= before
    monkeypatch.setattr(running, "_BOOT", "raise SystemExit(3)")
    with pytest.raises(ToolError, match="ended unexpectedly") as caught:
        await search(query, place, bench.context)
    assert caught.value.retryable


async def test_the_event_loop_goes_on_while_a_pattern_takes_forever_and_a_cancelled_search_leaves_no_child(
    bench: Bench, workspace: Path
) -> None:
    (workspace / "b").write_text("a" * 100 + "c\n")
    before = children_of(os.getpid())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(search, Query(pattern="(a+)+b", limit=10), resolve_path(bench.context, "."), bench.context)
        with trio.fail_after(10):  # it would take 20 s: who held the loop up that long would be seen here
            while not (found := children_of(os.getpid()) - before):  # noqa: ASYNC110 - turns of the loop are asked for
                await trio.sleep(0.01)
            child = psutil.Process(found.pop())
            while child.cpu_times().user < 0.3:  # noqa: ASYNC110 - see above
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert children_of(os.getpid()) <= before


async def test_links_are_shown_but_never_followed(bench: Bench, workspace: Path) -> None:
    (workspace.parent / "secret").mkdir()
    (workspace.parent / "secret/file").write_text("alpha")
    (workspace / "out").symlink_to(workspace.parent / "secret")
    (workspace / "file").symlink_to(workspace.parent / "secret/file")
    (workspace / ".gitignore").symlink_to(workspace.parent / "secret/file")
    (workspace / "sub").mkdir()
    os.mkfifo(workspace / "sub/.gitignore")
    (workspace / "circle").symlink_to(".")
    found = (await bench.text(FindTool(), pattern="*")).split("\n")
    assert found == [".gitignore", "circle", "file", "out", "sub/", "sub/.gitignore"]
    assert await bench.text(GrepTool(), pattern="alpha") == "No lines match."


async def test_names_of_any_bytes_are_found_and_lead_back(bench: Bench, workspace: Path) -> None:
    for name in (b"caf\xe9", b"two\nlines", "日本".encode()):
        (workspace / os.fsdecode(name)).write_text("alpha")
    assert (await bench.text(FindTool(), pattern="*")).split("\n") == [r"caf\xe9", r"two\x0alines", "日本"]
    for line in (await bench.text(GrepTool(), pattern="alpha")).split("\n"):
        path = line.removesuffix(":1: alpha")
        assert await bench.text(GrepTool(), pattern="alpha", path=path) == line
    assert escape_name("日本") == "日本"


async def test_long_lines_are_cut_around_the_match_and_long_results_go_to_a_file(workspace: Path) -> None:
    bench = Bench(workspace, outputs=str(workspace.parent / "outputs"))
    (workspace / "min.js").write_text("x" * 5000 + "needle" + "y" * 5000)
    assert await bench.text(GrepTool(), pattern="needle") == f"min.js:1: ...{'x' * 100}needle{'y' * 394}..."
    (workspace / "many").write_text(("z" * 400 + "\n") * 500)
    text = await bench.text(GrepTool(), pattern="zz", limit=2000)
    assert len(text) < 50_500
    (full,) = (workspace.parent / "outputs").iterdir()
    assert str(full) in text
    assert full.read_text().count("many:") == 500


async def test_a_search_passes_over_the_outputs_of_conversations_but_its_own(workspace: Path) -> None:
    own = workspace / "kept/own.tool-outputs"
    for directory in (own, workspace / "kept/other.tool-outputs"):
        directory.mkdir(parents=True)
        (directory / "full.txt").write_text("all of it")
    bench = Bench(workspace, outputs=str(own))
    assert await bench.text(FindTool(), pattern="*", path="kept", include_ignored=True) == "No paths match."
    assert await bench.text(GrepTool(), pattern="all", include_ignored=True) == "No lines match."
    found = await bench.text(GrepTool(), pattern="all", path=str(own))
    assert found == "kept/own.tool-outputs/full.txt:1: all of it"


async def test_a_search_is_bounded_in_depth_and_in_the_size_of_files(bench: Bench, workspace: Path) -> None:
    (workspace / "/".join(["d"] * 130)).mkdir(parents=True)
    with (workspace / "big").open("wb") as big:
        big.truncate(32 * 1024 * 1024 + 1)
    output = await bench.use(GrepTool(), pattern="a")
    assert output.text.endswith("[not searched: 1 files larger than 32 MiB, 1 directories more than 100 levels deep]")


@pytest.mark.parametrize(
    ("outcome", "notes"),
    [
        (SearchResult(["a"], SearchSummary(1, 1)), []),
        (SearchResult(["a"], None), ["[the search took too long and was stopped; there may be more paths."]),
        (SearchResult(["a"], SearchSummary(9, 1, stopped_at="x")), ["[1 of at least 9 paths are shown;"]),
        (SearchResult(["a"], SearchSummary(1, 1, stopped_at="x")), ["[the time was up at x;"]),
        (SearchResult([], SearchSummary(ignored=2)), ["[not searched: 2 names"]),
        (SearchResult(["a"], SearchSummary(1, 1, ignored=2, unreadable=3)), ["[not searched: 3 files or directories"]),
    ],
)
def test_what_is_not_shown_is_told(outcome: SearchResult, notes: list[str]) -> None:
    told = skipped_notes(outcome, "paths")
    assert [line[: len(note)] for line, note in zip(told, notes, strict=True)] == notes
