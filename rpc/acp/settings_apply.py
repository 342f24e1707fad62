"""Mode, model, thinking and options of a conversation: checked against what is offered, set, and verified."""

from typing import Any

import msgspec

from errors import WorkerRefused
from rpc.acp.conversation import AcpConversation
from rpc.acp.link import AcpProcedure, AcpRequest
from rpc.acp.options import AcpOptions
from rpc.acp.session_config import THINKING_NAMES, ConfigOption, Selection, Value
from rpc.acp.words import OFFERS_NO

_MAX_SHOWN = 20


class WantedSettings(msgspec.Struct):
    """What every conversation of this process is to have; changed at run time."""

    mode: str | None = None
    model: str | None = None
    thinking: str | None = None
    options: dict[str, Value] = {}


def wanted_settings(options: AcpOptions) -> WantedSettings:
    """As the definition says."""
    return WantedSettings(options.mode, options.model, options.thinking, dict(options.options))


def apply_settings(conversation: AcpConversation, wanted: WantedSettings) -> AcpProcedure[None]:
    """Set all that is wanted; the model first, since other options depend on it.

    Raises WorkerRefused ``setting_refused`` for a value that is not offered, or not taken.
    """
    if wanted.model is not None:
        yield from set_model(conversation, wanted.model)
    if wanted.thinking is not None:
        yield from set_thinking(conversation, wanted.thinking)
    for option_id, value in wanted.options.items():
        yield from set_option(conversation, option_id, value)
    if wanted.mode is not None:
        yield from set_mode(conversation, wanted.mode)


def set_mode(conversation: AcpConversation, mode: str) -> AcpProcedure[None]:
    """Its mode, as an option or in the older way."""
    option, config = conversation.config.option("mode"), conversation.config
    if option is not None:
        yield from _set_option(conversation, option, mode)
    elif _must_select("mode", mode, config.modes):
        yield AcpRequest("session/set_mode", {"sessionId": conversation.session, "modeId": mode})
        conversation.config = conversation.config.with_mode(mode)


def set_model(conversation: AcpConversation, model: str) -> AcpProcedure[None]:
    """Its model, as an option or in the older way."""
    option, config = conversation.config.option("model"), conversation.config
    if option is not None:
        yield from _set_option(conversation, option, model)
    elif _must_select("model", model, config.models):
        yield AcpRequest("session/set_model", {"sessionId": conversation.session, "modelId": model})
        conversation.config = conversation.config.with_model(model)


def set_thinking(conversation: AcpConversation, level: str) -> AcpProcedure[None]:
    """How hard it thinks."""
    option = conversation.config.option(*THINKING_NAMES)
    if option is None:
        raise _refused(f"{OFFERS_NO} setting for thinking")
    yield from _set_option(conversation, option, level)


def set_option(conversation: AcpConversation, option_id: str, value: Value) -> AcpProcedure[None]:
    """One of the agent's own options, by its id."""
    option = next((option for option in conversation.config.options if option.id == option_id), None)
    if option is None:
        offered = _listed([option.id for option in conversation.config.options])
        raise _refused(f"{OFFERS_NO} option {option_id!r}; offered: {offered}")
    yield from _set_option(conversation, option, value)


def _set_option(conversation: AcpConversation, option: ConfigOption, value: Value) -> AcpProcedure[None]:
    if option.is_boolean != isinstance(value, bool):
        raise _refused(f"{option.id} takes {'true or false' if option.is_boolean else 'a text'}, not {value!r}")
    if not option.is_boolean and value not in option.choices:
        raise _refused(f"{OFFERS_NO} {option.id} {value!r}; offered: {_listed(option.choices)}")
    if option.value == value:
        return
    params: dict[str, Any] = {"sessionId": conversation.session, "configId": option.id, "value": value}
    if option.is_boolean:
        params["type"] = "boolean"
    answer = yield AcpRequest("session/set_config_option", params)
    said = answer.result.get("configOptions")
    if isinstance(said, list):
        conversation.config = conversation.config.with_options(said)
    held = next((now.value for now in conversation.config.options if now.id == option.id), None)
    if held != value:
        raise _refused(f"the agent has {option.id} {held!r} after it was set to {value!r}")


def _must_select(what: str, value: str, selection: Selection | None) -> bool:
    if selection is None:
        raise _refused(f"{OFFERS_NO} choice of a {what}")
    if value not in selection.choices:
        raise _refused(f"{OFFERS_NO} {what} {value!r}; offered: {_listed(selection.choices)}")
    return selection.current != value


def _refused(message: str) -> WorkerRefused:
    return WorkerRefused(message, worker_code="setting_refused")


def _listed(names: tuple[str, ...] | list[str]) -> str:
    shown = ", ".join(names[:_MAX_SHOWN]) or "none"
    return shown if len(names) <= _MAX_SHOWN else f"{shown} and {len(names) - _MAX_SHOWN} more"
