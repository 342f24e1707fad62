"""Globs and ignore files against tables, and against git itself."""

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.tools.search.ignore import IgnoreStack, glob_matcher, parse_rules


@pytest.mark.parametrize(
    ("pattern", "fits", "fits_not"),
    [
        ("*.py", ["a.py", "x/a.py", ".py"], ["a.pyc", "a.py/b"]),
        ("a?c", ["abc", "x/a-c"], ["ac", "a/c"]),
        ("src/*.py", ["src/a.py"], ["x/src/a.py", "src/x/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/x/y/a.py"], ["a.py"]),
        ("**/a", ["a", "x/a", "x/y/a"], ["xa"]),
        ("src/**", ["src/a", "src/a/b"], ["src"]),
        ("/src", ["src"], ["x/src"]),
        ("a**b", ["ab", "axxb"], ["a/b"]),
        ("[ab]", ["a", "b"], ["c", "ab"]),
        ("[!ab]", ["c"], ["a", "/"]),
        ("[]]", ["]"], ["["]),
        ("[a-c].x", ["b.x"], ["d.x"]),
        ("[", ["["], ["a"]),
        (r"\*", ["*"], ["a"]),
        (r"[\w]", ["w", "\\"], ["a"]),
        ("*.{js,ts}", ["a.js", "a.ts"], ["a.jsts"]),
        ("{a,b{c,d}}", ["a", "bc", "bd"], ["b"]),
        ("{a", ["{a"], ["a"]),
        ("a,b", ["a,b"], ["a", "b"]),
        ("a+(b).$", ["a+(b).$"], ["aab.$"]),
        ("日*", ["日本"], ["本"]),
        ("*", ["a\nb"], []),
    ],
)
def test_globs(pattern: str, fits: list[str], fits_not: list[str]) -> None:
    matcher = glob_matcher(pattern)
    assert [path for path in fits if not matcher.fullmatch(path)] == []
    assert [path for path in fits_not if matcher.fullmatch(path)] == []


@given(st.text(st.sampled_from("ab*?[]!^-{},\\/.()|+$&~ "), max_size=12))
def test_any_pattern_is_translated_or_refused_as_one(pattern: str) -> None:
    try:
        glob_matcher(pattern).fullmatch("a/b")
    except re.error:
        assert "[" in pattern or "{" in pattern


@pytest.mark.parametrize(
    ("rules", "path", "kind", "ignored"),
    [
        ("*.o", "x/a.o", "file", True),
        ("# *.o", "a.o", "file", False),
        (r"\#a", "#a", "file", True),
        (r"\!a", "!a", "file", True),
        ("build/", "build", "directory", True),
        ("build/", "build", "file", False),
        ("/a", "a", "file", True),
        ("/a", "x/a", "file", False),
        ("x/a", "x/a", "file", True),
        ("x/a", "y/x/a", "file", False),
        ("*.o\n!keep.o", "keep.o", "file", False),
        ("!keep.o\n*.o", "keep.o", "file", True),
        ("*\n!*/\n!*.c", "a.c", "file", False),
        ("*\n!*/\n!*.c", "dir", "directory", False),
        ("a ", "a", "file", True),
        (r"a\ ", "a ", "file", True),
        ("a\r\nb\r\n", "a", "file", True),
        ("[z-a]\nb", "b", "file", True),
        ("", "a", "file", False),
        ("/\n!\n", "a", "file", False),
        ("[#\\]", "#", "file", False),
        ("?//", "a", "directory", False),  # as git has it
        ("{a,b}", "a", "file", False),
    ],
)
def test_ignore_files(rules: str, path: str, kind: str, ignored: object) -> None:
    ignoring = IgnoreStack().with_rules_above(parse_rules(rules), "")
    assert ignoring.ignores(path, is_directory=kind == "directory") is ignored


def test_inner_rules_go_before_outer_ones_and_count_from_their_own_directory() -> None:
    above = IgnoreStack().with_rules_above(parse_rules("/top/in/*.x\n*.y\n"), "top/")
    assert above.ignores("in/a.x", is_directory=False)
    assert not above.ignores("a.x", is_directory=False)
    inner = above.with_rules_of("in/", parse_rules("!*.y\n/only\n"))
    assert not inner.ignores("in/a.y", is_directory=False)
    assert inner.ignores("in/only", is_directory=False)
    assert not inner.ignores("in/deep/only", is_directory=False)


_line = st.text(st.sampled_from("ab*?/!.[]\\# "), max_size=7)


@pytest.mark.process
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(lines=st.lists(_line, max_size=5))
def test_git_ignores_the_same(workspace: Path, lines: list[str]) -> None:
    paths = ["a", "b", "ab", ".a", "a.b", "#", "!a", "aa/a", "aa/b", "b.b/a/b"]
    if not (workspace / ".git").exists():
        subprocess.run(["git", "init", "-q", "."], cwd=workspace, check=True)
    (workspace / ".gitignore").write_text("\n".join(lines) + "\n")
    asked = subprocess.run(
        ["git", "-c", "core.excludesFile=", "check-ignore", "--no-index", "--stdin", "-z"],
        cwd=workspace,
        input="\0".join(paths).encode(),
        capture_output=True,
        check=False,
    )
    ignoring = IgnoreStack().with_rules_above(parse_rules("\n".join(lines)), "")

    def ignored(path: str) -> bool:
        parts = path.split("/")
        above = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
        return any(ignoring.ignores(one, is_directory=True) for one in above) or ignoring.ignores(
            path, is_directory=False
        )

    assert [path for path in paths if ignored(path)] == [path for path in asked.stdout.decode().split("\0") if path]
