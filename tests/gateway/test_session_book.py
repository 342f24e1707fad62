"""The book of sessions: what is remembered survives a restart and a newer version, and never grows without end."""

import gc
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import PoolSaturated
from gateway.sessions.sessions import SessionEntry, SessionStatus, SessionTable, entry_of
from gateway.settings import CurrentSettings, GatewaySettings, QueueMode
from router.source import MessageSource
from store.records import SessionRow


def book(sessions: int = 100) -> SessionTable:
    return SessionTable(CurrentSettings(GatewaySettings(sessions=sessions)))


def use(sessions: SessionTable, key: str, at: float = 0.0, *, transcript: str | None = None) -> SessionEntry:
    entry, _ = sessions.ensure(key, "main", "default", wall_now=at)
    if transcript is not None:
        sessions.set_transcript(key, transcript)
    return entry


def row(data: bytes = b"{}", key: str = "s", updated_at: float = 2.0) -> SessionRow:
    return SessionRow(
        key=key, agent="main", role="default", transcript="t", created_at=1.0, updated_at=updated_at, data=data
    )


def keys(sessions: SessionTable) -> list[str]:
    return [entry.key for entry in sessions]


# --- rows -------------------------------------------------------------------------------------------------------------

sources = st.none() | st.builds(
    MessageSource,
    channel=st.text(max_size=5),
    chat_type=st.sampled_from(["dm", "group"]),
    chat_id=st.text(max_size=5),
    sender_id=st.text(max_size=5),
    thread_id=st.none() | st.text(max_size=5),
    member_role_ids=st.lists(st.text(max_size=3), max_size=2),
    timestamp=st.none() | st.floats(0, 1e10),
)
settings_of_a_session = st.fixed_dictionaries(
    {
        "queue_mode": st.none() | st.sampled_from(QueueMode),
        "model": st.none() | st.text(),
        "thinking": st.none() | st.sampled_from(["off", "high"]),
        "verbose": st.booleans(),
        "reasoning": st.booleans(),
        "source": sources,
        "last_run": st.none() | st.text(),
    }
)


@given(settings_of_a_session)
def test_a_session_comes_back_from_its_row_as_it_was(fields: dict[str, Any]) -> None:
    entry = SessionEntry(key="s", agent="a", role="r", transcript=None, created_at=1.0, updated_at=2.0, **fields)
    back = entry_of(entry.row())
    assert back.row() == entry.row()
    assert {name: getattr(back, name) for name in fields} == fields
    assert (back.key, back.agent, back.role, back.transcript) == ("s", "a", "r", None)
    assert (back.created_at, back.updated_at) == (1.0, 2.0)


def test_what_a_newer_version_wrote_is_kept() -> None:
    entry = entry_of(row(b'{"colour":{"of":["sky"]},"queue_mode":"telepathy","model":"m"}'))
    assert (entry.model, entry.queue_mode) == ("m", None)
    assert msgspec.json.decode(entry.row().data) == {"colour": {"of": ["sky"]}, "queue_mode": "telepathy", "model": "m"}
    entry.queue_mode = QueueMode.STEER
    entry.model = None
    assert msgspec.json.decode(entry.row().data) == {"colour": {"of": ["sky"]}, "queue_mode": "steer"}


def test_a_session_is_at_rest_after_a_restart() -> None:
    sessions = book()
    use(sessions, "s").status = SessionStatus.PAUSED
    again = book()
    again.load(entry.row() for entry in sessions)
    assert [entry.status for entry in again] == [SessionStatus.READY]


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff"])
def test_a_damaged_row_costs_its_settings_only_and_is_named(data: bytes) -> None:
    sessions = book()
    assert sessions.load([row(data, "bad"), row(b'{"verbose":true}', "good")]) == ["bad"]
    bad = sessions.get("bad")
    assert bad is not None
    assert (bad.transcript, bad.verbose) == ("t", False)
    assert "good" in sessions


def test_rows_are_taken_in_the_order_of_their_use_and_all_of_them() -> None:
    sessions = book(sessions=1)
    assert sessions.load([row(key="new", updated_at=3), row(key="old", updated_at=1)]) == []
    assert keys(sessions) == ["old", "new"]


# --- the bound --------------------------------------------------------------------------------------------------------


def test_a_session_is_made_once_and_then_used() -> None:
    sessions = book()
    entry = use(sessions, "s", 1.0)
    same, forgotten = sessions.ensure("s", "writer", "editor", wall_now=5.0)
    assert same is entry
    assert forgotten == []
    assert (entry.agent, entry.role, entry.created_at, entry.updated_at) == ("writer", "editor", 1.0, 5.0)


def test_the_one_without_a_transcript_that_was_used_longest_ago_goes_first() -> None:
    sessions = book(sessions=3)
    told = use(sessions, "told", transcript="t")
    bare = use(sessions, "bare")
    later = use(sessions, "later")
    use(sessions, "bare")
    assert sessions.ensure("new", "main", "default", wall_now=9.0)[1] == [later]
    assert sessions.ensure("newer", "main", "default", wall_now=9.0)[1] == [bare]
    for key in ("new", "newer"):
        sessions.set_transcript(key, "t")
    assert sessions.ensure("newest", "main", "default", wall_now=9.0)[1] == [told]
    assert keys(sessions) == ["newest", "new", "newer"]


def test_a_reset_session_may_be_forgotten_like_a_new_one() -> None:
    sessions = book(sessions=2)
    use(sessions, "old", transcript="t")
    reset = use(sessions, "reset", transcript="t")
    assert sessions.set_transcript("reset", None) is reset
    assert sessions.ensure("new", "main", "default", wall_now=9.0)[1] == [reset]
    assert sessions.set_transcript("unknown", "t") is None


def test_a_busy_session_is_never_forgotten() -> None:
    sessions = book(sessions=2)
    use(sessions, "working").status = SessionStatus.WORKING
    use(sessions, "paused", transcript="t").status = SessionStatus.PAUSED
    with pytest.raises(PoolSaturated, match=r"2 sessions are busy.*gateway\.sessions"):
        use(sessions, "new")
    assert sorted(keys(sessions)) == ["paused", "working"]
    sessions.get("working").status = SessionStatus.READY  # type: ignore[union-attr]  # it is there, as just seen
    use(sessions, "new")
    assert sorted(keys(sessions)) == ["new", "paused"]


def test_a_busy_session_that_was_used_longest_ago_hides_no_idle_one() -> None:
    sessions = book(sessions=3)
    for key in ("busy", "too", "idle"):
        use(sessions, key).status = SessionStatus.READY if key == "idle" else SessionStatus.WORKING
    assert [entry.key for entry in sessions.ensure("new", "main", "default", wall_now=0.0)[1]] == ["idle"]


def test_a_lower_limit_holds_from_the_next_new_session_on() -> None:
    sessions = book()
    for key in "abcd":
        use(sessions, key)
    sessions._settings.value = GatewaySettings(sessions=2)
    use(sessions, "a")
    assert len(sessions) == 4
    assert [entry.key for entry in sessions.ensure("e", "main", "default", wall_now=0.0)[1]] == ["b", "c", "d"]
    assert keys(sessions) == ["a", "e"]


def test_a_session_can_be_forgotten_on_purpose() -> None:
    sessions = book()
    entry = use(sessions, "s", transcript="t")
    assert sessions.remove("s") is entry
    assert sessions.remove("s") is None
    assert (len(sessions), sessions.get("s"), "s" in sessions) == (0, None, False)


steps = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["use", "tell", "reset", "work", "rest"])))


@given(steps)
def test_any_history_keeps_the_bound_and_the_busy_ones(history: list[tuple[str, str]]) -> None:
    sessions = book(sessions=3)
    for key, step in history:
        entry = sessions.get(key)
        busy = {each.key for each in sessions if each.status is not SessionStatus.READY}
        match step:
            case "use":
                try:
                    use(sessions, key)
                except PoolSaturated:
                    assert len(busy) == 3
            case "tell" | "reset":
                sessions.set_transcript(key, "t" if step == "tell" else None)
            case _ if entry is not None:
                entry.status = SessionStatus.WORKING if step == "work" else SessionStatus.READY
        assert len(sessions) == len(set(keys(sessions))) <= 3
        assert busy - {key} <= set(keys(sessions))


def test_ten_thousand_sessions_cost_little_memory() -> None:
    sessions = book(sessions=10_000)
    gc.collect()
    tracemalloc.start()
    sessions.load(full_row(number) for number in range(10_000))
    gc.collect()
    each = tracemalloc.get_traced_memory()[0] / 10_000
    tracemalloc.stop()
    assert each < 1_500


def full_row(number: int) -> SessionRow:
    source = MessageSource(
        channel="telegram",
        chat_type="group",
        chat_id=f"-100{number:012}",
        sender_id=f"{number:012}",
        account_id="default",
        message_id=str(number),
        timestamp=1_700_000_000.0 + number,
    )
    entry = SessionEntry(
        key=f"agent:main:telegram:account:default:group:-100{number:012}",
        agent="main",
        role="default",
        transcript=f"/var/lib/pool/transcripts/2026-01-01T00-00-00_{number:032x}.jsonl",
        created_at=1_700_000_000.0,
        updated_at=1_700_000_000.0 + number,
        queue_mode=QueueMode.COLLECT,
        model=f"provider/model-{number}",
        source=source,
        last_run=f"{number:032x}",
    )
    return entry.row()
