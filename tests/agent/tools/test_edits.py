"""The pure part of editing: exact, unambiguous, all or nothing, line ends kept."""

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools.edits import MAX_DIFF_LINES, Edit, EditError, TextChange, apply_changes, plan_changes, unified_diff


def edited(text: str, *edits: Edit) -> str:
    return apply_changes(text, plan_changes(text, edits))


@pytest.mark.parametrize(
    ("text", "edits", "result"),
    [
        ("a b c", [Edit("b", "x")], "a x c"),
        ("a b c", [Edit("c", "z"), Edit("a", "x")], "x b z"),
        ("a b a", [Edit("a", "x", replace_all=True)], "x b x"),
        ("aaaa", [Edit("aa", "b", replace_all=True)], "bb"),
        ("ab", [Edit("a", "b"), Edit("b", "a")], "ba"),  # each is looked for in the original
        ("one\ntwo\n", [Edit("one\n", "")], "two\n"),
        ("a\r\nb\r\nc\r\n", [Edit("a\nb", "x\ny\nz")], "x\r\ny\r\nz\r\nc\r\n"),
        ("a\r\nb\r\n", [Edit("a\r\n", "x\r\n")], "x\r\nb\r\n"),
        ("a\r\nb\r\n", [Edit("b", "1\n2")], "a\r\n1\r\n2\r\n"),
        ("a\nb\n", [Edit("a\r\nb", "x\r\ny")], "x\ny\n"),
        (
            "a\r\nb\nc\n",
            [Edit("a\nb\n", "x\ny\n")],
            "x\ny\nc\n",
        ),  # mixed: what it replaces has both, the text mostly LF
        ("a\r\nb\nc\n", [Edit("a\n", "x\n")], "x\r\nb\nc\n"),
        ("a\r\nb\nc\n", [Edit("c", "z")], "a\r\nb\nz\n"),
        ("\ufeffa\r\nb", [Edit("\ufeffa\n", "x\n")], "\ufeffx\r\nb"),
        ("\ufeffa\nb", [Edit("b", "c")], "\ufeffa\nc"),
        ("a\rb", [Edit("b", "c\r\nd")], "a\rc\r\nd"),
        ("日本\n😀 end", [Edit("😀", "é")], "日本\né end"),
    ],
)
def test_edits(text: str, edits: list[Edit], result: str) -> None:
    assert edited(text, *edits) == result


@pytest.mark.parametrize(
    ("text", "edits", "problem"),
    [
        ("abc", [Edit("x", "y")], "edits[0].old_text does not occur in the file"),
        ("a\na\nb\na", [Edit("a", "x")], "edits[0].old_text occurs 3 times, at lines 1, 2, 4; add lines around it"),
        ("aaa", [Edit("aa", "x")], "edits[0].old_text occurs 2 times, at lines 1, 1;"),
        ("a\n" * 12, [Edit("a", "x")], "at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...;"),
        ("abc", [Edit("a", "x"), Edit("q", "x")], "edits[1].old_text does not occur"),
        (
            "\nabcd",
            [Edit("abc", "x"), Edit("cd", "y")],
            "edits[0] and edits[1] overlap at line 2; make one edit of them",
        ),
        ("abc", [Edit("abc", "x"), Edit("b", "y")], "edits[0] and edits[1] overlap"),
        ("abc", [Edit("abc", "x"), Edit("abc", "y")], "edits[0] and edits[1] overlap"),
        ("abc", [Edit("b", "b")], "edits[0] changes nothing"),
        ("a\r\nb", [Edit("a\nb", "a\r\nb")], "edits[0] changes nothing"),
        ("abc", [Edit("\ufeff", "b")], "edits[0].old_text holds no text"),
        (
            "x\n  if a:\n\tb()\n",
            [Edit("if a:\n    b()", "c")],
            "text that differs from it in white space only is at line 2",
        ),
        ("", [Edit("a", "b")], "does not occur"),
        ("a" * 10_001, [Edit("a", "b", replace_all=True)], "edits[0].old_text occurs more than 10000 times"),
    ],
)
def test_edits_that_cannot_be_made_say_why_and_where(text: str, edits: list[Edit], problem: str) -> None:
    with pytest.raises(EditError) as caught:
        plan_changes(text, edits)
    assert problem in str(caught.value)


_text = st.text(st.sampled_from("ab \n"), max_size=40)
_edits = st.lists(
    st.builds(Edit, st.text(st.sampled_from("ab \n"), min_size=1, max_size=4), _text, st.booleans()), max_size=4
)


@given(_text, _edits)
def test_all_edits_are_made_or_none(text: str, edits: list[Edit]) -> None:
    try:
        changes = plan_changes(text, edits)
    except EditError:
        return
    assert {text[change.start : change.end] for change in changes} == {edit.old_text for edit in edits}
    assert sorted(change.new for change in changes) == sorted(
        edit.new_text for edit in edits for _ in range(text.count(edit.old_text) if edit.replace_all else 1)
    )
    kept = "".join(
        text[before.end : after.start]
        for before, after in zip(
            [TextChange(0, 0, ""), *changes], [*changes, TextChange(len(text), len(text), "")], strict=True
        )
    )
    assert len(kept) == len(text) - sum(change.end - change.start for change in changes)


@given(_text, _edits)
def test_line_ends_make_no_difference(text: str, edits: list[Edit]) -> None:
    def outcome(source: str) -> str | None:
        try:
            return edited(source, *edits)
        except EditError:
            return None

    unix = outcome(text)
    if "\n" in text:
        assert outcome(text.replace("\n", "\r\n")) == (None if unix is None else unix.replace("\n", "\r\n"))
    marked = outcome("\ufeff" + text)
    assert marked == (None if unix is None else "\ufeff" + unix)


def patched(text: str, diff: str) -> str:
    """Apply a unified diff by its hunk headers, and insist that every context line is right."""
    old, new, position = text.split("\n"), list[str](), 0
    for line in diff.split("\n") if diff else []:
        if line.startswith("@@"):
            start = int(line.split()[1].split(",")[0][1:]) - 1
            new += old[position:start]
            position = start
            assert line.split()[2].split(",")[0] == f"+{len(new) + 1}"
            continue
        if line[0] in " -":
            assert old[position] == line[1:]
            position += 1
        if line[0] in " +":
            new.append(line[1:])
    return "\n".join([*new, *old[position:]])


@given(st.lists(st.sampled_from(["a", "b", "cc", ""]), max_size=40), st.data())
def test_a_diff_says_exactly_what_changed(lines: list[str], data: st.DataObject) -> None:
    text = "\n".join(lines)
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8, unique=True)))
    changes = [
        TextChange(start, end, data.draw(st.text(st.sampled_from("xa\n"), max_size=6)))
        for start, end in zip(places[::2], places[1::2], strict=False)
    ]
    assert patched(text, unified_diff(text, changes)) == apply_changes(text, changes)


def test_a_diff_is_as_small_as_the_usual_one() -> None:
    lines = [f"line {number}" for number in range(1, 60)]
    text = "\n".join(lines) + "\n"
    edits = [Edit("line 5\n", "five\n"), Edit("line 8\n", "eight\n8\n"), Edit("line 40\n", ""), Edit("line 59", "end")]
    changes = plan_changes(text, edits)
    new = apply_changes(text, changes)
    usual = list(difflib.unified_diff(text.splitlines(), new.splitlines(), lineterm=""))[2:]
    assert unified_diff(text, changes).split("\n") == usual


def test_a_long_diff_is_cut_and_counted() -> None:
    text = "a\n" * 1000
    diff = unified_diff(text, plan_changes(text, [Edit("a", "b", replace_all=True)])).split("\n")
    assert len(diff) == MAX_DIFF_LINES + 1
    assert diff[-1] == f"[{2001 - MAX_DIFF_LINES} more lines]"
