"""The keys of ``pool chat``, beside those of the line editor itself."""

import time
from collections.abc import Callable

from prompt_toolkit.application import get_app
from prompt_toolkit.filters import Condition
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from commands.chat.effects import Effect
from commands.chat.machine import ChatMachine
from commands.chat.pastes import Pastes


class ChatKeys:
    """``bindings``: what each key does; the effects go to ``do``."""

    def __init__(self, machine: ChatMachine, pastes: Pastes, do: Callable[[list[Effect]], None]) -> None:
        self._machine = machine
        self._pastes = pastes
        self._do = do
        self.bindings = keys = KeyBindings()
        is_empty = Condition(lambda: not get_app().current_buffer.text)
        is_completing = Condition(_is_completing)
        keys.add("enter", filter=~is_completing)(self._enter)
        keys.add("enter", filter=is_completing)(_take_completion)
        keys.add("escape", "enter")(_begin_line)
        keys.add("c-j")(_begin_line)
        keys.add("c-c")(self._interrupt)
        keys.add("<sigint>")(self._interrupt)  # while something is printed, the terminal makes a signal of the key
        keys.add("c-d", filter=is_empty)(lambda _event: self._do(self._machine.leave()))
        keys.add("c-o")(lambda _event: self._do(self._machine.transcript.calls.show()))
        keys.add(Keys.BracketedPaste)(self._paste)

    def _enter(self, event: KeyPressEvent) -> None:
        """A text with pastes is not remembered: their words would mean nothing, or another text, in a later chat."""
        buffer = event.current_buffer
        text = buffer.text
        if word := self._pastes.missing(text):
            self._do(self._machine.notice(f"the text of {word} is not kept any more; delete that, and paste it again"))
            return
        if not self._pastes.words(text):
            buffer.append_to_history()
        buffer.reset()
        self._do(self._machine.submit(self._pastes.expand(text), text))

    def _interrupt(self, event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            self._do(self._machine.interrupt(time.monotonic()))

    def _paste(self, event: KeyPressEvent) -> None:
        event.current_buffer.insert_text(self._pastes.shorten(event.data))


def _begin_line(event: KeyPressEvent) -> None:
    event.current_buffer.insert_text("\n")


def _is_completing() -> bool:
    state = get_app().current_buffer.complete_state
    return state is not None and state.current_completion is not None


def _take_completion(event: KeyPressEvent) -> None:
    event.current_buffer.complete_state = None
