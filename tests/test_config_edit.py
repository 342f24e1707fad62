"""One key of a TOML text changed: everything else stays, comments too where that is possible."""

import tomllib
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from errors import UsageError
from settings.edit import edit_text, parse_key, value_candidates


def edited(text: str, key: str, value: Any) -> str:
    change = edit_text(text, parse_key(key), value)
    assert change.in_place
    return change.text


# --- keys and values on the command line ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("data_dir", ("data_dir",)),
        ("pool.max", ("pool", "max")),
        ('agents."my agent".model', ("agents", "my agent", "model")),
        ("agents.'a.b'.env.X", ("agents", "a.b", "env", "X")),
        (" pool . max ", ("pool", "max")),
    ],
)
def test_a_key_is_read_as_toml_reads_it(key: str, path: tuple[str, ...]) -> None:
    assert parse_key(key) == path


@pytest.mark.parametrize("key", ["", "pool.", "pool.prewarm[0]", "my agent", "a = 1\nb"])
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(UsageError):
        parse_key(key)


@pytest.mark.parametrize(
    ("text", "meanings"),
    [
        ("8", [8, "8"]),
        ("true", [True, "true"]),
        ("[1, 2]", [[1, 2], "[1, 2]"]),
        ("{a = 1}", [{"a": 1}, "{a = 1}"]),
        ('"x"', ["x", '"x"']),
        ("30s", ["30s"]),
        ("two words", ["two words"]),
        ("", [""]),
        ("1\nb = 2", ["1\nb = 2"]),
    ],
)
def test_a_value_is_toml_where_it_can_be_and_a_text_otherwise(text: str, meanings: list[Any]) -> None:
    assert value_candidates(text) == meanings


# --- in place ---------------------------------------------------------------------------------------------------------

FILE = """\
# The first lines of a file.
data_dir = "state"   # beside it

[pool]
# How many.
max   = 4 # a "#" here
prewarm = [ # kept warm
  { count = 1 },
]
#idle_timeout = "5m"

# A last word.

[agents."my agent"]
env = { A = "x", B = "y" } # secrets
"""


def test_one_value_changes_and_what_stands_around_it_stays() -> None:
    assert edited(FILE, "pool.max", 8) == FILE.replace("max   = 4 #", "max   = 8 #")
    assert edited(FILE, "data_dir", "#a") == FILE.replace('"state"', '"#a"')


def test_a_value_of_several_lines_is_replaced_as_a_whole() -> None:
    assert edited(FILE, "pool.prewarm", []) == FILE.replace("[ # kept warm\n  { count = 1 },\n]", "[]")


def test_a_new_key_goes_behind_the_line_that_shows_its_default() -> None:
    assert edited(FILE, "pool.idle_timeout", "9m") == FILE.replace(
        '#idle_timeout = "5m"\n', '#idle_timeout = "5m"\nidle_timeout = "9m"\n'
    )


def test_else_behind_the_last_key_of_its_table() -> None:
    assert edited(FILE, "pool.min", 1) == FILE.replace("\n]\n#idle", "\n]\nmin = 1\n#idle")
    assert edited(FILE, 'agents."my agent".model', "m") == FILE + 'model = "m"\n'
    assert edited(FILE, "socket", "/s") == FILE.replace("beside it\n", 'beside it\nsocket = "/s"\n')
    assert edited("[pool]\n\n[rpc]\n", "pool.max", 1) == "[pool]\nmax = 1\n\n[rpc]\n"


def test_a_line_that_shows_the_default_of_another_table_is_not_meant() -> None:
    text = "[a]\n#x = 1\n[b]\ny = 1\n"
    assert edited(text, "b.x", 2) == "[a]\n#x = 1\n[b]\ny = 1\nx = 2\n"


def test_a_table_that_is_not_there_is_added_at_the_end() -> None:
    assert edited(FILE, "gateway.queue.cap", 3) == f"{FILE}\n[gateway.queue]\ncap = 3\n"
    assert edited("a = 1", "b.c", 2) == "a = 1\n\n[b]\nc = 2\n"
    assert edited("", "b.c", 2) == "[b]\nc = 2\n"
    assert edited("", "a", 2) == "a = 2\n"


def test_an_entry_of_a_table_in_one_line_changes_that_line() -> None:
    changed = edited(FILE, 'agents."my agent".env.B', "z")
    assert changed == FILE.replace('{ A = "x", B = "y" }', '{ A = "x", B = "z" }')
    changed = edited(FILE, 'agents."my agent".env.C', "z")
    assert changed == FILE.replace('B = "y" }', 'B = "y", C = "z" }')


def test_dotted_keys_stay_dotted_keys() -> None:
    assert edited("pool.max = 4 # x\n", "pool.max", 5) == "pool.max = 5 # x\n"
    assert edited("pool.max = 4\na = 1\n", "pool.min", 2) == "pool.max = 4\npool.min = 2\na = 1\n"
    assert edited("[a]\nb.c = 1\n", "a.b.d", 2) == "[a]\nb.c = 1\nb.d = 2\n"


def test_an_equals_sign_in_a_key_is_not_the_one_that_counts() -> None:
    assert edited('"a=b" = 1\n', '"a=b"', 2) == '"a=b" = 2\n'


def test_lines_end_as_they_did() -> None:
    text = "[pool]\r\nmax = 4 # x\r\n"
    assert edited(text, "pool.max", 5) == "[pool]\r\nmax = 5 # x\r\n"
    assert edited("[pool]\r\nmax = 4\r\n", "pool.max", 5) == "[pool]\r\nmax = 5\r\n"
    assert edited(text, "pool.min", 1) == "[pool]\r\nmax = 4 # x\r\nmin = 1\r\n"
    assert edited(text, "rpc.x", 1) == "[pool]\r\nmax = 4 # x\r\n\r\n[rpc]\r\nx = 1\r\n"


def test_what_cannot_be_changed_alone_is_written_anew() -> None:
    text = "[[pool.prewarm]]\ncount = 1 # one\n[[pool.prewarm]]\ncount = 2\n"
    change = edit_text(text, ("pool", "prewarm"), [{"count": 3}])
    assert not change.in_place
    assert tomllib.loads(change.text) == {"pool": {"prewarm": [{"count": 3}]}}


def test_a_key_inside_what_is_no_table_is_refused() -> None:
    with pytest.raises(UsageError, match="max is no table"):
        edit_text(FILE, ("pool", "max", "x"), 1)


keys = st.sampled_from(["a", "b", "c d", "e=f", "g#"])
leaves = st.integers(-9, 9) | st.text("ab\n#='\"", max_size=5) | st.lists(st.integers(0, 9), max_size=3)
tables = st.recursive(
    st.dictionaries(keys, leaves, max_size=3),
    lambda inner: st.dictionaries(keys, inner | leaves | st.lists(inner, max_size=2), max_size=3),
    max_leaves=6,
)


@given(table=tables, path=st.lists(keys, min_size=1, max_size=3), value=leaves | tables, multiline=st.booleans())
def test_whatever_the_file_says_the_key_has_the_value_and_nothing_else_has_changed(
    *, table: dict[str, Any], path: list[str], value: Any, multiline: bool
) -> None:
    text = tomli_w.dumps(table, multiline_strings=multiline)
    wanted = tomllib.loads(text)
    inner: Any = wanted
    for name in path[:-1]:
        inner = inner.setdefault(name, {}) if isinstance(inner, dict) else None
    if isinstance(inner, dict):
        inner[path[-1]] = value
        assert tomllib.loads(edit_text(text, tuple(path), value).text) == wanted
    else:
        with pytest.raises(UsageError):
            edit_text(text, tuple(path), value)
