"""Any text is one file's name, and never another text's."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from router.workspaces import file_name
from tests.router.sources import tricky

texts = st.one_of(tricky, st.text(max_size=12), st.text("aAé/.:%~+", max_size=200))


def as_a_forgiving_file_system_sees_it(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


@given(texts, texts)
def test_two_texts_never_have_one_name_on_any_file_system(one: str, other: str) -> None:
    names = [as_a_forgiving_file_system_sees_it(file_name(text)) for text in (one, other)]
    assert (names[0] == names[1]) == (one == other)


@given(texts)
def test_a_name_is_one_level_of_a_path_and_short_enough(text: str) -> None:
    name = file_name(text)
    assert 1 <= len(name) <= 160
    assert name not in (".", "..")
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_+%~")


def test_a_name_can_be_read_by_people() -> None:
    assert file_name("agent:main:telegram:dm:5") == "agent+main+telegram+dm+5"
    assert file_name("a/b") == "a%2fb"
    assert file_name("") == "%"


def test_names_that_are_cut_are_told_apart_by_what_was_cut() -> None:
    long = "a" * 10_000
    assert file_name(long) != file_name(long + "b")
    assert file_name(long).startswith("a" * 80 + "~")
    assert file_name("a" * 160) == "a" * 160
