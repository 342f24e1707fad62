"""Commands as a front end has written them, passed on to pi, and what they mean for the run that is on.

Names that are not known here are pi's to know: each of its releases adds some.
"""

from collections.abc import Callable
from typing import Literal

import msgspec

from errors import UsageError
from rpc.passthrough import RawObject, text_member
from rpc.pi.dialogs import DialogHandler, UiAnswer
from rpc.pi.events import error_text
from rpc.pi.link import ForwardedCommand, PiLink
from rpc.pi.messages import PiLine, PiPrompt
from rpc.pi.procedures import changed_session
from rpc.pi.run_state import PiRunPhase
from rpc.pi.runs import PiRunController
from wire.framing import DECODE_ERRORS

_STREAMING_BEHAVIORS: tuple[Literal["steer", "followUp"], ...] = ("steer", "followUp")


class PiPassthrough:
    """``allow_bash``: whether the worker may run shell commands at all."""

    def __init__(self, link: PiLink, runs: PiRunController, dialogs: DialogHandler, *, allow_bash: bool) -> None:
        self._link = link
        self._runs = runs
        self._dialogs = dialogs
        self._allow_bash = allow_bash

    def forward(self, request_id: str, command: RawObject) -> None:
        """Pass a command on; raises UsageError for one that is refused."""
        name = text_member(command, "type")
        if name is None:
            raise UsageError("a command has a type, which is a text", worker_code="unsupported")
        if name == "bash" and not self._allow_bash:
            raise UsageError("this worker has no tool bash", worker_code="unsupported")
        if name == "extension_ui_response":
            self._answer_dialog(request_id, command)
        elif name == "prompt":
            self._prompt(request_id, command)
        else:
            self._pass_on(request_id, command, name)

    def _prompt(self, request_id: str, command: RawObject) -> None:
        asked = text_member(command, "streamingBehavior")
        how = next((one for one in _STREAMING_BEHAVIORS if one == asked), None)
        prompt = PiPrompt(message=text_member(command, "message") or "", streaming_behavior=how)
        raw = ForwardedCommand(request_id, command)
        if not self._runs.is_running:
            self._runs.start(request_id, msgspec.structs.replace(prompt, streaming_behavior=None), None, raw)
        elif self._runs.is_backing_off:
            self._pass_on(request_id, command, "prompt")
        elif how is not None:
            self._runs.join(request_id, prompt, is_prompt=True, raw=raw)
        elif self._runs.phase is PiRunPhase.RUNNING:
            self._pass_on(request_id, command, "prompt")
        else:  # pi would accept it, and lose it in silence
            self._link.reject(request_id, "busy", "the agent is already processing; specify streamingBehavior")

    def _pass_on(self, request_id: str, command: RawObject, name: str) -> None:
        self._link.send_forward(ForwardedCommand(request_id, command), name, self._answer_handler(request_id, name))

    def _answer_handler(self, request_id: str, name: str) -> Callable[[PiLine], None]:
        def take(line: PiLine) -> None:
            if not line.success:
                self._link.reject(request_id, "refused", error_text(line))
                return
            if changed_session(name, line):
                self._runs.session_replaced()
            self._link.answer(request_id, line.data)

        return take

    def _answer_dialog(self, request_id: str, command: RawObject) -> None:
        """Answer a dialog; one that is closed already is passed over, as pi does."""
        known = {name: value for name, value in command.items() if name in UiAnswer.__struct_fields__}
        try:
            answer = msgspec.json.decode(msgspec.json.encode(known), type=UiAnswer)
        except DECODE_ERRORS as exc:
            raise UsageError(f"this answers no dialog: {exc}", worker_code="invalid_params") from exc
        self._dialogs.answer(answer)
        self._link.answer(request_id, {})
