"""The table of sessions: what is remembered survives a restart and a newer version, and is bounded."""

import gc
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import PoolSaturated
from gateway.sessions.session_entry import SessionEntry, SessionStatus, entry_of
from gateway.sessions.sessions import SessionTable
from gateway.settings import CurrentSettings, GatewaySettings
from router.source import MessageSource
from store.records import SessionRow
from wire.messages import QueueMode


def book(sessions: int = 100) -> SessionTable:
    return SessionTable(CurrentSettings(GatewaySettings(sessions=sessions)))


def use(sessions: SessionTable, key: str, at: float = 0.0, *, transcript: str | None = None) -> SessionEntry:
    entry, _ = sessions.use(key, "main", "default", wall_now=at)
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

SOURCE = MessageSource(
    channel="telegram", chat_type="group", chat_id="-1", sender_id="2", member_role_ids=["x"], timestamp=3.5
)


@given(
    st.fixed_dictionaries(
        {
            "queue_mode": st.none() | st.sampled_from(QueueMode),
            "model": st.none() | st.text(),
            "thinking": st.none() | st.sampled_from(["off", "high"]),
            "verbose": st.booleans(),
            "reasoning": st.booleans(),
            "source": st.none() | st.just(SOURCE),
            "last_run": st.none() | st.text(),
        }
    )
)
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


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff"])
def test_a_damaged_row_costs_its_settings_only_and_is_named_and_rows_are_ordered_by_their_use(data: bytes) -> None:
    sessions = book(sessions=1)
    rows = [row(b'{"verbose":true}', "good", updated_at=3), row(data, "bad", updated_at=1)]
    assert sessions.load(rows) == ["bad"]
    assert keys(sessions) == ["bad", "good"]
    bad = sessions.get("bad")
    assert bad is not None
    assert (bad.transcript, bad.verbose, bad.status) == ("t", False, SessionStatus.READY)


# --- the bound --------------------------------------------------------------------------------------------------------


def test_the_one_without_a_transcript_that_was_used_longest_ago_goes_first() -> None:
    sessions = book(sessions=3)
    told = use(sessions, "told", transcript="t")
    bare = use(sessions, "bare")
    later = use(sessions, "later")
    use(sessions, "bare")
    assert sessions.use("new", "main", "default", wall_now=9.0)[1] == [later]
    assert sessions.use("newer", "main", "default", wall_now=9.0)[1] == [bare]
    for key in ("new", "newer"):
        sessions.set_transcript(key, "t")
    assert sessions.use("newest", "main", "default", wall_now=9.0)[1] == [told]
    assert keys(sessions) == ["newest", "new", "newer"]


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
    assert [entry.key for entry in sessions.use("new", "main", "default", wall_now=0.0)[1]] == ["idle"]


def test_a_lower_limit_holds_from_the_next_new_session_on() -> None:
    sessions = book()
    for key in "abcd":
        use(sessions, key)
    sessions._settings.value = GatewaySettings(sessions=2)
    use(sessions, "a")
    assert len(sessions) == 4
    assert [entry.key for entry in sessions.use("e", "main", "default", wall_now=0.0)[1]] == ["b", "c", "d"]
    assert keys(sessions) == ["a", "e"]


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["use", "tell", "reset", "work", "rest"]))))
def test_any_history_keeps_the_bound_and_forgets_only_what_is_idle(history: list[tuple[str, str]]) -> None:
    sessions = book(sessions=3)
    for key, step in history:
        entry = sessions.get(key)
        idle = [each for each in sessions if each.status is SessionStatus.READY]
        victims = [each for each in idle if each.transcript is None] or idle
        match step:
            case "use" if entry is None and len(sessions) == 3 and not victims:
                with pytest.raises(PoolSaturated):
                    use(sessions, key)
            case "use":
                made, forgotten = sessions.use(key, "writer", "editor", wall_now=1.0)
                assert (made.agent, made.role, made is entry) == ("writer", "editor", entry is not None)
                assert all(each in victims and each.key not in sessions for each in forgotten)
            case "tell" | "reset":
                assert sessions.set_transcript(key, "t" if step == "tell" else None) is entry
            case _ if entry is not None:
                entry.status = SessionStatus.WORKING if step == "work" else SessionStatus.READY
        assert len(sessions) == len(set(keys(sessions))) <= 3


def test_a_session_costs_little_memory() -> None:
    sessions = book(sessions=1_000)
    gc.collect()
    tracemalloc.start()
    sessions.load(full_row(number) for number in range(1_000))
    gc.collect()
    each = tracemalloc.get_traced_memory()[0] / 1_000
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
