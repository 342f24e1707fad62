"""Where an agent works: the most specific setting, made where it is missing, apart from what others own."""

import stat
import unicodedata
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import UsageError
from profiles import AgentSettings, ProfilesSettings, RoleSettings
from router.settings import RouterSettings
from router.workspaces import file_name, find_workspace, make_workspace
from tests.router.sources import identifiers, tricky

NOTHING = RouterSettings()
PLAIN = ProfilesSettings(roles={"coder": RoleSettings()})


def everything(*names: str, place: str = "/w") -> tuple[RouterSettings, ProfilesSettings]:
    """Settings in which each of these settings names a directory of its own."""
    directory = {name: f"{place}/{name}" for name in names}
    return (
        RouterSettings(workspace_dirs={"coder": directory["dirs"]} if "dirs" in names else {}),
        ProfilesSettings(
            agents={"main": AgentSettings(workspace=directory.get("agent"))},
            roles={"coder": RoleSettings(workspace=directory.get("role"))},
        ),
    )


@pytest.mark.parametrize(
    ("names", "path", "source"),
    [
        (("dirs", "role", "agent"), "/w/dirs", "router.workspace_dirs.coder"),
        (("role", "agent"), "/w/role", "roles.coder.workspace"),
        (("agent",), "/w/agent", "agents.main.workspace"),
        ((), "/data/workspaces/coder", "default"),
    ],
)
def test_the_most_specific_setting_names_the_directory(names: tuple[str, ...], path: str, source: str) -> None:
    found = find_workspace(*everything(*names), "main", "coder", Path("/data"))
    assert (found.path, found.source) == (path, source)


def test_the_home_directory_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    settings = RouterSettings(workspace_dirs={"coder": "~/code"})
    assert find_workspace(settings, PLAIN, "main", "coder", Path("/data")).path == "/home/me/code"


def test_what_is_left_to_the_machine_of_the_worker_is_not_made_here(tmp_path: Path) -> None:
    path = make_workspace(NOTHING, PLAIN, "main", "coder", tmp_path / "data", is_left_to_host=True)
    assert (path, list(tmp_path.iterdir())) == (str(tmp_path / "data" / "workspaces" / "coder"), [])


def test_a_missing_directory_is_made_for_its_owner_only(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    find_workspace(NOTHING, PLAIN, "main", "coder", data_dir)
    assert not data_dir.exists()
    path = Path(make_workspace(NOTHING, PLAIN, "main", "coder", data_dir))
    assert path == data_dir / "workspaces" / "coder"
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent, data_dir)] == [0o700] * 3
    assert make_workspace(NOTHING, PLAIN, "main", "coder", data_dir) == str(path)


def test_an_existing_directory_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir(mode=0o755)
    path = make_workspace(*everything("agent", place=str(tmp_path)), "main", "coder", tmp_path / "data")
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o755


def test_of_a_configured_directory_only_the_last_level_is_made(tmp_path: Path) -> None:
    path = make_workspace(*everything("dirs", place=str(tmp_path)), "main", "coder", tmp_path / "data")
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o700
    with pytest.raises(UsageError, match="misspelt/dirs of role coder cannot be made: No such file"):
        make_workspace(*everything("dirs", place=str(tmp_path / "misspelt")), "main", "coder", tmp_path / "data")


EACH = ProfilesSettings(
    agents={"main": AgentSettings(workspace_per="session")}, roles={"coder": RoleSettings(workspace="/w")}
)


def test_each_session_may_have_a_directory_of_its_own_in_the_workspace() -> None:
    def path_for(session: str | None, profiles: ProfilesSettings = EACH) -> str:
        return find_workspace(NOTHING, profiles, "main", "coder", Path("/data"), session=session).path

    assert path_for("alice") == "/w/alice"
    assert path_for("agent:main:signal:dm:7") == "/w/agent+main+signal+dm+7"
    assert path_for("../../etc") == "/w/%2e%2e%2f%2e%2e%2fetc"
    assert path_for("Alice") != path_for("alice")
    assert path_for(None) == "/w"
    assert path_for("alice", PLAIN) == path_for("bob", PLAIN) == "/data/workspaces/coder"


def test_a_sessions_own_directory_is_made_and_is_no_link_that_another_session_has_put_there(tmp_path: Path) -> None:
    profiles = ProfilesSettings(agents={"main": AgentSettings(workspace_per="session")})
    make = partial(make_workspace, NOTHING, profiles, "main", "default", tmp_path / "data")
    path = Path(make(session="alice"))
    assert path == tmp_path / "data" / "workspaces" / "default" / "alice"
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    (path.parent / "bob").symlink_to(path)
    with pytest.raises(UsageError, match="of session bob is a symbolic link; remove it"):
        make(session="bob")


def test_what_is_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "workspaces").write_text("a file")
    with pytest.raises(UsageError, match="workspaces/coder of role coder cannot be made: File exists"):
        make_workspace(NOTHING, PLAIN, "main", "coder", tmp_path)
    (tmp_path / "agent").symlink_to("agent")
    with pytest.raises(UsageError, match="agent of role coder cannot be made"):
        make_workspace(*everything("agent", place=str(tmp_path)), "main", "coder", tmp_path / "data")


def test_unknown_agents_and_roles_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown agent 'mian'; did you mean 'main'"):
        make_workspace(NOTHING, PLAIN, "mian", "coder", tmp_path)
    with pytest.raises(UsageError, match="unknown role"):
        make_workspace(NOTHING, PLAIN, "main", "../../x", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_path_with_a_nul_is_refused() -> None:
    with pytest.raises(UsageError, match="NUL"):
        find_workspace(RouterSettings(workspace_dirs={"coder": "a\0b"}), PLAIN, "main", "coder", Path("/data"))


@pytest.mark.parametrize(
    "path",
    [
        *("/data/sessions", "/data/sessions/other", "/data/sessions/main/deep", "/data/by-session/x"),
        *("/data/agent-dirs", "/data/workspaces/../sessions/other", "/data/./sessions//other"),
    ],
)
def test_no_workspace_lies_among_transcripts(path: str) -> None:
    with pytest.raises(UsageError, match="where transcripts and files of other conversations are"):
        find_workspace(
            RouterSettings(workspace_dirs={"coder": path}), PLAIN, "main", "coder", Path("/elsewhere/../data")
        )


@pytest.mark.parametrize("path", ["/data", "/data/sessions2", "/data/workspaces/sessions", "/sessions"])
def test_what_only_looks_like_the_transcripts_is_allowed(path: str) -> None:
    settings = RouterSettings(workspace_dirs={"coder": path})
    assert find_workspace(settings, PLAIN, "main", "coder", Path("/data")).path == path


def test_no_link_leads_a_workspace_to_the_transcripts(tmp_path: Path) -> None:
    transcripts = tmp_path / "sessions" / "other"
    transcripts.mkdir(parents=True)
    (tmp_path / "workspaces").mkdir()
    (tmp_path / "workspaces" / "coder").symlink_to(transcripts)
    with pytest.raises(UsageError, match="where transcripts"):
        make_workspace(NOTHING, PLAIN, "main", "coder", tmp_path)


@given(identifiers, identifiers)
def test_every_role_has_a_directory_of_its_own_below_the_one_for_all(one: str, other: str) -> None:
    profiles = ProfilesSettings(roles={one: RoleSettings(), other: RoleSettings()})
    paths = [Path(find_workspace(NOTHING, profiles, "main", role, Path("/data")).path) for role in (one, other)]
    assert {path.parent for path in paths} == {Path("/data/workspaces")}
    assert (paths[0] == paths[1]) == (one == other)
    assert not {path.name for path in paths} & {"", ".", ".."}


@pytest.mark.parametrize(
    ("role", "name"), [("Reviewer", "Reviewer"), ("v1.2", "v1.2"), ("a b", "a%20b"), ("..", "%2e%2e")]
)
def test_the_directory_has_the_roles_name_where_it_can(role: str, name: str) -> None:
    profiles = ProfilesSettings(roles={role: RoleSettings()})
    assert find_workspace(NOTHING, profiles, "main", role, Path("/data")).path == f"/data/workspaces/{name}"


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


@pytest.mark.parametrize(
    ("text", "name"),
    [
        *(("agent:main:telegram:dm:5", "agent+main+telegram+dm+5"), ("a/b", "a%2fb"), ("", "%")),
        ("a" * 160, "a" * 160),
    ],
)
def test_a_name_can_be_read_by_people(text: str, name: str) -> None:
    assert file_name(text) == name


def test_names_that_are_cut_differ_by_what_was_cut() -> None:
    long = "a" * 10_000
    assert file_name(long) != file_name(long + "b")
    assert file_name(long).startswith("a" * 80 + "~")
