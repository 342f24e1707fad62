"""The settings file: where it is found, what it may say, and how it is refused."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from errors import UsageError
from profiles import AgentSettings, build_profile
from profiles.settings import AgentDefaults
from settings.checks import check_settings
from settings.load import load_settings, parse_settings
from settings.location import find_settings_file
from settings.problems import Problem, SettingsError, lines_of_keys, type_problems
from settings.schema import Settings
from wire.units import Seconds

SAMPLES = Path(__file__).parents[2] / "fixtures" / "settings"
BAD = sorted((SAMPLES / "bad").glob("*.toml"))
GOOD = sorted((SAMPLES / "good").glob("*.toml"))


# --- what a file says -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_bad_file_is_refused_with_key_line_and_what_to_do(path: Path) -> None:
    expected = path.read_text().splitlines()[0].removeprefix("# expect: ")
    with pytest.raises(SettingsError) as refusal:
        load_settings(path)
    assert f"{path}:{expected}" in str(refusal.value)


def test_every_good_file_is_accepted() -> None:
    assert (len(BAD) >= 15, len(GOOD) >= 3) == (True, True)
    for path in GOOD:
        assert isinstance(load_settings(path), Settings)


def test_every_room_gets_its_own_values() -> None:
    settings = load_settings(SAMPLES / "good" / "full.toml")
    assert (settings.pool.min, settings.pool.max, settings.pool.reserve) == (2, 16, 2)
    assert settings.pool.idle_timeout == 300.0
    assert settings.pool.max_rss == 800 * 1024 * 1024
    assert settings.rpc.max_line_bytes == 16 * 1024 * 1024
    assert settings.agent_defaults.timeout_seconds == 1200.0
    assert settings.gateway_prompts.media is False
    assert settings.gateway.queue.mode == "collect"
    assert settings.gateway.queue.lanes == {"cron": 2}
    assert settings.router.bindings[0].agent == "pi"
    assert settings.store.events_age == 7 * 86400.0
    assert (settings.log.level, settings.log.format) == ("warning", "json")
    assert list(settings.agents) == ["main", "pi"], "tables of their own beside the agents are no agents"
    assert settings.agents["pi"].dialect == "pi"
    assert settings.role_names() == ["default", "reviewer", "writer"]
    assert settings.skills.base == ["~/skills/writing", "~/skills/review"]
    assert [entry.count for entry in settings.pool.prewarm] == [2, 1]


def test_a_node_is_of_the_first_group_whose_labels_it_has_and_an_agents_group_is_part_of_its_profile() -> None:
    settings = load_settings(SAMPLES / "good" / "cluster.toml")
    cluster = settings.cluster
    some: tuple[dict[str, str], ...] = ({"gpu": "yes", "disk": "fast"}, {"gpu": "no"}, {})
    assert [cluster.group_of(labels) for labels in some] == ["gpu", "", ""]
    assert cluster.token_file == str(SAMPLES / "good" / "node-token"), "beside the settings"
    profiles = [build_profile(settings, agent, "default", "/") for agent in ("main", "trainer")]
    assert [profile.group for profile in profiles] == ["", "gpu"]
    assert profiles[0].hard_signature != profiles[1].hard_signature


def test_the_slots_of_a_cluster_bound_a_file_and_not_the_command_line(tmp_path: Path) -> None:
    text = '[pool]\nmax = 4\n[cluster]\nlocal_slots = 4\n[cluster.nodes.one]\nssh = "one"\nslots = 1\n'
    with pytest.raises(SettingsError, match=r"pool\.max: is 4, less than the 5 slots"):
        parse_settings(text, tmp_path / "pool.toml")
    assert parse_settings(text, tmp_path / "pool.toml", max_workers=3).pool.max == 3


def test_a_runs_default_timeout_is_its_agents_own_else_that_of_all_and_zero_is_none() -> None:
    settings = load_settings(SAMPLES / "good" / "full.toml")
    assert settings.timeout_of("main") == 1200.0
    assert settings.timeout_of("pi") is None
    assert settings.timeout_of("nobody") == 1200.0
    assert Settings().timeout_of("main") == 600.0
    assert Settings(agent_defaults=AgentDefaults(timeout_seconds=Seconds(0))).timeout_of("main") is None


def test_a_timeout_makes_no_other_profile() -> None:
    plain, limited = (Settings(agents={"main": AgentSettings(timeout_seconds=limit)}) for limit in (None, Seconds(5)))
    assert build_profile(plain, "main", "default", "/") == build_profile(limited, "main", "default", "/")


def test_all_problems_are_told_at_once_each_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as refusal:
        parse_settings('[pool]\nmx = 1\nmin = "one"\n\n[rpc]\nui_timeout = "soon"\n', tmp_path / "pool.toml")
    paths = [problem.path for problem in refusal.value.problems]
    assert paths == [("pool", "mx"), ("pool", "min"), ("rpc", "ui_timeout")]
    assert [line.split(":")[1] for line in str(refusal.value).splitlines()] == ["2", "3", "6"]
    assert (isinstance(refusal.value, UsageError), refusal.value.code) == (True, "settings")


def test_thousands_of_tables_of_one_kind_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[type] = []
    fields = msgspec.structs.fields

    def count(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
        looked_up.append(kind)
        return fields(kind)

    class Inner(msgspec.Struct):
        size: int = 0

    class Outer(msgspec.Struct):
        tables: dict[str, Inner]

    monkeypatch.setattr(msgspec.structs, "fields", count)
    assert list(type_problems({"tables": {f"t{number}": {"size": number} for number in range(1000)}}, Outer)) == []
    assert looked_up == [Outer, Inner]


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot read the settings file .*none\.toml: No such file"):
        load_settings(tmp_path / "none.toml")
    with pytest.raises(SettingsError, match="cannot read"):
        load_settings(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'# fine\ndata_dir = "\xe9"\n')
    with pytest.raises(SettingsError, match=r"latin.toml:2: the file is not UTF-8"):
        load_settings(tmp_path / "latin.toml")


def test_the_embedded_defaults_are_valid() -> None:
    assert check_settings(Settings()) == []
    assert Path(load_settings(None).data_dir).is_absolute()


def test_a_problem_reads_like_the_file() -> None:
    shown = [str(Problem(path, "x")) for path in (("pool", "max"), ("pool", "prewarm", 1, "count"), ())]
    assert shown == ["pool.max: x", "pool.prewarm[1].count: x", "x"]


class Pair(msgspec.Struct):
    x: int | None = None
    y: int | None = None
    words: Annotated[list[Literal["a", "b"]] | None, msgspec.Meta(description="x")] = None

    def __post_init__(self) -> None:
        if self.x and self.y:
            msg = "x or y, not both"
            raise ValueError(msg)
        if self.y:
            msg = "no y without x"
            raise ValueError(msg)


def test_a_structs_own_check_is_blamed_on_an_entry_only_where_that_alone_says_the_same() -> None:
    assert list(type_problems({"x": 1, "y": 2}, Pair, ("p",))) == [Problem(("p",), "x or y, not both")]
    assert list(type_problems({"y": 2}, Pair, ("p",))) == [Problem(("p", "y"), "no y without x")]


def test_what_surrounds_a_type_does_not_hide_the_item_at_fault() -> None:
    assert list(type_problems({"words": ["a", "bb"]}, Pair)) == [
        Problem(("words", 1), "invalid enum value 'bb'; did you mean \"b\"?")
    ]


# --- bounds ----------------------------------------------------------------------------------------------------------


BOUNDS = [
    *((f"gateway.{key}", 0, 1) for key in ("queue.cap", "queue.pending", "queue.lanes.cron", "dedupe.entries")),
    *((f"gateway.{key}", 0, 1) for key in ("outcomes", "runs", "sessions", "delegate_fan_out")),
    *((f"gateway.{key}", -1, 0) for key in ("delegate_depth", "queue.debounce", "dedupe.window")),
    *((f"gateway.{key}", -1, 0) for key in ("idempotency_window", "outcome_age")),
    *(("gateway.events.ring", 65535, 65536), ("store.backlog", 65535, 65536)),
    *(("store.events", 0, 1), ("store.events_age", -1, 0), ("rpc.log_workers", 0, 1), ("rpc.ui_timeout", 0, 0.001)),
    *((f"store.{key}", 0, 0.001) for key in ("stall", "retry", "close_timeout")),
    *(("agents.defaults.timeout_seconds", -1, 0), ("pool.max_turns", -1, 0), ("pool.waiting_timeout", 0, 0.001)),
]


@pytest.mark.parametrize(("key", "wrong", "right"), BOUNDS)
def test_a_number_out_of_its_bounds_is_refused_and_the_last_one_within_is_not(
    key: str, wrong: float, right: float, tmp_path: Path
) -> None:
    parse_settings(f"{key} = {right}", tmp_path / "pool.toml")
    with pytest.raises(SettingsError) as refusal:
        parse_settings(f"{key} = {wrong}", tmp_path / "pool.toml")
    assert [str(problem).partition(":")[0] for problem in refusal.value.problems] == [key]


# --- what the command line puts over it -----------------------------------------------------------------------------


def test_the_command_line_wins_over_the_file_and_is_checked_with_it(tmp_path: Path) -> None:
    path = tmp_path / "pool.toml"
    path.write_text("[pool]\nmin = 3\nmax = 4\nreserve = 0\n")
    settings = load_settings(path, data_dir=str(tmp_path / "d"), min_workers=2, max_workers=9)
    assert (settings.pool.min, settings.pool.max, settings.data_dir) == (2, 9, str(tmp_path / "d"))
    with pytest.raises(SettingsError, match=r"pool.toml:2: pool.min: is 3, more than pool.max = 2"):
        load_settings(path, max_workers=2)
    path.write_text("[pool]\nmax = 4\nreserve = -1\n")
    with pytest.raises(SettingsError) as refusal:
        load_settings(path, max_workers=0)
    wanted = ["--max: pool.max: must be 1 or more, not 0", f"{path}:3: pool.reserve: must be 0 or more, not -1"]
    assert sorted(str(refusal.value).splitlines()) == sorted(wanted), "and not the file's own line for max"


@pytest.mark.parametrize("header", ["[nonsense]", "[nonsense.inner]", "[[nonsense]]", "[[nonsense.inner]]"])
def test_an_unknown_table_is_told_with_its_line_however_it_is_opened(tmp_path: Path, header: str) -> None:
    path = tmp_path / "pool.toml"
    path.write_text(f"[pool]\nmax = 4\n{header}\nx = 1\n")
    with pytest.raises(SettingsError, match=r"pool\.toml:3: nonsense: there is no such setting"):
        load_settings(path)


def test_a_relative_data_dir_starts_at_the_file_and_a_tilde_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    path = tmp_path / "pool.toml"
    path.write_text('data_dir = "../state"\n')
    assert load_settings(path).data_dir == str(tmp_path.parent / "state")
    path.write_text('data_dir = "~/state"\n')
    assert load_settings(path).data_dir == "/home/someone/state"
    monkeypatch.chdir(tmp_path)
    assert load_settings(path, data_dir="here").data_dir == str(tmp_path / "here")
    monkeypatch.setenv("XDG_STATE_HOME", "/home/someone/.state")
    assert load_settings(None).data_dir.startswith("/home/someone/.state")


def test_a_file_of_hooks_is_looked_for_beside_the_settings(tmp_path: Path) -> None:
    path = tmp_path / "pool.toml"
    path.write_text('[gateway]\nhooks = "hooks.py"\n')
    with pytest.raises(SettingsError, match=rf"pool.toml:2: gateway.hooks: there is no file {tmp_path}/hooks.py"):
        load_settings(path)
    (tmp_path / "hooks.py").touch()
    assert load_settings(path).gateway.hooks == str(tmp_path / "hooks.py")
    assert load_settings(None).gateway.hooks == ""


# --- where it is found ----------------------------------------------------------------------------------------------


def test_the_file_is_looked_for_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, cwd = tmp_path / "config", tmp_path / "cwd"
    env = {"XDG_CONFIG_HOME": str(home), "POOL_CONFIG": "/from/env.toml"}
    (home / "pool").mkdir(parents=True)
    cwd.mkdir()
    assert find_settings_file("/from/flag.toml", env, cwd) == Path("/from/flag.toml")
    assert find_settings_file("flag.toml", env, cwd) == cwd / "flag.toml"
    assert find_settings_file(None, env, cwd) == Path("/from/env.toml")
    env["POOL_CONFIG"] = ""
    assert find_settings_file(None, env, cwd) is None
    (home / "pool" / "pool.toml").touch()
    assert find_settings_file(None, env, cwd) == home / "pool" / "pool.toml"
    (cwd / "pool.toml").touch()
    assert find_settings_file(None, env, cwd) == cwd / "pool.toml"
    monkeypatch.setenv("HOME", str(tmp_path))
    home.rename(tmp_path / ".config")
    assert find_settings_file(None, {}, tmp_path) == tmp_path / ".config" / "pool" / "pool.toml"


def test_the_file_of_this_directory_is_not_taken_from_another_user(tmp_path: Path) -> None:
    (tmp_path / "pool.toml").touch()
    (tmp_path / "pool.toml").chmod(0o666)
    with pytest.raises(SettingsError) as caught:
        find_settings_file(None, {}, tmp_path)
    path = tmp_path / "pool.toml"
    assert str(caught.value).startswith(f"{path} can be written by every user (owner ")
    assert ", mode 0666), who can have any program run with it: it is not used without being named" in str(caught.value)
    assert f"--config {path} says that it is wanted" in str(caught.value)
    assert find_settings_file(str(path), {}, tmp_path) == path
    assert find_settings_file(None, {"POOL_CONFIG": str(path)}, tmp_path) == path


# --- where a key stands ---------------------------------------------------------------------------------------------


def test_keys_are_found_behind_everything_toml_can_put_before_them() -> None:
    text = '''a = """
[not.a.table]
b = 1
"""
c = [ # a comment
  1,
  2,
]

[t]
x.y = 1   # dotted
"quoted key" = 2
[[t.list]]
k = 1
[[t.list]]
k = 2
[t.list.inner]
z = { p = 1, q = 2 }
'''
    lines = lines_of_keys(text)
    wanted = {("a",): 1, ("c",): 5, ("t", "x", "y"): 11, ("t", "quoted key"): 12, ("t", "list", 0, "k"): 14}
    wanted |= {("t", "list", 1, "k"): 16, ("t", "list", 1, "inner", "z", "q"): 18}
    assert wanted.items() <= lines.items()
    assert lines_of_keys('a = "x\u2028y" # \u0085\r\nb = 1\r\n') == {("a",): 1, ("b",): 2}, "only a newline ends a line"


keys = st.from_regex(r"[a-z]{1,6}", fullmatch=True)
values = st.one_of(st.integers(-9, 9), st.text("ab\n[]=#\"'", max_size=8), st.lists(st.integers(0, 9), max_size=20))
documents = st.recursive(
    st.dictionaries(keys, values, max_size=4),
    lambda inner: st.dictionaries(keys, inner | values, max_size=4),
    max_leaves=8,
)


def leaves(table: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key, value in table.items():
        found += leaves(value, (*path, key)) if isinstance(value, dict) else [(*path, key)]
    return found


@given(document=documents, multiline=st.booleans())
def test_every_key_of_any_document_is_found_on_the_line_that_names_it(
    *, document: dict[str, Any], multiline: bool
) -> None:
    text = tomli_w.dumps(document, multiline_strings=multiline)
    lines, found = text.splitlines(), lines_of_keys(text)
    for path in leaves(document):
        assert re.match(rf'(.*\.)?"?{path[-1]}"? = ', lines[found[path] - 1])


TABLES = """
[agents.main]
system_prompt = "@prompts/main.md"
append_system_prompt = "@@home"

[roles.writer]
append_system_prompt = "@prompts/main.md"
"""


def test_a_prompt_is_a_file_where_it_begins_with_an_at_sign(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "main.md").write_text("You are careful.")
    (tmp_path / "You are careful.").write_text("You are not.")
    settings = parse_settings(TABLES, tmp_path / "pool.toml")
    agent = settings.agents["main"]
    assert (agent.system_prompt, agent.append_system_prompt) == ("You are careful.", "@home")
    assert settings.roles["writer"].append_system_prompt == "You are careful."


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file or directory"),
        (b"\xff", "it is not UTF-8 text"),
        (b"x" * 100_001, "it is longer than 100,000 bytes"),
    ],
)
def test_a_file_that_is_no_prompt_is_refused_with_its_line(tmp_path: Path, content: bytes | None, reason: str) -> None:
    (tmp_path / "prompts").mkdir()
    if content is not None:
        (tmp_path / "prompts" / "main.md").write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        parse_settings(TABLES, tmp_path / "pool.toml")
    first, second = str(caught.value).splitlines()
    file = tmp_path / "prompts" / "main.md"
    wanted = f"cannot read {file}: {reason}; @@ begins a text with @"
    assert first == f"{tmp_path}/pool.toml:3: agents.main.system_prompt: {wanted}"
    assert second == f"{tmp_path}/pool.toml:7: roles.writer.append_system_prompt: {wanted}"
