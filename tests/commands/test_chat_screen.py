"""What a chat's screen and link do with errors of their own, without a terminal and without a supervisor."""

import contextvars
import gc
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from commands.chat.effects import Effect, Line, Request
from commands.chat.history import MAX_BYTES, open_history
from commands.chat.link import ChatLink
from commands.chat.machine import ChatMachine
from commands.chat.screen import ChatScreen

LIMIT_SECONDS = 60.0
Work = Callable[[ChatScreen], None]


class _BrokenMachine(ChatMachine):
    def events(self, events: Any) -> list[Effect]:
        raise ZeroDivisionError(f"at {events}")


class _DrawingMachine(ChatMachine):
    def events(self, events: Any) -> list[Effect]:
        return [Line(f"drawn {events}")]


@pytest.fixture
def run_chat(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[ChatMachine, Work], int]]:
    """Run a chat whose supervisor is a function, in the thread that the link follows events in."""

    def run(machine: ChatMachine, work: Work) -> int:
        chat = ChatScreen(machine, tmp_path / "socket", "ada")
        context = contextvars.copy_context()  # has the editor's terminal
        thread = threading.Thread(target=lambda: context.run(work, chat))
        monkeypatch.setattr(ChatLink, "start", lambda _link, _client: thread.start())
        try:
            return chat.run(None)
        finally:
            thread.join(LIMIT_SECONDS)
            assert not thread.is_alive()

    with create_pipe_input() as keys, create_app_session(keys, DummyOutput()):
        monkeypatch.setattr("commands.chat.screen.open_paste_input", lambda: keys)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        yield run


def test_an_error_of_the_machine_ends_the_chat_with_it(run_chat: Callable[[ChatMachine, Work], int]) -> None:
    with pytest.raises(ZeroDivisionError, match="at"):
        run_chat(_BrokenMachine("ada"), lambda chat: chat.on_events([]))


def test_what_comes_after_the_end_is_dropped_silently(run_chat: Callable[[ChatMachine, Work], int]) -> None:
    chats: list[ChatScreen] = []
    machine = ChatMachine("ada")

    def leave(chat: ChatScreen) -> None:
        chats.append(chat)
        chat.on_end(KeyError("the first"))
        chat.on_end(ValueError("the second"))

    with pytest.raises(KeyError):
        run_chat(machine, leave)
    chats[0].on_events([])
    chats[0].on_notice("too late")
    gc.collect()  # pytest makes an error of a coroutine that was never awaited


def test_a_history_that_cannot_be_kept_is_said_once_and_the_chat_goes_on(
    run_chat: Callable[[ChatMachine, Work], int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    monkeypatch.setenv("COLUMNS", "200")

    def draw_and_end(chat: ChatScreen) -> None:
        chat.on_events([])  # returns when it is drawn, behind what was said before
        chat.on_end(OverflowError())

    with pytest.raises(OverflowError):
        run_chat(_DrawingMachine("ada"), draw_and_end)
    said, drawn, _ = capsys.readouterr().out.partition("drawn")
    assert (said.count("! what is typed here will not be remembered: "), drawn) == (1, "drawn")


def test_what_was_typed_is_kept_up_to_a_size(tmp_path: Path) -> None:
    problems: list[str] = []
    env = {"XDG_STATE_HOME": str(tmp_path)}
    file = tmp_path / "pool" / "chat-history"
    history = open_history(env, problems.append)
    for number in range(3):
        history.store_string(f"{number}\n" + "x" * (MAX_BYTES // 3))
    again = open_history(env, problems.append)
    assert [entry.partition("\n")[0] for entry in again.load_history_strings()] == ["2"]
    assert file.stat().st_size < MAX_BYTES
    assert file.stat().st_mode & 0o777 == 0o600
    file.unlink()
    file.mkdir()
    for _ in range(2):
        again.append_string("kept in memory")
    assert (again.get_strings(), len(problems)) == (["kept in memory"] * 2, 1)


class _Peer:
    def __init__(self) -> None:
        self.ends: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

    def on_end(self, error: BaseException) -> None:
        self.ends.put(error)


def test_an_unforeseen_error_of_a_request_ends_the_chat(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Client:
        def __init__(self, path: Path) -> None:
            raise OverflowError(path)

    monkeypatch.setattr("commands.chat.link.ControlClient", Client)
    monkeypatch.setattr("commands.chat.link.ChatLink._follow", lambda _link, _client: None)
    peer: Any = _Peer()
    link = ChatLink(tmp_path / "socket", "ada", peer)
    link.start(None)  # type: ignore[arg-type]
    for is_ordered in (True, False):
        link.send(Request("send", "agent", {}, is_ordered=is_ordered))
        assert isinstance(peer.ends.get(timeout=LIMIT_SECONDS), OverflowError)
