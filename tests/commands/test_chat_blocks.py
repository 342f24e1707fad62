"""Streamed Markdown in blocks: nothing is lost, no cut of the pieces changes them, none grows without limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands.chat.blocks import MAX_BLOCK_CHARS, MAX_FENCED_LINES, MarkdownBlocks
from commands.chat.pastes import MAX_KEPT_CHARS, Pastes

LINES = ("# a", "text", "", " ", "- one", "  more", "1. two", "```py", "```", "~~~", "    x", "| a |", "`b`")
TEXTS = st.lists(st.sampled_from(LINES), max_size=30).map("\n".join)


def blocks_of(*pieces: str) -> list[str]:
    blocks = MarkdownBlocks()
    return [block for piece in pieces for block in blocks.feed(piece)] + blocks.end()


@given(TEXTS, st.data())
def test_a_text_is_the_same_blocks_however_it_is_cut(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole = blocks_of(text)
    assert blocks_of(*pieces) == whole
    assert "".join("".join(whole).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("one\ntwo\n\nthree", ["one\ntwo\n", "three"]),
        ("text\n```\na\n\nb\n```\nend", ["text\n", "```\na\n\nb\n```\n", "end"]),
        ("1. a\n\n   more\n\n2. b\n\nend\n", ["1. a\n\n   more\n\n2. b\n\n", "end\n"]),
        ("~~~\n```\n~~~\n", ["~~~\n```\n~~~\n"]),
    ],
)
def test_a_block_ends_where_nothing_can_change_it_any_more(text: str, blocks: list[str]) -> None:
    assert blocks_of(text) == blocks


def test_what_never_ends_is_printed_in_parts() -> None:
    code = "```py\n" + "x = 1\n" * (3 * MAX_FENCED_LINES)
    parts = blocks_of(code)
    assert len(parts) > 2
    assert all(part.startswith("```py\n") for part in parts)
    assert sum(part.count("x = 1") for part in parts) == 3 * MAX_FENCED_LINES
    words = blocks_of(*["word " * 100] * 200)
    assert max(map(len, words)) <= MAX_BLOCK_CHARS
    assert "".join(words) == "word " * 20_000


def test_a_long_paste_is_a_word_in_the_input_and_the_text_in_the_message() -> None:
    pastes = Pastes()
    assert pastes.shorten("a\r\nb\rc") == "a\nb\nc"
    long = pastes.shorten("x" * 5_000)
    words = f"{long}\n" * 50
    tricky = pastes.shorten(words)
    assert long == "[paste 1: 1 lines, 5,000 characters]"
    assert pastes.expand(f"see {long} and {tricky}") == f"see {'x' * 5_000} and {words}"
    assert (pastes.words(f"see {long} [paste]"), pastes.missing(f"see {long}")) == ([long], None)
    last = pastes.shorten("y" * MAX_KEPT_CHARS)
    assert (pastes.missing(long), pastes.missing(last)) == (long, None)
    assert pastes.expand(last) == "y" * MAX_KEPT_CHARS
