"""One key of a TOML text changed: everything else stays, comments too where that is possible."""

import tomllib
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from errors import UsageError
from settings.edit import edit_text, parse_key, value_candidates

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


KEPT = FILE.replace
DOTTED = "pool.max = 4\na = 1\n"
CRLF = "[pool]\r\nmax = 4 # x\r\n"


@pytest.mark.parametrize(
    ("text", "key", "value", "wanted"),
    [
        # one value changes, and what stands around it stays
        (FILE, "pool.max", 8, KEPT("max   = 4 #", "max   = 8 #")),
        (FILE, "data_dir", "#a", KEPT('"state"', '"#a"')),
        (FILE, "pool.prewarm", [], KEPT("[ # kept warm\n  { count = 1 },\n]", "[]")),
        # a new key goes behind the line that shows its default, else behind the last key of its table
        (
            FILE,
            "pool.idle_timeout",
            "9m",
            KEPT('#idle_timeout = "5m"\n', '#idle_timeout = "5m"\nidle_timeout = "9m"\n'),
        ),
        (FILE, "pool.min", 1, KEPT("\n]\n#idle", "\n]\nmin = 1\n#idle")),
        (FILE, 'agents."my agent".model', "m", FILE + 'model = "m"\n'),
        (FILE, "socket", "/s", KEPT("beside it\n", 'beside it\nsocket = "/s"\n')),
        ("[pool]\n\n[rpc]\n", "pool.max", 1, "[pool]\nmax = 1\n\n[rpc]\n"),
        # a line that shows the default of another table is not meant
        ("[a]\n#x = 1\n[b]\ny = 1\n", "b.x", 2, "[a]\n#x = 1\n[b]\ny = 1\nx = 2\n"),
        # a table that is not there is added at the end
        (FILE, "gateway.queue.cap", 3, f"{FILE}\n[gateway.queue]\ncap = 3\n"),
        ("a = 1", "b.c", 2, "a = 1\n\n[b]\nc = 2\n"),
        ("", "b.c", 2, "[b]\nc = 2\n"),
        ("", "a", 2, "a = 2\n"),
        # an entry of a table in one line changes that line
        (FILE, 'agents."my agent".env.B', "z", KEPT('{ A = "x", B = "y" }', '{ A = "x", B = "z" }')),
        (FILE, 'agents."my agent".env.C', "z", KEPT('B = "y" }', 'B = "y", C = "z" }')),
        # dotted keys stay dotted keys
        ("pool.max = 4 # x\n", "pool.max", 5, "pool.max = 5 # x\n"),
        (DOTTED, "pool.min", 2, "pool.max = 4\npool.min = 2\na = 1\n"),
        ("[a]\nb.c = 1\n", "a.b.d", 2, "[a]\nb.c = 1\nb.d = 2\n"),
        # an equals sign in a key is not the one that counts
        ('"a=b" = 1\n', '"a=b"', 2, '"a=b" = 2\n'),
        # lines end as they did
        (CRLF, "pool.max", 5, "[pool]\r\nmax = 5 # x\r\n"),
        ("[pool]\r\nmax = 4\r\n", "pool.max", 5, "[pool]\r\nmax = 5\r\n"),
        (CRLF, "pool.min", 1, f"{CRLF}min = 1\r\n"),
        (CRLF, "rpc.x", 1, f"{CRLF}\r\n[rpc]\r\nx = 1\r\n"),
    ],
)
def test_a_key_is_set_in_place_and_the_rest_stays(text: str, key: str, value: Any, wanted: str) -> None:
    assert edit_text(text, parse_key(key), value) == (wanted, True)


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
