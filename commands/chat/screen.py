"""The terminal of ``pool chat``: a line editor that stays below what is printed. It decides nothing."""

import asyncio
import concurrent.futures
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.styles import Style

from commands.chat.effects import CallText, Effect, GiveBack, Leave, Line, Markdown, Request
from commands.chat.history import open_history
from commands.chat.keys import ChatKeys
from commands.chat.link import ChatLink
from commands.chat.machine import HELP, ChatMachine
from commands.chat.paste_input import open_paste_input
from commands.chat.pastes import Pastes
from commands.chat.status import live_lines, shown_lines, status_text, wrapped_parts
from errors import PoolError
from wire.call_page import STYLES, page_lines
from wire.messages import EventEnvelope
from wire.terminal import BOLD, DIM, PLAIN, RED, YELLOW, wants_styles

_STYLES = {"plain": "", "dim": DIM, "bold": BOLD, "warn": BOLD + YELLOW, "bad": RED}
_MIN_COLUMNS = 10


class ChatScreen:
    """One chat on this terminal."""

    def __init__(self, machine: ChatMachine, socket: Path, session: str) -> None:
        """``socket``: of the supervisor."""
        self._machine = machine
        self._link = ChatLink(socket, session, self)
        self._is_coloured = wants_styles(os.environ)
        self._pastes = Pastes()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._error: BaseException | None = None
        self._early_notices: list[str] = []
        self._editor: PromptSession[int] = PromptSession(
            message=self._prompt,
            bottom_toolbar=self._status,
            key_bindings=ChatKeys(machine, self._pastes, self._do).bindings,
            history=open_history(os.environ, self._history_problem),
            completer=_SlashCompleter(),
            complete_while_typing=Condition(lambda: self._editor.default_buffer.text.startswith("/")),
            multiline=True,
            prompt_continuation="  ",
            enable_suspend=True,
            input=open_paste_input(),
            erase_when_done=True,
            style=Style.from_dict({"bottom-toolbar": "noreverse"}),
        )

    def run(self, client: Any) -> int:
        """Chat until it is left; the exit code. ``client``: the first connection. Raises what ended the events."""
        code = asyncio.run(self._run(client))
        if self._error is not None:
            raise self._error
        return code

    async def _run(self, client: Any) -> int:
        self._loop = asyncio.get_running_loop()
        for text in self._early_notices:
            self.on_notice(text)
        self._link.start(client)
        try:
            return await self._editor.prompt_async()
        except EOFError:  # the terminal is gone
            return 0

    # --- what comes from the supervisor, from other threads ---

    def on_events(self, events: list[EventEnvelope]) -> None:
        """Draw them, and return when that is done."""
        self._in_loop(lambda: self._machine.events(events), waits=True)

    def on_connection(self, *, is_there: bool) -> None:
        """It is there."""
        self._in_loop(lambda: self._machine.connection(is_there=is_there))

    def on_notice(self, text: str) -> None:
        """Say it."""
        self._in_loop(lambda: self._machine.notice(text))

    def on_answer(self, request: Request, result: Any) -> None:
        """A result, or an error."""
        if isinstance(result, PoolError):
            self._in_loop(lambda: self._machine.failed(request, result, time.monotonic()))
        else:
            self._in_loop(lambda: self._machine.answered(request, result, time.monotonic()))

    def on_end(self, error: BaseException) -> None:
        """Nothing will come any more: the chat ends with this error."""
        self._in_loop(lambda: self._fail(error))

    def _history_problem(self, text: str) -> None:
        if self._loop is None:
            self._early_notices.append(text)
        else:
            self.on_notice(text)

    def _in_loop(self, decide: Callable[[], list[Effect]], *, waits: bool = False) -> None:
        """Do what ``decide`` asks for; nothing where the chat was left meanwhile."""
        assert self._loop is not None  # noqa: S101  # the link is started by the loop
        done: concurrent.futures.Future[None] = concurrent.futures.Future()
        try:
            self._loop.call_soon_threadsafe(lambda: self._begin(decide, lambda: done.set_result(None)))
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            return
        if waits:
            done.result()

    # --- effects ---

    def _do(self, effects: list[Effect]) -> None:
        """From a key: printing happens as soon as the loop can."""
        self._begin(lambda: effects)

    def _begin(self, decide: Callable[[], list[Effect]], on_done: Callable[[], None] = lambda: None) -> None:
        """What fails ends the chat, which would go on with half of what it knows. ``on_done`` is called in any case."""

        async def act() -> None:
            try:
                await self._act(decide())
            except Exception as error:  # noqa: BLE001 - ``run`` raises it
                await self._act(self._fail(error))

        self._editor.app.create_background_task(act()).add_done_callback(lambda _task: on_done())

    def _fail(self, error: BaseException) -> list[Effect]:
        self._error = self._error or error
        return [Leave(1)]

    async def _act(self, effects: list[Effect]) -> None:
        text = "".join(self._rendered(effects))
        if text:
            await run_in_terminal(lambda: _write(text))
        for effect in effects:
            match effect:
                case Request():
                    self._link.send(effect)
                case GiveBack(text=given) if not self._editor.default_buffer.text:
                    self._editor.default_buffer.insert_text(given)
                case Leave(code=code) if self._editor.app.is_running and not self._editor.app.is_done:
                    self._editor.app.exit(result=code)
        self._set_timer()
        self._editor.app.invalidate()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        wakeup = self._machine.next_wakeup()
        self._timer = None
        if wakeup is not None and self._loop is not None:
            delay = max(0.0, wakeup - time.monotonic())
            self._timer = self._loop.call_later(delay, self._begin, lambda: self._machine.wake(time.monotonic()))

    # --- drawing ---

    def _rendered(self, effects: list[Effect]) -> Iterator[str]:
        columns = _columns()
        for effect in effects:
            match effect:
                case Line():
                    for line in shown_lines(effect, columns):
                        yield f"{self._styled(line, _STYLES[effect.style])}\n"
                case Markdown():
                    from commands.chat.markdown import render_markdown  # with the first answer: the prompt is there

                    yield render_markdown(effect.text, columns, is_coloured=self._is_coloured)
                case CallText():
                    for part in page_lines(effect.page, columns - 2):
                        yield f"  {self._styled(part.text, STYLES[part.tone])}\n"

    def _styled(self, text: str, style: str) -> str:
        return f"{style}{text}{PLAIN}" if self._is_coloured and style and text else text

    def _prompt(self) -> ANSI:
        columns, rows = _columns(), max(3, shutil.get_terminal_size().lines // 3)
        lines = [self._styled(line, DIM) for line in live_lines(self._machine, columns, rows)]
        asks = self._machine.transcript.questions.keys
        if asks:
            lines += [self._styled(line, BOLD + YELLOW) for line in wrapped_parts(asks, columns)]
        return ANSI("\n".join([*lines, "? " if asks else "> "]))

    def _status(self) -> ANSI:
        return ANSI(self._styled(status_text(self._machine, _columns()), DIM))


class _SlashCompleter(Completer):
    def get_completions(self, document: Any, complete_event: Any) -> Iterator[Completion]:  # noqa: ARG002
        """Commands with what was typed as their beginning."""
        text = document.text_before_cursor
        if text.startswith("/") and " " not in text:
            from gateway.sessions.commands import COMMANDS  # the first slash pays for it

            words = {*HELP, *(f"/{name}" for name in COMMANDS)}
            yield from (Completion(word, -len(text)) for word in sorted(words) if word.startswith(text.lower()))


def _columns() -> int:
    return max(_MIN_COLUMNS, shutil.get_terminal_size().columns - 1)


def _write(text: str) -> None:
    encoding = sys.stdout.encoding
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))  # not every terminal has every sign
    sys.stdout.flush()
